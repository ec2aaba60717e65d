"""Logistic regression over frozen vectors in SentEval's three protocols (Conneau and Kiela 2018; its `validation.py`).

Axes: N rows, D features. Classifier and grid search are scikit-learn's; the grids of C, the folds and their seed are
SentEval's.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold

from minbert.errors import UserError
from minbert.files import data_folder
from minbert.token_cache import Row
from tasks import intervals
from tasks.benchmarks import results
from tasks.benchmarks.encoders import Bank, System, load
from tasks.benchmarks.results import AVERAGE, SYSTEM, Results, Suite
from tasks.readers import DataFile, senteval
from tasks.tables import Table, between, numbers, wide

SEED = 1111  # SentEval's own seed
NESTED = [2.0**power for power in range(-2, 4)]
FIXED_TEST = [2.0**power for power in range(-1, 6)]
Split = tuple[np.ndarray, np.ndarray]
"""Features [N, D] and labels [N]."""
LabelledRows = Mapping[str, Sequence[Row]]
"""The rows of a set by split: `all`, or train, test and for SST2 dev."""


@dataclass(frozen=True)
class Outcome:
    """Predictions for every test row [N], the accuracy and the C of each fold (one without folds), accuracy on dev."""

    predicted: np.ndarray
    gold: np.ndarray
    folds: tuple[float, ...]
    chosen: tuple[float, ...]
    dev: float

    @property
    def accuracy(self) -> float:
        """The mean over folds, as SentEval reports it."""
        return float(np.mean(self.folds))


def stratified(folds: int) -> StratifiedKFold:
    """SentEval's folds."""
    return StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED)


def fitted(train: Split, test: Split, grid: list[float], folds: Any, rows: slice = slice(None)) -> Outcome:
    """C by a search over `folds` of the training rows, a logistic regression of some `rows` of them, and its score.

    C is the smallest of the best, after SentEval's rounding to hundredths of a point.
    """
    model = LogisticRegression(random_state=SEED, max_iter=2000, tol=1e-5)
    search = GridSearchCV(model, {"C": grid}, cv=folds, refit=False).fit(*train)
    scores = search.cv_results_["mean_test_score"]
    c = grid[int(np.argmax(np.round(100 * scores, 2)))]
    predicted = model.set_params(C=c).fit(train[0][rows], train[1][rows]).predict(test[0])
    return Outcome(predicted, test[1], (float((predicted == test[1]).mean()),), (c,), float(scores.max()))


def nested(data: Split, folds: int) -> Outcome:
    """MR, CR, SUBJ, MPQA: cross-validation; every fold chooses C by a cross-validation inside its training part."""
    x, y = data
    predicted, outcomes = np.empty_like(y), []
    for train, test in stratified(folds).split(x, y):
        outcomes.append(fitted((x[train], y[train]), (x[test], y[test]), NESTED, stratified(folds)))
        predicted[test] = outcomes[-1].predicted
    accuracies, chosen = (tuple(getattr(one, name)[0] for one in outcomes) for name in ("folds", "chosen"))
    return Outcome(predicted, y, accuracies, chosen, float(np.mean([one.dev for one in outcomes])))


def with_dev(train: Split, dev: Split, test: Split) -> Outcome:
    """SST2: C by the development rows, which are not trained on, then one score on the test rows."""
    both = np.concatenate([train[0], dev[0]]), np.concatenate([train[1], dev[1]])
    split = PredefinedSplit(np.repeat([-1, 0], [len(train[1]), len(dev[1])]))
    return fitted(both, test, NESTED, split, slice(len(train[1])))


def pair_features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[N, D] and [N, D] to [N, 2D]: |u - v| and u * v, SentEval's features of MRPC."""
    return np.hstack([np.abs(first - second), first * second])


def read_set(folder: Path, name: str, folds: int) -> LabelledRows:
    """Read a set. Raises `UserError` for a missing file, a row without label or text, and a class of too few rows."""
    data = {split: _usable(f"{name} {split}", rows) for split, rows in senteval.classification(folder, name).items()}
    for split in data.keys() & {"all", "train"}:
        counts = Counter(row.label for row in data[split])
        if len(counts) < 2 or min(counts.values()) < folds:
            raise UserError(f"{name} {split}: a class has fewer rows than --folds {folds}")
    return data


def _usable(name: str, data: DataFile) -> list[Row]:
    for issue in data.skipped:
        raise UserError(f"{name}, line {issue.line}: {issue.reason}")
    return data.rows


def tested(data: LabelledRows) -> list[tuple[str, ...]]:
    """The texts of the rows that are scored."""
    return [row.texts for row in data.get("all") or data["test"]]


def classify(bank: Bank, system: System, rows: LabelledRows, folds: int) -> Outcome:
    """Train and test on the vectors of one set by its splits: one, train and test, or train, dev and test."""
    data: dict[str, Split] = {}
    for split, some in rows.items():
        sides = [bank.raw(system, texts) for texts in zip(*(row.texts for row in some), strict=True)]
        features = pair_features(*sides) if len(sides) == 2 else sides[0]
        data[split] = features, np.array([row.label for row in some], dtype=np.int64)
    if "all" in data:
        return nested(data["all"], folds)
    if "dev" in data:
        return with_dev(data["train"], data["dev"], data["test"])
    return fitted(data["train"], data["test"], FIXED_TEST, stratified(folds))  # TREC, MRPC


def run_transfer(options: argparse.Namespace) -> None:
    """Classify with every encoder, and write `transfer.json` and `transfer.md`."""
    folder = data_folder(options.data)
    data = {name: read_set(folder, name, options.folds) for name in options.sets}
    suite, scores = Suite(options, folder, load(options)), Results()
    bank = suite.bank(text for one in data.values() for some in one.values() for row in some for text in row.texts)
    for system in suite.systems:
        for name, one in data.items():
            outcome = classify(bank, system, one, options.folds)
            predicted, gold = outcome.predicted[None], outcome.gold
            samples = intervals.bootstrap("accuracy", predicted, gold, name, **suite.bootstrap)[0]
            more: dict[str, Any] = {"rows": len(outcome.gold), "dev_accuracy": outcome.dev}
            more |= {"folds": list(outcome.folds), "C": list(outcome.chosen)}
            scores.add(system, "accuracy", name, outcome.accuracy, samples, **more)
            print(f"{system.name}: {name} {100 * outcome.accuracy:.2f}", file=sys.stderr)
    scores.add_average("accuracy")
    differences = scores.differences(suite.pairings, "accuracy")
    suite.tables = [
        *_tables(scores, options.folds),
        *results.difference_tables("Accuracy × 100", differences, times=100),
    ]
    sets = {name: {"rows": {split: len(some) for split, some in one.items()}} for name, one in data.items()}
    suite.content = {"folds": options.folds, "sets": sets, **results.content(scores, differences)}
    suite.check_contamination({name: tested(one) for name, one in data.items()})
    suite.write("Transfer")


def _tables(scores: Results, folds: int) -> list[Table]:
    """All systems side by side, then each by set with its interval, its spread over folds and the C it chose."""
    note = (
        f"MR, CR, SUBJ, MPQA: {folds}-fold cross-validation, C chosen inside each fold. TREC, MRPC: C chosen by "
        f"{folds} folds of the training rows, fixed test. SST2: C chosen on dev, fixed test. The classifier is "
        "scikit-learn's logistic regression."
    )
    frame = scores.frame()
    tables = [Table("Transfer, accuracy × 100", wide(frame, SYSTEM, "set", times=100), (note,), left=2)]
    each = frame[frame["set"] != AVERAGE]
    for (encoder, pooler), one in each.groupby(SYSTEM, sort=False):
        spreads = [np.std(each, ddof=1) if len(each) > 1 else np.nan for each in one["folds"]]
        columns = {
            "set": one["set"],
            "test rows": [f"{count:,.0f}" for count in one["rows"]],
            "accuracy": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "deviation over folds": numbers(spreads, times=100),
            "C": ["/".join(f"{c:g}" for c in sorted(set(chosen))) for chosen in one["C"]],
        }
        tables.append(Table(f"{encoder}, pooler {pooler}", pd.DataFrame(columns)))
    return tables
