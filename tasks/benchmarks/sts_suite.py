"""Semantic textual similarity: an encoder's cosines against human scores, on the seven STS sets or the Chinese ones.

python -m tasks.benchmarks.sts_suite --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.sts_suite --encoder minilm runs/cbcl --pooler mean,cls --sets STS-B,SICK --data DIR
python -m tasks.benchmarks.sts_suite --encoder minilm --pairs my-pairs.csv

The score of a set is one correlation over the pairs of all its subsets, as ConSERT (section 4.1), SimCSE (appendix B)
and SelfCCL (section 5.4) report it. SentEval's own two are given too: the mean over subsets, and the mean weighted by
their pairs.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap

from minbert.files import data_path, expand_user
from minbert.train import cli
from tasks import charts, intervals, metrics, readers
from tasks.benchmarks import common, sets
from tasks.benchmarks.common import COLUMNS, EmbeddingCache, NamedEncoder, Score, nan_if_none
from tasks.benchmarks.sets import ScoredSet
from tasks.readers import senteval
from tasks.readers.kinds import NLI_CLASSES
from tasks.tables import Table, interval_texts, number, numbers, records, wide

SUBSET = "spearman of subset"
MEAN = "spearman mean"
WEIGHTED_MEAN = "spearman wmean"
SCATTERED = ("STS-B", "SICK-R", "zh-STS-B")
"""The sets that are drawn."""
SICK_EXAMPLES = ("4489", "8301", "8850", "7965", "8011")
"""The ids of the five contradictions of SelfCCL's Table 6, in its order."""
NOTE = "One correlation over all pairs of a set (ConSERT, section 4.1; SimCSE, appendix B; SelfCCL, section 5.4)."


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The flags, checked. Raises `UserError` for a mistake."""
    parser = common.parser("sts_suite", "Cosines of sentence pairs against human scores.")
    names = f"{sets.NAMES_HELP} (default: en, or none with --pairs)"
    parser.add_argument("--sets", default="", metavar="NAMES", help=names)
    pairs = "your own pairs: a table with two texts and a score from 0 to 5, whatever their split"
    parser.add_argument("--pairs", default="", metavar="FILE", help=pairs)
    options = common.parse(parser, arguments)
    if not options.sets and not options.pairs:
        options.sets = "en"
    options.sets = sets.set_names(options.sets) if options.sets else []
    return options


def main(arguments: list[str] | None = None) -> None:
    """Score the encoders set by set, and write `sts.json`, `sts.md` and the scatters."""
    options = parse(arguments)
    folder = None
    scored_sets: list[ScoredSet] = []
    if options.pairs:
        scored_sets.append(sets.read_pairs(expand_user(options.pairs)))
    if options.sets:
        folder = data_path(options.data)
        scored_sets += sets.read(folder, options.sets)
    encoders = common.load_encoders(options)
    cache = EmbeddingCache(encoders)

    scores: list[Score] = []
    content: dict[str, Any] = {"sets": {}, "sick": None}
    tables: list[Table] = []
    figures: list[str] = []
    for scored in scored_sets:
        cosines = {encoder: cache.cosines(encoder, scored.pairs) for encoder in encoders}
        scores += score_set(scored, cosines, seed=options.seed, resamples=options.resamples)
        for encoder in encoders:
            cli.say(describe(encoder, scored, scores))
        content["sets"][scored.name] = {"pairs": len(scored.gold), "skipped": scored.skipped, "file": scored.file}
        if scored.name == "SICK-R" and folder is not None:
            by_relation, examples = sick_frames(scored, read_relations(folder, scored), cosines)
            content["sick"] = {"relations": records(by_relation), "examples": records(examples)}
            tables = sick_tables(by_relation, examples)
        # written as it goes: a suite that is stopped leaves the sets that it has
        common.save(options, folder, encoders, complete=False, **content, results=common.as_json(frame_of(scores)))
        if scored.name in SCATTERED:
            figures.append(f"sts-{scored.name.lower().removesuffix('-r')}-scatter.svg")
            draw_scatter(options.out / figures[-1], scored, cosines)

    for measure in ("spearman", "pearson"):
        scores += common.averages(scores, measure)
    differences = common.differences(scores, encoders, "spearman")
    content["results"] = common.as_json(frame_of(scores))
    content["differences"] = common.as_json(differences)
    common.save(options, folder, encoders, complete=True, **content)
    notes = [NOTE]
    for scored in scored_sets:
        if scored.file:
            notes.append(f"{scored.name} is {scored.file}.")
    tables = [
        *score_tables(scores, encoders, tuple(notes)),
        *common.difference_tables("Spearman × 100", differences, times=100),
        *tables,
    ]
    common.show(options, encoders, "Semantic textual similarity", tables, figures)


def score_set(
    scored: ScoredSet, cosines: Mapping[NamedEncoder, np.ndarray], *, seed: int, resamples: int
) -> list[Score]:
    """Spearman (with its bootstrap) and Pearson over all pairs, then Spearman by subset and its two means."""
    predicted = np.stack(list(cosines.values()))
    samples = intervals.bootstrap("Spearman's rho", predicted, scored.gold, scored.name, seed=seed, resamples=resamples)
    scores = []
    for (encoder, values), encoder_samples in zip(cosines.items(), samples, strict=True):
        details = {"rows": len(scored.gold), "unscored": scored.skipped}
        rho = nan_if_none(metrics.spearman(values, scored.gold))
        r = nan_if_none(metrics.pearson(values, scored.gold))
        scores.append(Score(encoder, "spearman", scored.name, rho, encoder_samples, details))
        scores.append(Score(encoder, "pearson", scored.name, r, details=details))
        if len(scored.subsets) > 1:
            scores += score_subsets(encoder, scored, values)
    return scores


def score_subsets(encoder: NamedEncoder, scored: ScoredSet, cosines: np.ndarray) -> list[Score]:
    """Spearman of each subset, and SentEval's `mean` and `wmean` of them (its `STSEval`)."""
    scores = []
    start = 0
    for subset, count in scored.subsets.items():
        rows = slice(start, start + count)
        rho = nan_if_none(metrics.spearman(cosines[rows], scored.gold[rows]))
        scores.append(Score(encoder, SUBSET, f"{scored.name} {subset}", rho, details={"rows": count}))
        start += count
    values = [score.value for score in scores]
    weights = list(scored.subsets.values())
    scores.append(Score(encoder, MEAN, scored.name, float(np.mean(values))))
    scores.append(Score(encoder, WEIGHTED_MEAN, scored.name, float(np.average(values, weights=weights))))
    return scores


def frame_of(scores: Sequence[Score]) -> pd.DataFrame:
    """`common.frame_of` with the scores by their measure: `spearman`, the suite's own, comes first."""
    measures = ("spearman", "pearson", MEAN, WEIGHTED_MEAN, SUBSET)
    return common.frame_of(sorted(scores, key=lambda score: measures.index(score.measure)))


def describe(encoder: NamedEncoder, scored: ScoredSet, scores: Sequence[Score]) -> str:
    """One line for an encoder on a set: the score over all pairs, SentEval's mean and wmean, and the subsets."""
    values = {}
    for score in scores:
        if score.encoder == encoder:
            values[score.measure, score.set] = number(score.value, times=100)
    text = f"{encoder.label}: {scored.name} {values['spearman', scored.name]} ({len(scored.gold):,} pairs)"
    if len(scored.subsets) > 1:
        subsets = [f"{subset} {values[SUBSET, f'{scored.name} {subset}']}" for subset in scored.subsets]
        means = f"mean {values[MEAN, scored.name]}, wmean {values[WEIGHTED_MEAN, scored.name]}"
        text += f"; {means}; {', '.join(subsets)}"
    return text


def score_tables(scores: Sequence[Score], encoders: Sequence[NamedEncoder], notes: tuple[str, ...]) -> list[Table]:
    """Spearman and Pearson side by side for all encoders, the subsets, then each encoder by set with its interval."""
    tables = []
    for measure, title in (("spearman", "Spearman's rho × 100"), ("pearson", "Pearson's r × 100")):
        rows = wide(common.frame_of(scores, measure), COLUMNS, "set", times=100)
        tables.append(Table(title, rows, notes, left=2))
    subsets = common.frame_of(scores, SUBSET)
    if len(subsets):
        rows = wide(subsets.rename(columns={"set": "subset"}), ["subset"], "label", times=100)
        tables.append(Table("Subsets, Spearman's rho × 100", rows))
    for encoder in encoders:
        frame = common.frame_of(score for score in scores if score.encoder == encoder)
        rhos = frame[frame["measure"] == "spearman"]
        # a set without subsets has no mean over them
        by_set = frame.pivot(index="set", columns="measure", values="value")
        by_set = by_set.reindex(index=rhos["set"], columns=["pearson", MEAN, WEIGHTED_MEAN])
        columns = {
            "set": rhos["set"],
            "pairs": numbers(rhos["rows"], 0),
            "unscored": numbers(rhos["unscored"], 0),
            "Spearman × 100": numbers(rhos["value"], times=100),
            "95% interval": interval_texts(rhos, times=100),
            "mean": numbers(by_set[MEAN], times=100),
            "wmean": numbers(by_set[WEIGHTED_MEAN], times=100),
            "Pearson × 100": numbers(by_set["pearson"], times=100),
        }
        note = "mean, wmean: of the subsets' Spearman, as SentEval prints them."
        tables.append(Table(f"{encoder.name}, pooler {encoder.pooler}", pd.DataFrame(columns), (note,)))
    return tables


def draw_scatter(path: Path, scored: ScoredSet, cosines: Mapping[NamedEncoder, np.ndarray]) -> None:
    """Human score across, cosine up, a panel for each encoder (ConSERT, Figure 1; SelfCCL, Figure 4 for SICK).

    Points are coloured by their score. SICK's scores are from 1 to 5, shown as fifths; others are from 0 to 5.
    """
    gold = scored.gold
    is_sick = scored.name == "SICK-R"
    divisor = 5 if is_sick else 1
    count = len(cosines)
    columns = 2 if count == 4 else min(count, 3)
    rows = -(-count // columns)
    size = (4.1 * columns + 0.7, 4.0 * rows + 1.0)
    if count == 1:
        size = (8.0, 4.8)
    lowest = min(float(values.min()) for values in cosines.values())
    colors = LinearSegmentedColormap.from_list("score", [charts.BLUE, charts.ORANGE])  # both are seen in dark
    with charts.panels(count, size, columns=columns, sharex=True, sharey=True) as panels:
        for index, (panel, (encoder, values)) in enumerate(zip(panels, cosines.items(), strict=True)):
            panel.scatter(
                gold,
                values,
                c=gold,
                cmap=colors,
                s=9,
                linewidths=0,
                rasterized=True,
                alpha=0.6,
            )
            rho = number(metrics.spearman(values, gold), times=100, missing="undefined")
            panel.set_title(f"{encoder.label}: ρ × 100 = {rho}")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value / divisor:g}")
            panel.set_xlim(float(gold.min()) - 0.1, float(gold.max()) + 0.1)
            panel.set_ylim(min(lowest - 0.03, 0.0), 1.03)
            # panels without one below; a label of the whole figure would be covered by a legend
            if index + columns >= count:
                panel.set_xlabel("human score / 5" if is_sick else "human score (0 to 5)")
                panel.tick_params(labelbottom=True)
            if index % columns == 0:
                panel.set_ylabel("cosine")
        charts.title(panels[0].figure, f"{scored.name} test, {len(gold):,} pairs")
        charts.save(panels[0].figure, path)


def read_relations(folder: Path, sick: ScoredSet) -> list[str]:
    """The relation of each pair of SICK's test split, of `NLI_CLASSES`."""
    path = senteval.scored_files(senteval.root(folder), "SICK")["SICK"]
    relations = {}
    for row in readers.open_as(path, "nli").rows:
        relations[row.id] = NLI_CLASSES[int(row.label)]
    return [relations[pair_id] for pair_id in sick.ids]


def sick_frames(
    sick: ScoredSet, relations: Sequence[str], cosines: Mapping[NamedEncoder, np.ndarray]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mean human score and cosines by relation (SelfCCL, section 5.6), and those of its Table 6's contradictions."""
    frame = pd.DataFrame({"human score": sick.gold})
    for encoder, values in cosines.items():
        frame[f"cosine ({encoder.label})"] = values
    groups = frame.groupby(pd.Categorical(relations, NLI_CLASSES), observed=True)
    by_relation = groups.mean().rename_axis("relation").reset_index()
    by_relation.insert(1, "pairs", groups.size().to_numpy())
    rows = [sick.ids.index(pair_id) for pair_id in SICK_EXAMPLES if pair_id in sick.ids]
    examples = frame.iloc[rows].reset_index(drop=True)
    examples.insert(0, "sentence 1", [sick.pairs[row][0] for row in rows])
    examples.insert(1, "sentence 2", [sick.pairs[row][1] for row in rows])
    return by_relation, examples


def sick_tables(by_relation: pd.DataFrame, examples: pd.DataFrame) -> list[Table]:
    """A table of means by relation, and one of the examples if there are any."""
    by_relation = by_relation.assign(pairs=[f"{count:,}" for count in by_relation["pairs"]])
    by_relation = by_relation.assign(**{name: numbers(by_relation[name]) for name in by_relation.columns[2:]})
    examples = examples.assign(**{name: numbers(examples[name]) for name in examples.columns[2:]})
    scales = "Human scores from 1 to 5; cosines from −1 to 1."
    slip = "The paper prints 3.5 for the pair on a leash, whose score is 3.55."
    tables = [Table("SICK test by relation", by_relation, (scales,), left=1)]
    if len(examples):
        tables.append(Table("SICK's contradictions of SelfCCL's Table 6", examples, (slip,), left=2))
    return tables


if __name__ == "__main__":
    cli.run(main)
