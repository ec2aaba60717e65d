"""The STS suite: cosines against human scores by three protocols with bootstrap intervals, and SICK by relation.

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
from tasks.benchmarks import figures, results, sets
from tasks.benchmarks.encoders import Bank, System
from tasks.benchmarks.options import PROTOCOLS
from tasks.benchmarks.results import SYSTEM, Results, Suite, defined
from tasks.benchmarks.sets import ScoredSet, Subset
from tasks.contrastive.evaluation import unit
from tasks.readers import senteval
from tasks.readers.layouts import NLI_CLASSES
from tasks.tables import Table, between, number, numbers, wide

METRICS = {"spearman": ("Spearman's rho", metrics.spearman), "pearson": ("Pearson's r", metrics.pearson)}
Part = tuple[np.ndarray, np.ndarray]
"""Predicted [N] (or [S, N]) and gold [N] of one subset."""
Cosines = dict[System, dict[str, list[np.ndarray]]]
"""By system and set: the cosines of each subset."""
EXAMPLES = ("4489", "8301", "8850", "7965", "8011")
"""The ids of the five contradictions of SelfCCL's Table 6, in its order."""
WHITENED = (
    "Whitened: fitted on the sentences of the set's own scored pairs, without their scores (Su et al. 2021, target)."
)


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

    def resampled(predicted: np.ndarray, gold: np.ndarray, suffix: str) -> np.ndarray:
        sizes = {"seed": seed, "resamples": resamples}
        return intervals.bootstrap(METRICS[metric][0], predicted, gold, name + suffix, **sizes)

    return np.asarray(_by_protocol(protocol, parts, resampled))


def measure_similarity(
    scored: Sequence[ScoredSet], cosines: Cosines, protocol: str, *, seed: int, resamples: int
) -> Results:
    """Spearman and Pearson of every system on every set by one protocol, and the bootstrap of Spearman's rho."""
    results = Results()
    for one in scored:
        more = {"protocol": protocol, "rows": len(one.gold), "unscored": one.skipped}
        gold = [part.gold for part in one.subsets]
        stacked = [np.stack(parts) for parts in zip(*(by_set[one.name] for by_set in cosines.values()), strict=True)]
        pooled = list(zip(stacked, gold, strict=True))
        draws = protocol_draws(protocol, "spearman", pooled, one.name, seed=seed, resamples=resamples)
        for row, system in enumerate(cosines):
            parts = [(cosine[row], scores) for cosine, scores in pooled]
            for metric in METRICS:
                own = draws[row] if metric == "spearman" else ()
                results.add(system, metric, one.shown, protocol_score(protocol, metric, parts), own, **more)
    for metric in METRICS:
        results.add_average(metric, protocol=protocol)
    return results


def whitening(vectors: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean [D] and matrix [D, size] of BERT-whitening, fitted on N vectors: (x - mean) @ matrix has the identity as
    its covariance (Su et al. 2021, section 3)."""
    mean = vectors.mean(0)
    u, variances, _ = np.linalg.svd(np.cov(vectors - mean, rowvar=False, bias=True))
    return mean, (u / np.sqrt(np.maximum(variances, 1e-12)))[:, :size]


def whitened_cosines(bank: Bank, system: System, one: ScoredSet, size: int) -> list[np.ndarray]:
    """The cosines of each subset after whitening that is fitted on the distinct sentences of the set's own pairs."""
    texts = list(dict.fromkeys(text for pair in one.pairs for text in pair))
    mean, matrix = whitening(bank.raw(system, texts).astype(np.float64), size)
    vectors = dict(zip(texts, unit((bank.raw(system, texts) - mean) @ matrix), strict=True))
    return [np.array([vectors[first] @ vectors[second] for first, second in part.pairs]) for part in one.subsets]


def run_similarity(given: argparse.Namespace, protocols: list[str]) -> None:
    """Score the encoders on the sets, and write `sts.json`, `sts.md` and the scatters."""
    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets, folder))
    suite = Suite.open(given, folder)
    bank = suite.bank(text for one in scored for pair in one.pairs for text in pair)
    cosines: Cosines = {}
    for system in suite.systems:
        cosines[system] = {one.name: [bank.cosines(system, part.pairs) for part in one.subsets] for one in scored}
        if given.whiten:
            white = System(system.encoder, f"{system.pooler}, whitened {given.whiten}")
            cosines[white] = {one.name: whitened_cosines(bank, system, one, given.whiten) for one in scored}
    rows, differences = [], []
    for protocol in protocols:
        scores = measure_similarity(scored, cosines, protocol, **suite.draw)
        compared = scores.differences(suite.pairings, "spearman")
        suite.tables += _tables(scores, protocol, given.whiten)
        suite.tables += results.difference_tables(f"Spearman × 100, protocol {protocol}", compared, times=100)
        rows += results.as_json(scores.frame())
        differences += results.as_json(compared.assign(protocol=protocol))
    suite.content = {
        "sets": {one.shown: {"pairs": len(one.gold), "skipped": one.skipped, "file": one.file} for one in scored},
        "results": rows,
        "differences": differences,
        "sick": None,
    }
    _draw_scatters(suite, scored, cosines, folder)
    suite.check_contamination({one.shown: one.pairs for one in scored})
    suite.write("Semantic textual similarity")


def _tables(scores: Results, protocol: str, whiten: int) -> list[Table]:
    """Spearman and Pearson side by side for all systems, then each system by set with its interval."""
    notes = [f"Protocol {protocol}: {PROTOCOLS[protocol]}."]
    notes += [WHITENED] if whiten else []
    tables = []
    for metric, (name, _) in METRICS.items():
        rows = wide(scores.frame(metric), SYSTEM, "set", times=100)
        tables.append(Table(f"{name} × 100, protocol {protocol}", rows, tuple(notes), left=2))
    for (encoder, pooler), one in scores.frame("spearman").groupby(SYSTEM, sort=False):
        counts = [["" if pd.isna(count) else f"{count:,.0f}" for count in one[name]] for name in ("rows", "unscored")]
        columns = {
            "set": one["set"],
            "pairs": counts[0],
            "unscored": counts[1],
            "Spearman × 100": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "Pearson × 100": numbers(scores.frame("pearson", System(encoder, pooler))["value"], times=100),
        }
        tables.append(Table(f"{encoder}, pooler {pooler}, protocol {protocol}", pd.DataFrame(columns)))
    return tables


def _draw_scatters(suite: Suite, scored: Sequence[ScoredSet], cosines: Cosines, data: Path) -> None:
    """Draw STS-B and SICK if they are among the sets, and add SICK's tables and JSON fields."""
    for one in scored:
        if one.name not in ("STS-B", "SICK", "zh-STS-B"):
            continue
        by_system = {system.name: np.concatenate(parts[one.name]) for system, parts in cosines.items()}
        title, scale = f"{one.shown} test, {len(one.gold):,} pairs", (1.0 if one.name == "SICK" else 0.0, 5.0)
        suite.figures.append(suite.out / f"sts-{one.name.lower()}-scatter")
        divisor = 5.0 if one.name == "SICK" else 1.0  # as SelfCCL, Figure 4
        figures.scatter(suite.figures[-1], title, one.gold, by_system, scale=scale, divisor=divisor)
        if one.name == "SICK":
            summary = sick_summary(one.subsets[0], sick_relations(data, one.subsets[0]), by_system)
            suite.content["sick"] = summary
            suite.tables += _sick_tables(summary)


def sick_relations(folder: Path, sick: Subset) -> np.ndarray:
    """The relation of each pair of SICK's test split: int64 [pairs], as `NLI_CLASSES`."""
    rows = senteval.classification(folder, "SICK-E")["test"]
    relations = {row.id: int(row.label) for row in rows if isinstance(row, Row)}
    return np.array([relations[name] for name in sick.ids], dtype=np.int64)


def sick_summary(sick: Subset, relations: np.ndarray, cosines: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Mean human score and cosine by relation (SelfCCL, section 5.6), and of the contradictions of its Table 6."""
    frame = pd.DataFrame({"human": sick.gold, **cosines})

    def numbers_of(row: pd.Series) -> dict[str, Any]:
        return {"human": row["human"], "cosine": row.drop("human").to_dict()}

    groups = {name: frame[relations == number] for number, name in enumerate(NLI_CLASSES)}
    rows = [sick.ids.index(name) for name in EXAMPLES if name in sick.ids]
    return {
        "relations": {
            name: {"pairs": len(group), **numbers_of(group.mean())} for name, group in groups.items() if len(group)
        },
        "examples": [{"texts": list(sick.pairs[row]), **numbers_of(frame.iloc[row])} for row in rows],
    }


def _sick_tables(summary: dict[str, Any]) -> list[Table]:
    """One table of means by relation, and one of the examples."""

    def cosines(one: dict[str, Any]) -> dict[str, str]:
        return {f"cosine ({name})": number(value) for name, value in one["cosine"].items()}

    means = [
        {"relation": name, "pairs": f"{group['pairs']:,}", "human score": number(group["human"]), **cosines(group)}
        for name, group in summary["relations"].items()
    ]
    rows = [
        {"sentence 1": one["texts"][0], "sentence 2": one["texts"][1], "human": number(one["human"]), **cosines(one)}
        for one in summary["examples"]
    ]
    note = "Human scores from 1 to 5; cosines from −1 to 1."
    slip = "The paper prints 3.5 for the pair on a leash, whose score is 3.55."
    return [
        Table("SICK test by relation", pd.DataFrame(means), (note,)),
        Table("SICK's contradictions of SelfCCL's Table 6", pd.DataFrame(rows), (slip,), left=2),
    ]
