"""Guards: SentEval's three protocols against plain scikit-learn, and the transfer command.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_transfer.py
"""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score

from minbert import Encoder, UserError
from tasks.benchmarks import transfer
from tasks.benchmarks.common import EmbeddingCache, NamedEncoder
from tests.e2e.conftest import SAMPLE

GRID = (0.25, 0.5, 1, 2, 4, 8)


def random_split(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy features of two classes."""
    y = np.arange(count) % 2
    noise = np.random.default_rng(seed).normal(size=(count, 6))
    return np.eye(2, 6)[y] + 1.5 * noise, y


def folds(count: int) -> StratifiedKFold:
    return StratifiedKFold(n_splits=count, shuffle=True, random_state=1111)


def model(c: float) -> LogisticRegression:
    return LogisticRegression(C=c, max_iter=5000, tol=1e-8)


@pytest.mark.filterwarnings("ignore")
def test_fixed_test_set_of_pairs(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SentEval's grid for TREC and MRPC; a pair's features are |u - v| and u * v."""
    assert transfer.FIXED_TEST_GRID == [0.5, 1, 2, 4, 8, 16, 32]
    grid = [16, 32]
    monkeypatch.setattr(transfer, "FIXED_TEST_GRID", grid)
    encoder = Encoder.load(tiny, precision="fp32")
    named = NamedEncoder("tiny", "mean", tiny, encoder)
    data = transfer.read_set(SAMPLE, "MRPC")
    outcome = transfer.classify(EmbeddingCache([named]), named, data, folds=3)
    features = {}
    labels = {}
    for split, rows in data.items():
        u, v = (encoder.encode([row.texts[side] for row in rows]) for side in (0, 1))
        features[split] = np.concatenate([abs(u - v), u * v], axis=1)
        labels[split] = np.array([row.label for row in rows])
    accuracies = []
    for c in grid:
        accuracies.append(cross_val_score(model(c), features["train"], labels["train"], cv=folds(3)).mean())
    chosen = grid[int(np.argmax(np.round(100 * np.array(accuracies), 2)))]
    assert outcome.chosen_c == (chosen,)
    plain = model(chosen).fit(features["train"], labels["train"])
    assert np.array_equal(outcome.predicted, plain.predict(features["test"]))


def test_nested_cross_validation() -> None:
    x, y = random_split(90, seed=4)
    x = x / 8  # so that C matters
    outcome = transfer.cross_validate((x, y), folds=3)
    chosen = []
    accuracies = []
    for train, test in folds(3).split(x, y):
        inner = []
        for c in GRID:
            inner.append(round(100 * cross_val_score(model(c), x[train], y[train], cv=folds(3)).mean(), 2))
        chosen.append(GRID[inner.index(max(inner))])
        plain = model(chosen[-1]).fit(x[train], y[train])
        assert np.array_equal(outcome.predicted[test], plain.predict(x[test]))
        accuracies.append(plain.score(x[test], y[test]))
    assert outcome.fold_accuracies == pytest.approx(accuracies)
    assert outcome.accuracy == pytest.approx(np.mean(accuracies))
    assert list(outcome.chosen_c) == chosen
    assert len(set(chosen)) > 1, "the folds do not agree on C here"


def test_dev_accuracy_is_of_chosen_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest C of those that are equal after rounding, whose own accuracy may be lower."""
    accuracies = np.array([0.90001, 0.90004, 0.8])

    class Search:
        cv_results_ = {"mean_test_score": accuracies}  # noqa: RUF012

        def fit(self, *_: np.ndarray) -> "Search":
            return self

    monkeypatch.setattr(transfer, "GridSearchCV", lambda *_, **__: Search())
    outcome = transfer.fit_best(random_split(60, 5), random_split(30, 7), [1, 2, 4], folds=3)
    assert (outcome.chosen_c, outcome.dev_accuracy) == ((1,), 0.90001)


def test_development_set() -> None:
    train, dev, test = random_split(60, seed=5), random_split(40, seed=6), random_split(30, seed=7)
    outcome = transfer.choose_on_dev(train, dev, test)
    scores = [model(c).fit(*train).score(*dev) for c in GRID]
    assert outcome.dev_accuracy == pytest.approx(max(scores))
    assert outcome.chosen_c == (GRID[int(np.argmax(scores))],)
    # the dev rows are not trained on
    plain = model(outcome.chosen_c[0]).fit(*train)
    assert np.array_equal(outcome.predicted, plain.predict(test[0]))


@pytest.mark.parametrize("flags", ["--folds 1", "--resamples -1"])
def test_impossible_numbers_are_refused(flags: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{flags}: must be at least"):
        transfer.parse(["--encoder", "minilm", "--out", str(tmp_path), *flags.split()])


def test_command(tiny: Path, tmp_path: Path) -> None:
    flags = f"--pooler mean,cls --data {SAMPLE} --sets MR,SST2,MRPC --folds 3 --resamples 20 --out {tmp_path}"
    transfer.main(["--encoder", str(tiny), *flags.split()])
    content = json.loads((tmp_path / "transfer.json").read_text())
    assert content["complete"]
    assert content["sets"]["MR"] == {"rows": {"all": 24}}
    rows = content["results"]
    sets_and_poolers = [(row["set"], row["pooler"]) for row in rows]
    assert sets_and_poolers == [*product(("MR", "SST2", "MRPC", "avg."), ("mean", "cls"))]
    assert [len(row["folds"]) for row in rows[:6:2]] == [3, 1, 1]
    assert "folds" not in rows[-1]
    for row in rows:
        assert row["low"] - 1e-9 <= row["value"] <= row["high"] + 1e-9
    assert (tmp_path / "transfer.md").is_file()


def test_row_without_sentence_is_error(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        path = tmp_path / "SST" / "binary" / f"sentiment-{split}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a good film\t1\n\t0\n")
    with pytest.raises(UserError, match="SST2 train, line 2: sentence: empty"):
        transfer.read_set(tmp_path, "SST2")
