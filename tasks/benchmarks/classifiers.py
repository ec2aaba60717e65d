"""Logistic regression over frozen vectors in SentEval's three protocols (Conneau and Kiela 2018; its `validation.py`).

Axes: N rows, D features. The classifier is scikit-learn's. The grid of C, the folds and their seeds are SentEval's.
Each fit starts from the weights for the next smaller C. As the loss is convex, this changes the time, not the result.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from minbert.errors import UserError
from minbert.token_cache import Row
from minbert.training import start
from tasks import intervals
from tasks.benchmarks import results
from tasks.benchmarks.encoders import Bank, System
from tasks.benchmarks.results import AVERAGE, SYSTEM, Results, Suite
from tasks.readers import senteval
from tasks.tables import Table, between, numbers

SEED = 1111  # SentEval's own seed
NESTED = tuple(2.0**power for power in range(-2, 4))
FIXED_TEST = tuple(2.0**power for power in range(-1, 6))


@dataclass(frozen=True)
class Split:
    """Features [N, D] and labels [N]."""

    x: np.ndarray
    y: np.ndarray

    def folds(self, count: int) -> Iterator[tuple["Split", "Split", np.ndarray]]:
        """Training part, held-out part, and the places of the latter, of every fold."""
        folds = StratifiedKFold(n_splits=count, shuffle=True, random_state=SEED)
        for train, test in folds.split(self.x, self.y):
            yield Split(self.x[train], self.y[train]), Split(self.x[test], self.y[test]), test


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


def nested(data: Split, folds: int) -> Outcome:
    """MR, CR, SUBJ, MPQA: cross-validation; every fold chooses C by a cross-validation inside its training part."""
    predicted, found = np.empty_like(data.y), []
    for train, test, places in data.folds(folds):
        found.append(fixed_test(train, test, folds, NESTED))
        predicted[places] = found[-1].predicted
    scores, chosen = (tuple(getattr(one, name)[0] for one in found) for name in ("folds", "chosen"))
    return Outcome(predicted, data.y, scores, chosen, float(np.mean([one.dev for one in found])))


def fixed_test(train: Split, test: Split, folds: int, grid: Sequence[float] = FIXED_TEST) -> Outcome:
    """TREC, MRPC: C by cross-validation on the training rows, then one score on the test rows."""
    dev = np.mean([_accuracies(one, other, grid) for one, other, _ in train.folds(folds)], axis=0)
    return _tested(train, test, dev, grid)


def with_dev(train: Split, dev: Split, test: Split) -> Outcome:
    """SST2: C by the development rows, then one score on the test rows."""
    return _tested(train, test, _accuracies(train, dev, NESTED), NESTED)


def _tested(train: Split, test: Split, dev: np.ndarray, grid: Sequence[float]) -> Outcome:
    """C is the smallest of the best on dev, after SentEval's rounding to hundredths of a point."""
    c = grid[int(np.argmax(np.round(100 * dev, 2)))]
    predicted = _model(c).fit(train.x, train.y).predict(test.x)
    return Outcome(predicted, test.y, (float((predicted == test.y).mean()),), (c,), float(dev.max()))


def _model(c: float) -> LogisticRegression:
    return LogisticRegression(C=c, random_state=SEED, max_iter=2000, tol=1e-5, warm_start=True)


def _accuracies(train: Split, dev: Split, grid: Sequence[float]) -> np.ndarray:
    """Accuracy on the development rows for each C, in ascending order."""
    model = _model(grid[0])
    return np.array([float(model.set_params(C=c).fit(train.x, train.y).score(dev.x, dev.y)) for c in grid])


def pair_features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[N, D] and [N, D] to [N, 2D]: |u - v| and u * v, SentEval's features of MRPC."""
    return np.hstack([np.abs(first - second), first * second])


def classify(bank: Bank, system: System, rows: Mapping[str, Sequence[Row]], folds: int) -> Outcome:
    """Train and test on the vectors of one set by its splits: one, train and test, or train, dev and test."""
    data = {}
    for split, some in rows.items():
        sides = [bank.raw(system, texts) for texts in zip(*(row.texts for row in some), strict=True)]
        features = pair_features(*sides) if len(sides) == 2 else sides[0]
        data[split] = Split(features.astype(np.float64), np.array([row.label for row in some], dtype=np.int64))
    if "all" in data:
        return nested(data["all"], folds)
    if "dev" in data:
        return with_dev(data["train"], data["dev"], data["test"])
    return fixed_test(data["train"], data["test"], folds)


def _read_set(folder: Path, name: str, folds: int) -> tuple[dict[str, list[Row]], dict[str, int]]:
    """The rows of a set by split, and how many of each were skipped; `UserError` if a class is smaller than `folds`."""
    rows, skipped = {}, {}
    for split, found in senteval.classification(folder, name).items():
        every = list(found)
        rows[split] = [row for row in every if isinstance(row, Row)]
        skipped[split] = len(every) - len(rows[split])
        counts = Counter(row.label for row in rows[split])
        if split in ("all", "train") and (len(counts) < 2 or min(counts.values()) < folds):
            raise UserError(f"{name} {split}: a class has fewer rows than --folds {folds}")
    return rows, skipped


def run_transfer(given: argparse.Namespace, chosen: list[str]) -> None:
    """Classify with every encoder, and write `transfer.json` and `transfer.md`."""
    folder = start.data_folder(given.data)
    data = {name: _read_set(folder, name, given.folds) for name in chosen}
    suite, found = Suite.open(given, folder), Results()
    bank = suite.bank(
        text for rows, _ in data.values() for split in rows.values() for row in split for text in row.texts
    )
    for system in suite.systems:
        for name, (rows, _) in data.items():
            one = classify(bank, system, rows, given.folds)
            draws = intervals.bootstrap("accuracy", one.predicted[None], one.gold, name, **suite.draw)[0]
            more = {"rows": len(one.gold), "dev_accuracy": one.dev, "folds": list(one.folds), "C": list(one.chosen)}
            found.add(system, "accuracy", name, one.accuracy, draws, **more)
            print(f"{system.name}: {name} {100 * one.accuracy:.2f}", file=sys.stderr)
    found.add_average("accuracy")
    apart = found.differences(suite.pairings, "accuracy")
    suite.tables = [*_tables(found, given), *results.difference_tables("Accuracy × 100", apart, times=100)]
    sets = {
        name: {"rows": {split: len(some) for split, some in rows.items()}, "skipped": skipped}
        for name, (rows, skipped) in data.items()
    }
    suite.content = {"folds": given.folds, "sets": sets, **results.content(found, apart)}
    suite.write("Transfer")


def _tables(found: Results, given: argparse.Namespace) -> list[Table]:
    """All systems side by side, then each by set with its interval, its spread over folds and the C it chose."""
    note = (
        f"MR, CR, SUBJ, MPQA: {given.folds}-fold cross-validation, C chosen inside each fold. TREC, MRPC: C chosen by "
        f"{given.folds} folds of the training rows, fixed test. SST2: C chosen on dev, fixed test. The classifier is "
        "scikit-learn's logistic regression."
    )
    frame = found.frame()
    made = [Table("Transfer, accuracy × 100", results.wide(frame, "set", times=100), (note,), left=2)]
    each = frame[frame["set"] != AVERAGE]
    for (encoder, pooler), one in each.groupby(SYSTEM, sort=False):
        spreads = [np.std(folds, ddof=1) if len(folds) > 1 else np.nan for folds in one["folds"]]
        shown = {
            "set": one["set"],
            "test rows": [f"{count:,.0f}" for count in one["rows"]],
            "accuracy": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "deviation over folds": numbers(spreads, times=100),
            "C": ["/".join(f"{c:g}" for c in sorted(set(chosen))) for chosen in one["C"]],
        }
        made.append(Table(f"{encoder}, pooler {pooler}", pd.DataFrame(shown)))
    return made
