"""A probe: does a cosine change when meaningless words are appended to one sentence of a pair? (EdaCSE, Table 1.)"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from minbert.encode import Encoder
from tasks import intervals, metrics
from tasks.benchmarks import options, results, sets
from tasks.benchmarks.options import System
from tasks.benchmarks.results import Probed, Results, Table, between, numbers
from tasks.benchmarks.sets import OwnPairs, ScoredSet
from tasks.benchmarks.vectors import Bank, way

ADDED = (" Okay, okay, okay.", " ? ? ? ? ?", " . . .", " What are the", " And so on, and so on, and so on.")
"""What is appended: words and marks of the kinds that EdaCSE's Table 1 shows."""
_PURPOSE = "length bias"  # of the resamples' random numbers
_NOTE = (
    "Appended to each second sentence. Lengths nearer, apart: mean change of the cosine where the lengths in tokens "
    "come closer, or drift apart; a length bias gains in the first and loses in the second."
)


@dataclass(frozen=True)
class Shift:
    """The effect of one addition, by measure: its value, and the resamples of those that have an interval.

    `lengths nearer` is the mean change of the cosine where the addition brings the two lengths (in tokens) closer
    together, `lengths apart` where it drives them apart; a length bias gains in the first and loses in the second.
    """

    added: str
    measures: dict[str, tuple[float, np.ndarray | None]]


def shifts(
    encoder: Encoder, pooler: str, pairs: OwnPairs, added: Sequence[str], *, seed: int, resamples: int, name: str
) -> list[Shift]:
    """Append each addition to every second sentence and compare with the unchanged pairs.

    The number of texts that are cut is printed to standard error under `name`.
    """
    first, second = ([pair[side] for pair in pairs.texts] for side in (0, 1))
    texts = [*first, *second, *(text + more for more in added for text in second)]
    bank, found = Bank.encoded(encoder, texts, {pooler: way(pooler)}, name=name), []

    def lengths(some: Sequence[str]) -> np.ndarray:
        return np.array([len(ids) for ids in encoder.tokenizer.encode(some)])

    before = bank.cosines(pooler, pairs.texts)
    for more in added:
        changed = [text + more for text in second]
        gap = np.abs(lengths(changed) - lengths(first)) - np.abs(lengths(second) - lengths(first))
        both = np.stack([before, bank.cosines(pooler, list(zip(first, changed, strict=True)))])
        found.append(Shift(more, _measures(more, both, gap, pairs.gold, seed, resamples)))
    return found


def _measures(
    added: str, both: np.ndarray, gap: np.ndarray, gold: np.ndarray | None, seed: int, resamples: int
) -> dict[str, tuple[float, np.ndarray | None]]:
    """The measures of one addition from the cosines before and after, [2, pairs], and the change of the length gap."""
    change = both[1] - both[0]
    rho, draws = [math.nan, math.nan], None
    if gold is not None:
        rho = [results.defined(metrics.spearman(side, gold)) for side in both]
        drawn = intervals.bootstrap("Spearman's rho", both, gold, f"{_PURPOSE} {added}", seed=seed, resamples=resamples)
        draws = drawn[1] - drawn[0]
    return {
        "cosine": (float(both[0].mean()), None),
        "cosine then": (float(both[1].mean()), None),
        "change": (float(change.mean()), results.means(change, _PURPOSE, added, seed=seed, resamples=resamples)),
        "lengths nearer": (_mean(change[gap < 0]), None),
        "lengths apart": (_mean(change[gap > 0]), None),
        "spearman": (rho[0], None),
        "spearman then": (rho[1], None),
        "spearman change": (rho[1] - rho[0], draws),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def length(given: argparse.Namespace, loaded: list[options.Loaded], base: ScoredSet | None, out: Path) -> Probed:
    """The shifts of every system on the user's own pairs, or else on STS-B; differences of the cosines' change."""
    if given.pairs is not None:
        pairs = sets.own_pairs(given.pairs, seed=given.seed)
    else:
        assert base is not None
        pairs = OwnPairs(f"{base.shown} test", base.pairs, base.gold, base.skipped)
    found, tables, added = Results(), [], tuple(given.append or ADDED)
    for one in loaded:
        for pooler in one.poolers:
            system, how = System(one.name, pooler), {"seed": given.seed, "resamples": given.resamples}
            for shift in shifts(one.encoder, pooler, pairs, added, name=f"{one.name}, {pairs.name}", **how):
                for measure, (value, draws) in shift.measures.items():
                    found.add(system, measure, repr(shift.added), value, draws, rows=len(pairs.texts))
            title = f"Length bias of {one.name}, {pooler}: {pairs.name}, {len(pairs.texts):,} pairs"
            tables.append(Table(title, _rows(found, system), (_NOTE,)))
    apart = found.differences(options.references(loaded), "change")
    title = f"Change of the cosine, {pairs.name}"
    tables += results.difference_tables(title, apart, digits=3, verdict=False, column="appended")
    about = {"pairs": pairs.name, "count": len(pairs.texts), "skipped": pairs.skipped}
    return Probed(tables, about | results.content(found, apart), [])


def _rows(found: Results, system: System) -> pd.DataFrame:
    frame = {str(measure): rows for measure, rows in found.frame(system=system).groupby("measure")}
    shown = {
        "appended": frame["cosine"]["set"].tolist(),
        "cosine": numbers(frame["cosine"]["value"], 3),
        "cosine then": numbers(frame["cosine then"]["value"], 3),
        "its change, 95%": between(frame["change"], 3, sign=True),
        "lengths nearer": numbers(frame["lengths nearer"]["value"], 3, sign=True),
        "lengths apart": numbers(frame["lengths apart"]["value"], 3, sign=True),
        "ρ × 100": numbers(frame["spearman"]["value"], times=100),
        "ρ then": numbers(frame["spearman then"]["value"], times=100),
        "change of ρ, 95%": between(frame["spearman change"], times=100, sign=True),
    }
    return pd.DataFrame(shown)
