"""A probe: the word embedding association test (Caliskan et al. 2017), each word encoded as a sentence of its own.

CBCL (section 8) proposes it as a check after contrastive training. Axes: X, Y target words of equal number, A, B
attribute words, D hidden.
"""

import argparse
import tomllib
from dataclasses import dataclass
from importlib import resources
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd

from minbert.encode import Encoder
from minbert.seeds import numpy_generator
from tasks.benchmarks import figures, results
from tasks.benchmarks.options import Loaded, System
from tasks.benchmarks.results import Probed, Table, number, numbers
from tasks.benchmarks.vectors import Bank, way
from tasks.contrastive.validation import unit

EXACT = 20_000  # all partitions are tried where there are at most this many; otherwise this many are drawn
_NOTE = (
    "d: effect size in standard deviations; above 0 the first targets are closer to the first attributes. p: "
    "one-sided, by permutation, not corrected for ten tests. Words are encoded as sentences of one word."
)


def word_sets() -> dict[str, tuple[list[str], ...]]:
    """The published tests by name: target words X and Y, attribute words A and B."""
    data = tomllib.loads(resources.files("tasks.benchmarks").joinpath("weat.toml").read_text(encoding="utf-8"))
    return {test["name"]: tuple(data["words"][test[part]].split() for part in "xyab") for test in data["tests"]}


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


def run_tests(encoder: Encoder, pooler: str, *, seed: int = 0, name: str) -> dict[str, Association]:
    """All published tests with one encoder; `name` is that of `vectors.encode`."""
    tests = word_sets()
    words = (word for sets in tests.values() for part in sets for word in part)
    bank = Bank.encoded(encoder, words, {pooler: way(pooler)}, name=name)
    return {
        one: association_test(*(unit(bank.of_texts(pooler, part)) for part in sets), seed=seed, name=one)
        for one, sets in tests.items()
    }


def weat(given: argparse.Namespace, loaded: list[Loaded], base: object, out: Path) -> Probed:
    """Effect sizes and p values of every system, in a table and a figure."""
    found = results.Results()
    for one in loaded:
        for pooler in one.poolers:
            for name, test in run_tests(one.encoder, pooler, seed=given.seed, name=one.name).items():
                found.add(System(one.name, pooler), "effect", name, test.effect, p=test.p)
    frame = found.frame()
    names, sizes = frame["set"].unique().tolist(), {}
    columns = {"test": names}
    for (encoder, pooler), rows in frame.groupby(["encoder", "pooler"], sort=False):
        columns[f"d ({encoder}, {pooler})"] = numbers(rows["value"], sign=True)
        columns[f"p ({encoder}, {pooler})"] = ["< 0.0001" if p < 1e-4 else number(p, 4) for p in rows["p"]]
        sizes[f"{encoder}, {pooler}"] = rows["value"].tolist()
    figures.associations(out / "probes-weat", names, sizes)
    table = Table("Word embedding association tests (Caliskan et al. 2017)", pd.DataFrame(columns), (_NOTE,))
    return Probed([table], results.content(found), [out / "probes-weat"])
