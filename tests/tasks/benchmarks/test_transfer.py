"""Guards: SentEval's three protocols against plain scikit-learn, and the transfer command.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_transfer.py
"""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score

from minbert.errors import UserError
from tasks.benchmarks import classifiers, transfer

RNG = np.random.default_rng(4)
GRID = (0.25, 0.5, 1, 2, 4, 8)


def made(count: int, classes: int = 2, noise: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(count) % classes
    return np.eye(classes, 6)[y] + noise * RNG.normal(size=(count, 6)), y


def folds(count: int) -> StratifiedKFold:
    return StratifiedKFold(n_splits=count, shuffle=True, random_state=1111)


def model(c: float) -> LogisticRegression:
    return LogisticRegression(C=c, max_iter=5000, tol=1e-8)


def test_nested_cross_validation() -> None:
    x, y = made(90)
    x = x / 8  # so that C matters
    found = classifiers.nested((x, y), folds=3)
    chosen, right = [], []
    for train, test in folds(3).split(x, y):
        inner = [cross_val_score(model(c), x[train], y[train], cv=folds(3)).mean() for c in GRID]
        chosen.append(GRID[[round(100 * score, 2) for score in inner].index(round(100 * max(inner), 2))])
        plain = model(chosen[-1]).fit(x[train], y[train])
        assert np.array_equal(found.predicted[test], plain.predict(x[test]))
        right.append(plain.score(x[test], y[test]))
    assert found.folds == pytest.approx(right) and found.accuracy == pytest.approx(np.mean(right))
    assert list(found.chosen) == chosen and len(set(chosen)) > 1, "the folds do not agree on C here"


def test_a_development_set() -> None:
    parts = [made(60), made(40), made(30)]
    (x, y), dev, (x_test, _) = parts
    found = classifiers.with_dev(*parts)
    scores = [model(c).fit(x, y).score(*dev) for c in GRID]
    assert found.dev == pytest.approx(max(scores)) and found.chosen == (GRID[int(np.argmax(scores))],)
    plain = model(found.chosen[0]).fit(x, y).predict(x_test)
    assert np.array_equal(found.predicted, plain), "the dev rows are not trained on"


def test_the_command(tiny: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"--pooler mean,cls --data {folder} --sets MR,SST2,MRPC --folds 3 --resamples 20 --out {tmp_path}"
    transfer.main(["--encoder", str(tiny), *arguments.split()])
    found = json.loads((tmp_path / "transfer.json").read_text())
    assert found["sets"]["MR"] == {"rows": {"all": 48}}
    rows = found["results"]
    assert [one["pooler"] for one in rows] == [*["mean"] * 3, *["cls"] * 3, "mean", "cls"]
    assert [one["set"] for one in rows] == [*["MR", "SST2", "MRPC"] * 2, "avg.", "avg."]
    assert [len(one["folds"]) for one in rows[:3]] == [3, 1, 1] and "folds" not in rows[-1]
    for one in rows:
        assert one["low"] <= one["value"] + 1e-9 and one["value"] <= one["high"] + 1e-9
    assert found["contamination"][0]["notes"][0].startswith("not in a run folder")
    printed = capsys.readouterr().out
    assert "Transfer, accuracy × 100" in printed and f"Contamination of {tiny.name}" in printed
    assert "MR, CR, SUBJ, MPQA: 3-fold" in (tmp_path / "transfer.md").read_text()


def test_a_row_without_a_sentence_is_a_users_mistake(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        path = tmp_path / "SST" / "binary" / f"sentiment-{split}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a good film\t1\na bad film\t0\n" * 2)
    assert classifiers.read_set(tmp_path, "SST2", 2).keys() == {"train", "dev", "test"}
    path.write_text("a good film\t1\n\t0\n")
    with pytest.raises(UserError, match="SST2 test, line 2: sentence: empty"):
        classifiers.read_set(tmp_path, "SST2", 2)
