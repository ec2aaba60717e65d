"""The STS suite: cosines against human scores with bootstrap intervals, and SICK by relation.

A set has one correlation over the pairs of all its subsets, as SimCSE (appendix B), ConSERT and SelfCCL report it.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.files import data_folder
from minbert.token_cache import Row
from tasks import charts, intervals, metrics, readers
from tasks.benchmarks import results, sets
from tasks.benchmarks.encoders import System, load
from tasks.benchmarks.results import SYSTEM, Results, Suite
from tasks.benchmarks.sets import ScoredSet
from tasks.readers import senteval
from tasks.readers.labels import NLI_CLASSES
from tasks.tables import Table, between, number, numbers, records, wide

METRICS = {"spearman": ("Spearman's rho", metrics.spearman), "pearson": ("Pearson's r", metrics.pearson)}
Cosines = dict[System, dict[str, np.ndarray]]
"""By system and set: the cosine of each pair, float64 [pairs]."""
EXAMPLES = ("4489", "8301", "8850", "7965", "8011")
"""The ids of the five contradictions of SelfCCL's Table 6, in its order."""
_NOTE = "One correlation over all pairs of a set (SimCSE, appendix B; ConSERT and SelfCCL follow it)."


def run_similarity(options: argparse.Namespace) -> None:
    """Score the encoders on the sets, and write `sts.json`, `sts.md` and the scatters."""
    folder = data_folder(options.data)
    scored = sets.read(folder, sets.named(options.sets))
    suite = Suite(options, folder, load(options))
    bank = suite.bank(text for one in scored for text in one.texts)
    cosines = {system: {one.name: bank.cosines(system, one.pairs) for one in scored} for system in suite.systems}
    scores = measure_similarity(scored, cosines, **suite.bootstrap)
    differences = scores.differences(suite.pairings, "spearman")
    notes = [_NOTE, *(f"{one.name} is {one.file}." for one in scored if one.file)]
    compared = results.difference_tables("Spearman × 100", differences, times=100)
    suite.tables = [*_tables(scores, tuple(notes)), *compared]
    about = {one.name: {"pairs": len(one.gold), "skipped": one.skipped, "file": one.file} for one in scored}
    suite.content = {"sets": about, **results.content(scores, differences), "sick": None}
    _draw_scatters(suite, scored, cosines, folder)
    suite.check_contamination({one.name: one.pairs for one in scored})
    suite.write("Semantic textual similarity")


def measure_similarity(scored: Sequence[ScoredSet], cosines: Cosines, *, seed: int, resamples: int) -> Results:
    """Spearman and Pearson of every system on every set, and the bootstrap of Spearman's rho."""
    scores = Results()
    for one in scored:
        predicted = np.stack([by_set[one.name] for by_set in cosines.values()])
        rhos = intervals.bootstrap("Spearman's rho", predicted, one.gold, one.name, seed=seed, resamples=resamples)
        for system, own, samples in zip(cosines, predicted, rhos, strict=True):
            for measure, (_, correlation) in METRICS.items():
                value = correlation(own, one.gold)
                own_samples = samples if measure == "spearman" else ()
                more = {"rows": len(one.gold), "unscored": one.skipped}
                scores.add(system, measure, one.name, value, own_samples, **more)
    for measure in METRICS:
        scores.add_average(measure)
    return scores


def _tables(scores: Results, notes: tuple[str, ...]) -> list[Table]:
    """Spearman and Pearson side by side for all systems, then each system by set with its interval."""
    tables = []
    for metric, (name, _) in METRICS.items():
        rows = wide(scores.frame(metric), SYSTEM, "set", times=100)
        tables.append(Table(f"{name} × 100", rows, notes, left=2))
    for (encoder, pooler), one in scores.frame("spearman").groupby(SYSTEM, sort=False):
        columns = {
            "set": one["set"],
            "pairs": numbers(one["rows"], 0),
            "unscored": numbers(one["unscored"], 0),
            "Spearman × 100": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "Pearson × 100": numbers(scores.frame("pearson", System(encoder, pooler))["value"], times=100),
        }
        tables.append(Table(f"{encoder}, pooler {pooler}", pd.DataFrame(columns)))
    return tables


def _draw_scatters(suite: Suite, scored: Sequence[ScoredSet], cosines: Cosines, data: Path) -> None:
    """Draw STS-B and SICK if they are among the sets, and add SICK's tables and JSON fields."""
    for one in (one for one in scored if one.name in ("STS-B", "SICK-R", "zh-STS-B")):
        by_system = {system.name: own[one.name] for system, own in cosines.items()}
        sick = one.name == "SICK-R"
        suite.figures.append(suite.out / f"sts-{'sick' if sick else one.name.lower()}-scatter")
        _draw_scatter(suite.figures[-1], one, by_system, sick=sick)
        if sick:
            frames = sick_frames(one, sick_relations(data, one), by_system)
            suite.content["sick"] = {name: records(frame) for name, frame in frames.items()}
            suite.tables += _sick_tables(frames)


def _draw_scatter(path: Path, pairs: ScoredSet, cosines: Mapping[str, np.ndarray], *, sick: bool) -> None:
    """Human score across, cosine up, a panel for each system (ConSERT, Figure 1; SelfCCL, Figure 4 for SICK).

    Points are coloured by their score. SICK's scores are from 1 to 5, shown as fifths; others are from 0 to 5.
    """
    gold, count, columns = pairs.gold, len(cosines), 2 if len(cosines) == 4 else min(len(cosines), 3)
    size = (8.0, 4.8) if count == 1 else (4.1 * columns + 0.7, 4.0 * -(-count // columns) + 1.0)
    lowest, divisor, label = (1, 5, "human score / 5") if sick else (0, 1, "human score (0 to 5)")
    low = min(float(values.min()) for values in cosines.values())
    look: Any = {"s": 9, "linewidths": 0, "rasterized": True, "alpha": 0.5, "cmap": "viridis"}
    with charts.panels(count, size, columns=columns, sharex=True, sharey=True) as panels:
        for index, (panel, (name, values)) in enumerate(zip(panels, cosines.items(), strict=True)):
            panel.scatter(gold, values, c=gold, vmin=lowest, vmax=5, **look)
            rho = number(metrics.spearman(values, gold), 1, times=100, missing="undefined")
            panel.set_title(f"{name}: ρ × 100 = {rho}")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value / divisor:g}")
            panel.set_xlim(float(gold.min()) - 0.1, float(gold.max()) + 0.1)
            panel.set_ylim(min(low - 0.03, 0.0), 1.03)
            if index + columns >= count:  # nothing below; a legend would cover a label of the whole figure
                panel.set_xlabel(label)
                panel.tick_params(labelbottom=True)
            if index % columns == 0:
                panel.set_ylabel("cosine")
        charts.title(panels[0].figure, f"{pairs.name} test, {len(gold):,} pairs")
        charts.save(panels[0].figure, path)


def sick_relations(folder: Path, sick: ScoredSet) -> np.ndarray:
    """The relation of each pair of SICK's test split: int64 [pairs], as `NLI_CLASSES`."""
    path = senteval.scored_files(senteval.root(folder), "SICK")["SICK"]
    rows = readers.open_as(path, "nli").rows
    relations = {row.id: int(row.label) for row in rows if isinstance(row, Row)}
    return np.array([relations[name] for name in sick.ids], dtype=np.int64)


def sick_frames(sick: ScoredSet, relations: np.ndarray, cosines: Mapping[str, np.ndarray]) -> dict[str, pd.DataFrame]:
    """Mean human score and cosines by relation (SelfCCL, section 5.6), and those of its Table 6's contradictions."""
    columns = {"human score": sick.gold, **{f"cosine ({name})": values for name, values in cosines.items()}}
    frame = pd.DataFrame(columns).assign(relation=[NLI_CLASSES[number] for number in relations])
    groups = frame.groupby("relation")
    present = [name for name in NLI_CLASSES if name in groups.groups]
    means = groups.mean().assign(pairs=groups.size()).loc[present].reset_index()
    rows = [sick.ids.index(name) for name in EXAMPLES if name in sick.ids]
    first, second = ([sick.pairs[row][side] for row in rows] for side in (0, 1))
    examples = frame.iloc[rows].drop(columns="relation").assign(**{"sentence 1": first, "sentence 2": second})
    return {"relations": means, "examples": examples}


def _sick_tables(frames: Mapping[str, pd.DataFrame]) -> list[Table]:
    """One table of means by relation, and one of the examples."""

    def shown(frame: pd.DataFrame, *texts: str) -> pd.DataFrame:
        scores = [name for name in frame if name == "human score" or str(name).startswith("cosine")]
        return frame[[*texts, *scores]].assign(**{str(name): numbers(frame[name]) for name in scores})

    relations = frames["relations"].assign(pairs=[f"{count:,}" for count in frames["relations"]["pairs"]])
    note = "Human scores from 1 to 5; cosines from −1 to 1."
    slip = "The paper prints 3.5 for the pair on a leash, whose score is 3.55."
    examples = shown(frames["examples"], "sentence 1", "sentence 2")
    return [
        Table("SICK test by relation", shown(relations, "relation", "pairs"), (note,)),
        Table("SICK's contradictions of SelfCCL's Table 6", examples, (slip,), left=2),
    ]
