"""One number for a set of several subsets: the three protocols in use, and their bootstrap.

Axes: S systems, N pairs of a subset, R resamples.
"""

from collections.abc import Sequence

import numpy as np

from tasks import intervals, metrics

METRICS = {"spearman": metrics.spearman, "pearson": metrics.pearson}
LONG = {"spearman": "Spearman's rho", "pearson": "Pearson's r"}
Part = tuple[np.ndarray, np.ndarray]
"""Predicted [N] (or [S, N]) and gold [N] of one subset."""


def score(protocol: str, metric: str, parts: Sequence[Part]) -> float | None:
    """The correlation of a set by one protocol; None where it, or that of a subset that counts, is undefined."""
    function = METRICS[metric]
    if protocol == "all":
        return function(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))
    found = [function(predicted, gold) for predicted, gold in parts]
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        return None
    return float(np.average(known, weights=_weights(protocol, parts)))


def _weights(protocol: str, parts: Sequence[Part]) -> list[float]:
    return [float(len(gold)) if protocol == "wmean" else 1.0 for _, gold in parts]


def draws(protocol: str, metric: str, parts: Sequence[Part], name: str, *, seed: int, resamples: int) -> np.ndarray:
    """The same on R resamples of the pairs, equal for all systems: predicted [S, N] a subset to [S, R].

    `all` draws from all pairs of the set, `mean` and `wmean` draw within each subset.
    """
    long = LONG[metric]
    if protocol == "all":
        predicted = np.concatenate([part[0] for part in parts], axis=1)
        gold = np.concatenate([part[1] for part in parts])
        return intervals.bootstrap(long, predicted, gold, name, seed=seed, resamples=resamples)
    each = [
        intervals.bootstrap(long, predicted, gold, f"{name}/{place}", seed=seed, resamples=resamples)
        for place, (predicted, gold) in enumerate(parts)
    ]
    return np.average(each, axis=0, weights=_weights(protocol, parts))


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean over sets, the column "avg."; None where one is undefined."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
