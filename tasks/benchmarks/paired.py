"""Differences between two systems in a mean over the same pairs, with paired bootstrap intervals.

Axes: S systems, N pairs, R resamples.
"""

from typing import Any

import numpy as np

from minbert.seeds import numpy_generator
from tasks.benchmarks.options import System
from tasks.benchmarks.tables import Table, as_list, between, number
from tasks.intervals import Difference, interval

Found = dict[tuple[System, System], list[Difference]]
"""By (first, other): the other's numbers less the first's."""


def means(values: np.ndarray, purpose: str, name: str, *, seed: int, resamples: int) -> np.ndarray:
    """Means over resampled pairs, [..., N] to [..., R]: the same pairs for every system.

    Resample number i draws N pairs with replacement by the counter (seed, purpose, name, i).
    """
    count = values.shape[-1]
    drawn = [
        values[..., numpy_generator(seed, purpose, name, place).integers(count, size=count)].mean(-1)
        for place in range(resamples)
    ]
    return np.stack(drawn, axis=-1) if drawn else np.empty((*values.shape[:-1], 0))


def difference(
    name: str, first: np.ndarray, second: np.ndarray, purpose: str, *, seed: int, resamples: int
) -> Difference:
    """The mean of `second` less that of `first`, numbers of the same N pairs; undefined without pairs."""
    if not len(first):
        return Difference(name, purpose, None, None, None)
    draws = means(second - first, purpose, name, seed=seed, resamples=resamples)
    return Difference(name, purpose, float(first.mean()), float(second.mean()), interval(draws), len(first))


def tables(what: str, found: Found, column: str) -> list[Table]:
    """A table for each two systems, a row for each difference under the head `column`."""
    head = (column, "pairs", "first", "second", "difference", "95% interval, paired")
    return [
        Table(f"{what}: {other.name} (second) less {first.name} (first)", head, tuple(map(_cells, rows)))
        for (first, other), rows in found.items()
    ]


def _cells(row: Difference) -> tuple[str, ...]:
    values = (number(row.first, 3), number(row.second, 3), number(row.value, 3, sign=True))
    return (row.name, f"{row.rows:,}", *values, between(row.around, 3, sign=True))


def as_json(found: Found) -> list[dict[str, Any]]:
    """Differences as JSON holds them."""
    return [
        {"first": first.name, "second": other.name, "means": [_object(row) for row in rows]}
        for (first, other), rows in found.items()
    ]


def _object(row: Difference) -> dict[str, Any]:
    return {"name": row.name, "difference": row.value, "interval": as_list(row.around), "pairs": row.rows}
