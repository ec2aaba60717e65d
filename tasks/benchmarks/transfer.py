"""Transfer: logistic regression on frozen sentence vectors for seven classification tasks, in SentEval's protocols.

python -m tasks.benchmarks.transfer --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.transfer --encoder minilm runs/cbcl --sets TREC,MRPC --data DIR

The three protocols are those of Conneau and Kiela 2018 (SentEval's `validation.py`) with its classifier by
scikit-learn: its grids of C, its folds and their seed. SentEval sorts the rows by length first, so its folds are
others, and its scikit-learn fitted each class of TREC against the rest. Its default, which SelfCCL's Table 5 has, is
logistic regression in PyTorch by Adam, with a grid of L2 penalties. Axes: N rows, D features.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold

from minbert.errors import UserError
from minbert.files import data_path, require_file
from minbert.token_cache import Row
from minbert.train import cli
from minbert.train.settings import require_range
from tasks import intervals, readers
from tasks.benchmarks import common
from tasks.benchmarks.common import AVERAGE, COLUMNS, EmbeddingCache, NamedEncoder, Score
from tasks.readers import senteval
from tasks.tables import Table, interval_texts, numbers, wide

SETS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
SEED = 1111  # SentEval's
NESTED_GRID = [2.0**power for power in range(-2, 4)]
FIXED_TEST_GRID = [2.0**power for power in range(-1, 6)]
Split = tuple[np.ndarray, np.ndarray]
"""Features [N, D] and labels [N]."""
LabelledRows = Mapping[str, Sequence[Row]]
"""The rows of a set by split: `all`, or train, test and for SST2 dev."""


@dataclass(frozen=True)
class Outcome:
    """Predictions for every test row [N], the accuracy and the C of each fold (one without folds), accuracy on dev."""

    predicted: np.ndarray
    gold: np.ndarray
    fold_accuracies: tuple[float, ...]
    chosen_c: tuple[float, ...]
    dev_accuracy: float

    @property
    def accuracy(self) -> float:
        """The mean over folds, as SentEval reports it."""
        return float(np.mean(self.fold_accuracies))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The flags, checked. Raises `UserError` for a mistake."""
    parser = common.parser("transfer", "Logistic regression on frozen sentence vectors.")
    names = f"{', '.join(SETS)}, several with commas (default: all seven)"
    parser.add_argument("--sets", default=",".join(SETS), metavar="NAMES", help=names)
    parser.add_argument("--folds", type=int, default=10, metavar="N", help="folds of a cross-validation (default: 10)")
    options = common.parse(parser, arguments)
    require_range(options, "folds", 2)
    options.sets = common.choose(options.sets, SETS, "--sets")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Classify with the encoders set by set, and write `transfer.json` and `transfer.md`."""
    options = parse(arguments)
    folder = data_path(options.data)
    data = {name: read_set(folder, name) for name in options.sets}
    encoders = common.load_encoders(options)
    cache = EmbeddingCache(encoders)

    scores: list[Score] = []
    content: dict[str, Any] = {"folds": options.folds, "sets": {}}
    for name, rows_of_split in data.items():
        counts = {split: len(rows) for split, rows in rows_of_split.items()}
        content["sets"][name] = {"rows": counts}
        for encoder in encoders:
            outcome = classify(cache, encoder, rows_of_split, options.folds)
            samples = intervals.bootstrap(
                "accuracy",
                outcome.predicted[None],
                outcome.gold,
                name,
                seed=options.seed,
                resamples=options.resamples,
            )
            details = {
                "rows": len(outcome.gold),
                "dev_accuracy": outcome.dev_accuracy,
                "folds": list(outcome.fold_accuracies),
                "C": list(outcome.chosen_c),
            }
            scores.append(Score(encoder, "accuracy", name, outcome.accuracy, samples[0], details))
            cli.say(f"{encoder.label}: {name} {100 * outcome.accuracy:.2f} ({len(outcome.gold):,} test rows)")
        # written as it goes: a suite that is stopped leaves the sets that it has
        results = common.as_json(common.frame_of(scores))
        common.save(options, folder, encoders, complete=False, **content, results=results)

    scores += common.averages(scores, "accuracy")
    differences = common.differences(scores, encoders, "accuracy")
    content["results"] = common.as_json(common.frame_of(scores))
    content["differences"] = common.as_json(differences)
    common.save(options, folder, encoders, complete=True, **content)
    tables = score_tables(scores, encoders, options.folds)
    tables += common.difference_tables("Accuracy × 100", differences, times=100)
    common.show(options, encoders, "Transfer", tables)


def read_set(folder: Path, name: str) -> LabelledRows:
    """Read a set. Raises `UserError` for a missing file, and for a row without label or text."""
    base = senteval.root(folder)
    kind, files_of_split = senteval.CLASSIFICATION[name]
    data: dict[str, list[Row]] = {}
    for split, files in files_of_split.items():
        paths = [require_file(base / path) for path in files]
        if kind == "polarity":
            file = senteval.polarity(*paths)
        else:
            file = readers.open_as(paths[0], kind)
        if file.skipped:
            issue = file.skipped[0]
            raise UserError(f"{name} {split}, line {issue.line}: {issue.reason}")
        data[split] = file.rows
    return data


def classify(cache: EmbeddingCache, encoder: NamedEncoder, data: LabelledRows, folds: int) -> Outcome:
    """Train and test on the vectors of one set by its splits: one, train and test, or train, dev and test."""
    splits: dict[str, Split] = {}
    for split, rows in data.items():
        features = cache.raw(encoder, [row.texts[0] for row in rows])
        if len(rows[0].texts) == 2:
            features = pair_features(features, cache.raw(encoder, [row.texts[1] for row in rows]))
        splits[split] = features, np.array([row.label for row in rows], dtype=np.int64)
    if "all" in splits:
        return cross_validate(splits["all"], folds)
    if "dev" in splits:
        return choose_on_dev(splits["train"], splits["dev"], splits["test"])
    # TREC, MRPC
    return fit_best(splits["train"], splits["test"], FIXED_TEST_GRID, stratified(folds))


def pair_features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[N, D] and [N, D] to [N, 2D]: |u - v| and u * v, SentEval's features of MRPC."""
    return np.hstack([np.abs(first - second), first * second])


def stratified(folds: int) -> StratifiedKFold:
    """Shuffled folds by SentEval's seed."""
    return StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED)


def fit_best(train: Split, test: Split, grid: list[float], folds: Any, rows: slice = slice(None)) -> Outcome:
    """Choose C by a search over `folds` of the training rows, fit on some `rows` of them, and score the test rows.

    C is the smallest of the best, after SentEval's rounding to hundredths of a point.
    """
    x, y = train
    x_test, y_test = test
    model = LogisticRegression(max_iter=2000, tol=1e-5)
    search = GridSearchCV(model, {"C": grid}, cv=folds, refit=False).fit(x, y)
    dev_accuracies = search.cv_results_["mean_test_score"]
    best = int(np.argmax(np.round(100 * dev_accuracies, 2)))
    c = grid[best]
    predicted = model.set_params(C=c).fit(x[rows], y[rows]).predict(x_test)
    accuracy = float((predicted == y_test).mean())
    return Outcome(predicted, y_test, (accuracy,), (c,), float(dev_accuracies[best]))


def cross_validate(data: Split, folds: int) -> Outcome:
    """MR, CR, SUBJ, MPQA: cross-validation; every fold chooses C by a cross-validation inside its training part."""
    x, y = data
    predicted = np.empty_like(y)
    outcomes = []
    for train, test in stratified(folds).split(x, y):
        outcome = fit_best((x[train], y[train]), (x[test], y[test]), NESTED_GRID, stratified(folds))
        predicted[test] = outcome.predicted
        outcomes.append(outcome)
    return Outcome(
        predicted,
        y,
        fold_accuracies=tuple(outcome.accuracy for outcome in outcomes),
        chosen_c=tuple(outcome.chosen_c[0] for outcome in outcomes),
        dev_accuracy=float(np.mean([outcome.dev_accuracy for outcome in outcomes])),
    )


def choose_on_dev(train: Split, dev: Split, test: Split) -> Outcome:
    """SST2: C by the development rows, which are not trained on, then one score on the test rows."""
    both = np.concatenate([train[0], dev[0]]), np.concatenate([train[1], dev[1]])
    # -1: always in the training part; 0: the rows that are scored
    fold_of_row = np.repeat([-1, 0], [len(train[1]), len(dev[1])])
    return fit_best(both, test, NESTED_GRID, PredefinedSplit(fold_of_row), rows=slice(len(train[1])))


def score_tables(scores: Sequence[Score], encoders: Sequence[NamedEncoder], folds: int) -> list[Table]:
    """All encoders side by side, then each by set with its interval, its deviation over folds and the C it chose."""
    note = (
        f"MR, CR, SUBJ, MPQA: {folds}-fold cross-validation, C chosen inside each fold. TREC, MRPC: C chosen by "
        f"{folds} folds of the training rows, fixed test. SST2: C chosen on dev, fixed test. The classifier is "
        "scikit-learn's logistic regression."
    )
    rows = wide(common.frame_of(scores), COLUMNS, "set", times=100)
    tables = [Table("Transfer, accuracy × 100", rows, (note,), left=2)]
    for encoder in encoders:
        frame = common.frame_of(score for score in scores if score.encoder == encoder and score.set != AVERAGE)
        deviations = []
        for accuracies in frame["folds"]:
            # TREC, MRPC and SST2 have a fixed test set, and no folds of it
            deviations.append(np.std(accuracies, ddof=1) if len(accuracies) > 1 else np.nan)
        chosen_c = []
        for values in frame["C"]:
            chosen_c.append("/".join(f"{c:g}" for c in sorted(set(values))))
        columns = {
            "set": frame["set"],
            "test rows": [f"{count:,}" for count in frame["rows"]],
            "accuracy": numbers(frame["value"], times=100),
            "95% interval": interval_texts(frame, times=100),
            "deviation over folds": numbers(deviations, times=100),
            "C": chosen_c,
        }
        tables.append(Table(f"{encoder.name}, pooler {encoder.pooler}", pd.DataFrame(columns)))
    return tables


if __name__ == "__main__":
    cli.run(main)
