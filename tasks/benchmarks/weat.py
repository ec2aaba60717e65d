"""A probe: the word embedding association test (Caliskan et al. 2017), each word encoded as a sentence of its own.

CBCL (section 8) proposes it as a check after contrastive training. Axes: X, Y target words of equal number, A, B
attribute words, D hidden.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from minbert.files import read_toml
from minbert.seeds import numpy_generator
from tasks.benchmarks import results
from tasks.benchmarks.results import Results, Suite
from tasks.tables import Table, number, numbers

PARTITIONS = 20_000  # all partitions are tried where there are at most this many; otherwise a sample of this many
_NOTE = (
    "d: effect size in standard deviations; above 0 the first targets are closer to the first attributes. p: "
    "one-sided, by permutation, not corrected for ten tests. Words are encoded as sentences of one word."
)


def word_sets() -> dict[str, tuple[list[str], ...]]:
    """The published tests by name: target words X and Y, attribute words A and B."""
    data = read_toml(Path(__file__).with_name("weat.toml"))
    return {name: tuple(data["words"][part].split() for part in parts) for name, parts in data["tests"].items()}


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
    spread = float(np.concatenate(sides).std(ddof=1))
    if spread < 1e-12:
        return np.nan, np.nan
    test = stats.permutation_test(
        sides,
        lambda one, two, axis: one.mean(axis) - two.mean(axis),
        vectorized=True,
        n_resamples=PARTITIONS,
        alternative="greater",
        rng=numpy_generator(seed, "weat", name),
    )
    return float(test.statistic) / spread, float(test.pvalue)


def weat(suite: Suite, _: object) -> dict[str, Any]:
    """Effect sizes and p values of every system."""
    tests, scores = word_sets(), Results()
    bank = suite.bank(word for parts in tests.values() for words in parts for word in words)
    shown: dict[str, list[str]] = {"test": list(tests)}
    for system in suite.systems:
        for name, parts in tests.items():
            vectors = (bank.unit(system, part) for part in parts)
            effect, p = association_test(*vectors, seed=suite.options.seed, name=name)
            scores.add(system, "effect", name, effect, p=p)
        rows = scores.frame("effect", system)
        shown[f"d ({system.name})"] = numbers(rows["value"], sign=True)
        shown[f"p ({system.name})"] = ["< 0.0001" if p < 1e-4 else number(p, 4) for p in rows["p"]]
    title = "Word embedding association tests (Caliskan et al. 2017)"
    suite.tables.append(Table(title, pd.DataFrame(shown), (_NOTE,)))
    return results.content(scores)
