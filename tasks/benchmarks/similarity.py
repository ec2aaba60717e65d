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
from tasks.benchmarks import contamination, figures, options, results, sets
from tasks.benchmarks.figures import Kind
from tasks.benchmarks.options import Loaded, System
from tasks.benchmarks.results import Results, Table, between, defined, number, numbers
from tasks.benchmarks.sets import ScoredSet, Subset
from tasks.benchmarks.vectors import Bank
from tasks.charts import BLUE, GREY, VERMILION
from tasks.readers import senteval
from tasks.readers.rows import NLI_CLASSES

METRICS = {"spearman": ("Spearman's rho", metrics.spearman), "pearson": ("Pearson's r", metrics.pearson)}
Part = tuple[np.ndarray, np.ndarray]
"""Predicted [N] (or [S, N]) and gold [N] of one subset."""
Cosines = dict[System, dict[str, list[np.ndarray]]]
"""By system and set: the cosines of each subset."""
_RELATIONS = ((0, "entailment", BLUE, "o"), (1, "neutral", GREY, "^"), (2, "contradiction", VERMILION, "s"))
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
        how = {"seed": seed, "resamples": resamples}
        draws = protocol_draws(protocol, "spearman", list(zip(stacked, gold, strict=True)), one.name, **how)
        for place, (system, by_set) in enumerate(cosines.items()):
            for metric in METRICS:
                value = protocol_score(protocol, metric, list(zip(by_set[one.name], gold, strict=True)))
                found.add(system, metric, one.shown, value, draws[place] if metric == "spearman" else None, **about)
    for metric in METRICS:
        found.add_average(metric, protocol=protocol)
    return found


def run_similarity(given: argparse.Namespace, protocols: list[str], words: list[str]) -> None:
    """Score the encoders on the sets, and write `sts.json`, `sts.md` and the scatters."""
    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets, folder))
    loaded = options.load(given)
    cosines = _cosines(loaded, scored)
    tables, rows, differences = [], [], []
    for protocol in protocols:
        found = measure_similarity(scored, cosines, protocol, seed=given.seed, resamples=given.resamples)
        apart = found.differences(options.references(loaded), "spearman")
        tables += _tables(found, protocol, intervals=given.resamples > 0)
        tables += results.difference_tables(f"Spearman × 100, protocol {protocol}", apart, times=100)
        rows += results.as_json(found.frame())
        differences += results.as_json(apart.assign(protocol=protocol))
    checked = [contamination.check(one.name, one.folder, scored) for one in loaded]
    out = options.out_folder(given, loaded)
    paths, relations = _scatters(out, scored, cosines, folder)
    sick = next((sick_summary(one.subsets[0], relations, cosines) for one in scored if one.name == "SICK"), None)
    content = {
        **options.account("sts_suite", words, given, loaded, folder),
        "sets": {one.shown: {"pairs": len(one.gold), "skipped": one.skipped, "file": one.file} for one in scored},
        "results": rows,
        "differences": differences,
        "contamination": [contamination.as_json(one) for one in checked],
        "sick": sick,
    }
    tables += [] if sick is None else _sick_tables(sick, list(cosines))
    tables += [contamination.table(one) for one in checked]
    results.write_results(out, "sts", "Semantic textual similarity", tables, content, paths)


def _cosines(loaded: list[Loaded], scored: Sequence[ScoredSet]) -> Cosines:
    bank = Bank.of(loaded, (text for one in scored for pair in one.pairs for text in pair))
    return {
        system: {one.name: [bank.cosines(system, part.pairs) for part in one.subsets] for one in scored}
        for system in options.systems(loaded)
    }


def _tables(found: Results, protocol: str, *, intervals: bool) -> list[Table]:
    """Spearman and Pearson side by side for all systems, then each system by set with its interval."""
    note = f"Protocol {protocol}: {options.PROTOCOLS[protocol]}."
    made = []
    for metric, (name, _) in METRICS.items():
        rows = results.wide(found.frame(metric), ("encoder", "pooler"), "set", lambda value: number(value, times=100))
        made.append(Table(f"{name} × 100, protocol {protocol}", rows, (note,), left=2))
    frame = found.frame("spearman")
    for key, one in frame.groupby(["encoder", "pooler"], sort=False) if intervals else ():
        system = System(*key)
        counts = [["" if pd.isna(count) else f"{count:,.0f}" for count in one[name]] for name in ("rows", "unscored")]
        shown = {
            "set": one["set"],
            "pairs": counts[0],
            "unscored": counts[1],
            "Spearman × 100": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "Pearson × 100": numbers(found.frame("pearson", system)["value"], times=100),
        }
        title = f"{system.encoder}, pooler {system.pooler}, protocol {protocol}"
        made.append(Table(title, pd.DataFrame(shown)))
    return made


def _scatters(out: Path, scored: Sequence[ScoredSet], cosines: Cosines, data: Path) -> tuple[list[Path], np.ndarray]:
    """Draw STS-B and SICK if they are among the sets, SICK by relation too; the paths, and SICK's relations."""
    paths, relations = [], np.empty(0, dtype=np.int64)
    for one in scored:
        if one.name not in ("STS-B", "SICK", "zh-STS-B"):
            continue
        shown = {system.name: np.concatenate(parts[one.name]) for system, parts in cosines.items()}
        rho = {name: metrics.spearman(array, one.gold) for name, array in shown.items()}
        title, scale = f"{one.shown} test, {len(one.gold):,} pairs", (1.0 if one.name == "SICK" else 0.0, 5.0)
        paths.append(out / f"sts-{one.name.lower()}-scatter")
        figures.scatter(paths[-1], title, one.gold, shown, rho, scale=scale)
        if one.name == "SICK":
            relations = sick_relations(data, one.subsets[0])
            paths.append(out / "sts-sick-relations")
            kinds = relation_kinds(relations)
            figures.scatter(paths[-1], f"{title}, by relation", one.gold, shown, rho, kinds, scale=scale)
    return paths, relations


def sick_relations(folder: Path, sick: Subset) -> np.ndarray:
    """The relation of each pair of SICK's test split: int64 [pairs], as `NLI_CLASSES`."""
    rows = senteval.classification(folder, "SICK-E")["test"]
    known = {row.id: int(row.label) for row in rows if isinstance(row, Row)}
    return np.array([known[name] for name in sick.ids], dtype=np.int64)


def relation_kinds(relations: np.ndarray) -> list[Kind]:
    """The groups of a scatter by relation; the largest group is drawn first, so that it hides no other."""
    found = [Kind(name, colour, mark, np.flatnonzero(relations == place)) for place, name, colour, mark in _RELATIONS]
    return sorted((kind for kind in found if len(kind.rows)), key=lambda kind: -len(kind.rows))


def sick_summary(sick: Subset, relations: np.ndarray, cosines: Mapping[System, Any]) -> dict[str, Any]:
    """Mean human score and cosine by relation, and the contradictions that people score as most related.

    SelfCCL, section 5.6; ties stay in file order.
    """
    values = {system.name: by_set["SICK"][0] for system, by_set in cosines.items()}
    groups = {}
    for place, name in enumerate(NLI_CLASSES):
        rows = relations == place
        if rows.any():
            means = {system: float(array[rows].mean()) for system, array in values.items()}
            groups[name] = {"pairs": int(rows.sum()), "human": float(sick.gold[rows].mean()), "cosine": means}
    contradictions = np.flatnonzero(relations == NLI_CLASSES.index("contradiction"))
    order = contradictions[np.argsort(-sick.gold[contradictions], kind="stable")][:_EXAMPLES]
    examples = [
        {
            "texts": list(sick.pairs[row]),
            "human": float(sick.gold[row]),
            "cosine": {system: float(array[row]) for system, array in values.items()},
        }
        for row in order.tolist()
    ]
    return {"relations": groups, "examples": examples}


def _sick_tables(found: dict[str, Any], systems: list[System]) -> list[Table]:
    """One table of means by relation, and one of the examples (SelfCCL, Table 6)."""

    def cosines(one: dict[str, Any]) -> dict[str, str]:
        return {f"cosine ({system.name})": number(one["cosine"][system.name]) for system in systems}

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
