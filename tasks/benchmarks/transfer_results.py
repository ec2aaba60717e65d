"""The transfer suite's accuracies with intervals, differences between encoders, and their tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks import intervals
from tasks.benchmarks.classifiers import Outcome
from tasks.benchmarks.options import System
from tasks.benchmarks.tables import Table, as_list, between, number
from tasks.intervals import Difference, interval

AVERAGE = "avg."
Found = Mapping[System, Mapping[str, Outcome]]
"""By system and task."""
Drawn = Mapping[str, Mapping[System, np.ndarray]]
"""By task and system: accuracy on each resample; empty without resamples."""


def draws(found: Found, name: str, *, seed: int, resamples: int) -> dict[System, np.ndarray]:
    """Accuracy over resampled test rows, the same rows for every system."""
    predicted = np.stack([outcomes[name].predicted for outcomes in found.values()])
    gold = next(iter(found.values()))[name].gold
    every = intervals.bootstrap("accuracy", predicted, gold, name, seed=seed, resamples=resamples)
    return dict(zip(found, every, strict=True))


def tables(found: Found, drawn: Drawn, folds: int) -> list[Table]:
    """All systems side by side, then each by set with its interval, its spread over folds and the C it chose."""
    names = list(next(iter(found.values())))
    more = [AVERAGE] if len(names) > 1 else []
    rows = []
    for system, outcomes in found.items():
        values = [outcomes[name].accuracy for name in names]
        average = [number(float(np.mean(values)), times=100)] if more else []
        rows.append((system.encoder, system.pooler, *(number(value, times=100) for value in values), *average))
    note = (
        f"MR, CR, SUBJ, MPQA: {folds}-fold cross-validation, C chosen inside each fold. TREC, MRPC: C chosen by "
        f"{folds} folds of the training rows, fixed test. SST2: C chosen on dev, fixed test. The classifier is "
        "scikit-learn's logistic regression."
    )
    made = [Table("Transfer, accuracy × 100", ("encoder", "pooler", *names, *more), tuple(rows), (note,), left=2)]
    for system, outcomes in found.items() if drawn else ():
        details = []
        for name in names:
            one = outcomes[name]
            spread = number(float(np.std(one.folds, ddof=1)), times=100) if len(one.folds) > 1 else "–"
            grid = "/".join(f"{c:g}" for c in dict.fromkeys(sorted(one.chosen)))
            around = between(interval(drawn[name][system]), times=100)
            details.append((name, f"{len(one.gold):,}", number(one.accuracy, times=100), around, spread, grid))
        head = ("set", "test rows", "accuracy", "95% interval", "deviation over folds", "C")
        made.append(Table(f"{system.encoder}, pooler {system.pooler}", head, tuple(details)))
    return made


def _differences(found: Found, drawn: Drawn, first: System, other: System) -> list[Difference]:
    """A `Difference` for each task and for the mean, from the same resampled rows."""
    rows, gaps = [], []
    for name, one in found[first].items():
        two = found[other][name]
        gap = drawn[name][other] - drawn[name][first] if drawn else None
        gaps += [gap] if gap is not None else []
        right, also = one.predicted == one.gold, two.predicted == two.gold
        only = (int((right & ~also).sum()), int((also & ~right).sum()))
        around = interval(gap) if gap is not None else None
        rows.append(
            Difference(name, "accuracy", one.accuracy, two.accuracy, around, len(one.gold), *only, "no interval")
        )
    if len(rows) > 1:
        before, after = (float(np.mean([one.accuracy for one in found[system].values()])) for system in (first, other))
        around = interval(np.mean(gaps, axis=0)) if gaps else None
        rows.append(Difference(AVERAGE, "accuracy", before, after, around, why="no interval"))
    return rows


def difference_tables(found: Found, drawn: Drawn, pairs: Sequence[tuple[System, System]]) -> list[Table]:
    """A table for each pair of systems."""
    made = []
    for first, other in pairs:
        rows = [
            (row.name, number(row.first, times=100), number(row.second, times=100),
             number(row.value, times=100, sign=True), between(row.around, times=100, sign=True), row.verdict)
            for row in _differences(found, drawn, first, other)
        ]  # fmt: skip
        head = ("set", "first", "second", "difference", "95% interval, paired", "the second is")
        title = f"Accuracy × 100: {other.name} (second) less {first.name} (first)"
        made.append(Table(title, head, tuple(rows)))
    return made


def as_json(found: Found, drawn: Drawn) -> list[dict[str, Any]]:
    """Every system's numbers as JSON holds them: accuracies from 0 to 1."""
    return [
        {
            "encoder": system.encoder, "pooler": system.pooler,
            "sets": {
                name: {"accuracy": one.accuracy, "dev_accuracy": one.dev, "folds": list(one.folds),
                       "C": list(one.chosen),
                       "interval": as_list(interval(drawn[name][system])) if drawn else None}
                for name, one in outcomes.items()
            },
        }
        for system, outcomes in found.items()
    ]  # fmt: skip


def differences_as_json(found: Found, drawn: Drawn, pairs: Sequence[tuple[System, System]]) -> list[dict[str, Any]]:
    """Comparisons as JSON holds them."""
    return [
        {
            "first": first.name, "second": other.name,
            "sets": {row.name: {"difference": row.value, "interval": as_list(row.around), "verdict": row.verdict}
                     for row in _differences(found, drawn, first, other)},
        }
        for first, other in pairs
    ]  # fmt: skip
