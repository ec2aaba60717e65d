"""The STS suite: cosines against human scores by three protocols with bootstrap intervals, and SICK's contradictions.

Axes: S systems, N pairs of a subset, R resamples.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.token_cache import Row
from minbert.training import start
from tasks import intervals, metrics
from tasks.benchmarks import contamination, figures, results, sets
from tasks.benchmarks.encoders import System
from tasks.benchmarks.options import PROTOCOLS
from tasks.benchmarks.results import SYSTEM, Results, Suite, defined
from tasks.benchmarks.sets import ScoredSet, Subset
from tasks.readers import senteval
from tasks.readers.layouts import NLI_CLASSES
from tasks.tables import Table, between, number, numbers

METRICS = {"spearman": ("Spearman's rho", metrics.spearman), "pearson": ("Pearson's r", metrics.pearson)}
Part = tuple[np.ndarray, np.ndarray]
"""Predicted [N] (or [S, N]) and gold [N] of one subset."""
Cosines = dict[System, dict[str, list[np.ndarray]]]
"""By system and set: the cosines of each subset."""
_EXAMPLES = 5


def _by_protocol(protocol: str, parts: Sequence[Part], statistic: Callable[[np.ndarray, np.ndarray, str], Any]) -> Any:
    """A statistic of (predicted, gold, suffix of the name) over all pairs, or its mean over subsets."""
    if protocol == "all":
        predicted, gold = (np.concatenate([part[side] for part in parts], axis=-1) for side in (0, 1))
        return statistic(predicted, gold, "")
    each = [statistic(predicted, gold, f"/{place}") for place, (predicted, gold) in enumerate(parts)]
    weights = [len(gold) for _, gold in parts] if protocol == "wmean" else None
    return np.average(each, axis=0, weights=weights)


def protocol_score(protocol: str, metric: str, parts: Sequence[Part]) -> float:
    """The correlation of a set by one protocol; NaN where it, or that of a subset that counts, is undefined."""
    return float(_by_protocol(protocol, parts, lambda x, y, _: defined(METRICS[metric][1](x, y))))


def protocol_draws(
    protocol: str, metric: str, parts: Sequence[Part], name: str, *, seed: int, resamples: int
) -> np.ndarray:
    """The same on R resamples of the pairs, equal for all systems: predicted [S, N] a subset to [S, R].

    `all` draws from all pairs of the set, `mean` and `wmean` draw within each subset.
    """

    def drawn(predicted: np.ndarray, gold: np.ndarray, suffix: str) -> np.ndarray:
        how = {"seed": seed, "resamples": resamples}
        return intervals.bootstrap(METRICS[metric][0], predicted, gold, name + suffix, **how)

    return np.asarray(_by_protocol(protocol, parts, drawn))


def measure_similarity(
    scored: Sequence[ScoredSet], cosines: Cosines, protocol: str, *, seed: int, resamples: int
) -> Results:
    """Spearman and Pearson of every system on every set by one protocol, and the bootstrap of Spearman's rho."""
    found = Results()
    for one in scored:
        about = {"protocol": protocol, "rows": len(one.gold), "unscored": one.skipped}
        gold = [part.gold for part in one.subsets]
        stacked = [np.stack(parts) for parts in zip(*(by_set[one.name] for by_set in cosines.values()), strict=True)]
        pooled = list(zip(stacked, gold, strict=True))
        draws = protocol_draws(protocol, "spearman", pooled, one.name, seed=seed, resamples=resamples)
        for place, system in enumerate(cosines):
            parts = [(cosine[place], scores) for cosine, scores in pooled]
            for metric in METRICS:
                drawn = draws[place] if metric == "spearman" else ()
                found.add(system, metric, one.shown, protocol_score(protocol, metric, parts), drawn, **about)
    for metric in METRICS:
        found.add_average(metric, protocol=protocol)
    return found


def run_similarity(given: argparse.Namespace, protocols: list[str]) -> None:
    """Score the encoders on the sets, and write `sts.json`, `sts.md` and the scatters."""
    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets, folder))
    suite = Suite.open(given, folder)
    bank = suite.bank(text for one in scored for pair in one.pairs for text in pair)
    cosines = {
        system: {one.name: [bank.cosines(system, part.pairs) for part in one.subsets] for one in scored}
        for system in suite.systems
    }
    rows, differences = [], []
    for protocol in protocols:
        found = measure_similarity(scored, cosines, protocol, **suite.draw)
        apart = found.differences(suite.pairings, "spearman")
        suite.tables += _tables(found, protocol)
        suite.tables += results.difference_tables(f"Spearman × 100, protocol {protocol}", apart, times=100)
        rows += results.as_json(found.frame())
        differences += results.as_json(apart.assign(protocol=protocol))
    checked = [contamination.check(one.name, one.folder, scored) for one in suite.loaded]
    suite.content = {
        "sets": {one.shown: {"pairs": len(one.gold), "skipped": one.skipped, "file": one.file} for one in scored},
        "results": rows,
        "differences": differences,
        "contamination": [contamination.as_json(one) for one in checked],
        "sick": None,
    }
    _draw_scatters(suite, scored, cosines, folder)
    suite.tables += [contamination.table(one) for one in checked]
    suite.write("Semantic textual similarity")


def _tables(found: Results, protocol: str) -> list[Table]:
    """Spearman and Pearson side by side for all systems, then each system by set with its interval."""
    note = f"Protocol {protocol}: {PROTOCOLS[protocol]}."
    made = []
    for metric, (name, _) in METRICS.items():
        rows = results.wide(found.frame(metric), "set", times=100)
        made.append(Table(f"{name} × 100, protocol {protocol}", rows, (note,), left=2))
    for (encoder, pooler), one in found.frame("spearman").groupby(SYSTEM, sort=False):
        counts = [["" if pd.isna(count) else f"{count:,.0f}" for count in one[name]] for name in ("rows", "unscored")]
        shown = {
            "set": one["set"],
            "pairs": counts[0],
            "unscored": counts[1],
            "Spearman × 100": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "Pearson × 100": numbers(found.frame("pearson", System(encoder, pooler))["value"], times=100),
        }
        made.append(Table(f"{encoder}, pooler {pooler}, protocol {protocol}", pd.DataFrame(shown)))
    return made


def _draw_scatters(suite: Suite, scored: Sequence[ScoredSet], cosines: Cosines, data: Path) -> None:
    """Draw STS-B and SICK if they are among the sets; SICK also by relation, with its tables and JSON fields."""
    for one in scored:
        if one.name not in ("STS-B", "SICK", "zh-STS-B"):
            continue
        shown = {system.name: np.concatenate(parts[one.name]) for system, parts in cosines.items()}
        title, scale = f"{one.shown} test, {len(one.gold):,} pairs", (1.0 if one.name == "SICK" else 0.0, 5.0)
        divisor = 5.0 if one.name == "SICK" else 1.0  # as SelfCCL, Figure 4
        suite.figures.append(suite.out / f"sts-{one.name.lower()}-scatter")
        figures.scatter(suite.figures[-1], title, one.gold, shown, scale=scale, divisor=divisor)
        if one.name == "SICK":
            relations = sick_relations(data, one.subsets[0])
            suite.figures.append(suite.out / "sts-sick-relations")
            heading = f"{title}, by relation"
            figures.scatter(suite.figures[-1], heading, one.gold, shown, relations, scale=scale, divisor=divisor)
            suite.content["sick"] = summary = sick_summary(one.subsets[0], relations, shown)
            suite.tables += _sick_tables(summary)


def sick_relations(folder: Path, sick: Subset) -> np.ndarray:
    """The relation of each pair of SICK's test split: int64 [pairs], as `NLI_CLASSES`."""
    rows = senteval.classification(folder, "SICK-E")["test"]
    known = {row.id: int(row.label) for row in rows if isinstance(row, Row)}
    return np.array([known[name] for name in sick.ids], dtype=np.int64)


def sick_summary(sick: Subset, relations: np.ndarray, cosines: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Mean human score and cosine by relation, and the contradictions that people score as most related.

    SelfCCL, section 5.6; ties stay in file order.
    """
    frame = pd.DataFrame({"human": sick.gold, **cosines})
    groups = {name: frame[relations == place] for place, name in enumerate(NLI_CLASSES)}

    def numbers_of(row: pd.Series) -> dict[str, Any]:
        return {"human": row["human"], "cosine": row.drop("human").to_dict()}

    top = groups["contradiction"].sort_values("human", ascending=False, kind="stable")[:_EXAMPLES]
    return {
        "relations": {
            name: {"pairs": len(rows), **numbers_of(rows.mean())} for name, rows in groups.items() if len(rows)
        },
        "examples": [{"texts": list(sick.pairs[place]), **numbers_of(row)} for place, row in top.iterrows()],
    }


def _sick_tables(found: dict[str, Any]) -> list[Table]:
    """One table of means by relation, and one of the examples (SelfCCL, Table 6)."""

    def cosines(one: dict[str, Any]) -> dict[str, str]:
        return {f"cosine ({name})": number(value) for name, value in one["cosine"].items()}

    means = [
        {"relation": name, "pairs": f"{group['pairs']:,}", "human score": number(group["human"]), **cosines(group)}
        for name, group in found["relations"].items()
    ]
    rows = [
        {"sentence 1": one["texts"][0], "sentence 2": one["texts"][1], "human": number(one["human"], 1), **cosines(one)}
        for one in found["examples"]
    ]
    note = "Human scores from 1 to 5; cosines from −1 to 1."
    return [
        Table("SICK test by relation", pd.DataFrame(means), (note,)),
        Table("SICK's most related contradictions", pd.DataFrame(rows), left=2),
    ]
