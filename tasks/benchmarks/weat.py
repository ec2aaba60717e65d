"""The word embedding association test (Caliskan et al. 2017), which CBCL (section 8) proposes after training.

Axes: X, Y target words of equal number, A, B attribute words, D hidden.
"""

from pathlib import Path

import numpy as np
from scipy import stats

from minbert.files import read_toml
from minbert.seeds import numpy_generator

PARTITIONS = 20_000  # all partitions are tried where there are at most this many; otherwise a sample of this many


def word_sets() -> dict[str, list[list[str]]]:
    """The published tests by name: target words X and Y, attribute words A and B."""
    data = read_toml(Path(__file__).with_name("weat.toml"))
    tests = {}
    for name, parts in data["tests"].items():
        tests[name] = [data["words"][part].split() for part in parts]
    return tests


def associations(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """s(w, A, B): mean cosine to A less mean cosine to B, for each word of unit vectors [X, D]."""
    return (x @ a.T).mean(1) - (x @ b.T).mean(1)


def association_test(
    x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, *, seed: int = 0, name: str = ""
) -> tuple[float, float]:
    """Effect size and one-sided p of unit vectors; both NaN if all associations are equal.

    Effect size: difference of the mean associations of X and Y over the standard deviation (n - 1) of all. p is the
    share of partitions of X and Y into equal halves whose difference is at least as large.
    """
    sides = associations(x, a, b), associations(y, a, b)
    deviation = float(np.concatenate(sides).std(ddof=1))
    if deviation < 1e-12:
        return np.nan, np.nan
    test = stats.permutation_test(
        sides,
        lambda first, second, axis: first.mean(axis) - second.mean(axis),
        vectorized=True,
        n_resamples=PARTITIONS,
        alternative="greater",
        rng=numpy_generator(seed, "weat", name),
    )
    return float(test.statistic) / deviation, float(test.pvalue)
