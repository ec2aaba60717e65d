"""A probe: the word embedding association test (Caliskan et al. 2017), each word encoded as a sentence of its own.

CBCL (section 8) proposes it as a check after contrastive training. Axes: X, Y target words of equal number, A, B
attribute words, D hidden.
"""

import tomllib
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.seeds import numpy_generator
from tasks.benchmarks import results
from tasks.benchmarks.results import Results, Suite, defined
from tasks.tables import Table, number, numbers

EXACT = 20_000  # all partitions are tried where there are at most this many; otherwise this many are drawn
_NOTE = (
    "d: effect size in standard deviations; above 0 the first targets are closer to the first attributes. p: "
    "one-sided, by permutation, not corrected for ten tests. Words are encoded as sentences of one word."
)


def word_sets() -> dict[str, tuple[list[str], ...]]:
    """The published tests by name: target words X and Y, attribute words A and B."""
    data = tomllib.loads(Path(__file__).with_name("weat.toml").read_text(encoding="utf-8"))
    return {name: tuple(data["words"][part].split() for part in parts) for name, parts in data["tests"].items()}


@dataclass(frozen=True)
class Association:
    """A test's effect size in standard deviations, -2 to 2, and its one-sided p; None if all associations are equal."""

    effect: float | None
    p: float | None


def associations(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """s(w, A, B): mean cosine to A less mean cosine to B, for each word of unit vectors [X, D]."""
    return (x @ a.T).mean(1) - (x @ b.T).mean(1)


def association_test(
    x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, *, seed: int = 0, name: str = ""
) -> Association:
    """Effect size: difference of the mean associations of X and Y over the standard deviation (n - 1) of all.

    p is the share of partitions of X and Y into equal halves whose difference is at least as large: over all of them
    if there are at most 20,000, else over 20,000 drawn by the seed, the given one among them.
    """
    s = np.concatenate([associations(x, a, b), associations(y, a, b)])
    half, spread = len(x), float(s.std(ddof=1))
    if spread < 1e-12:
        return Association(None, None)
    effect = float((s[:half].mean() - s[half:].mean()) / spread)
    return Association(effect, _p(s, half, seed, name))


def _p(s: np.ndarray, half: int, seed: int, name: str) -> float:
    observed = s[:half].sum() - 1e-12
    if comb(len(s), half) <= EXACT:
        sums = np.array([s[list(chosen)].sum() for chosen in combinations(range(len(s)), half)])
        return float((sums >= observed).mean())
    order = np.argsort(numpy_generator(seed, "weat", name).random((EXACT, len(s))), axis=1)
    sums = s[order[:, :half]].sum(1)
    return float((1 + (sums >= observed).sum()) / (1 + EXACT))


def weat(suite: Suite, _: object) -> dict[str, Any]:
    """Effect sizes and p values of every system."""
    tests, found = word_sets(), Results()
    bank = suite.bank(word for parts in tests.values() for words in parts for word in words)
    shown: dict[str, list[str]] = {"test": list(tests)}
    for system in suite.systems:
        for name, parts in tests.items():
            one = association_test(*(bank.unit(system, part) for part in parts), seed=suite.given.seed, name=name)
            found.add(system, "effect", name, one.effect, p=defined(one.p))
        rows = found.frame("effect", system)
        shown[f"d ({system.name})"] = numbers(rows["value"], sign=True)
        shown[f"p ({system.name})"] = ["< 0.0001" if p < 1e-4 else number(p, 4) for p in rows["p"]]
    title = "Word embedding association tests (Caliskan et al. 2017)"
    suite.tables.append(Table(title, pd.DataFrame(shown), (_NOTE,)))
    return results.content(found)
