"""Probes of an encoder's space: alignment, uniformity, frequent tokens, length bias, word associations.

python -m tasks.benchmarks.probes --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.probes --encoder minilm runs/cbcl --probes geometry,weat --data DIR

Axes: N sentences or pairs, T tokens of a batch, B sentences of a batch, D hidden.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from minbert import pooling
from minbert.bert import BertModel
from minbert.encoder import Encoder
from minbert.files import data_path
from minbert.ragged import Ragged
from minbert.train import cli
from tasks import charts, intervals, metrics
from tasks.benchmarks import common, sets, weat
from tasks.benchmarks.common import COLUMNS, EmbeddingCache, NamedEncoder, Pool, Score, nan_if_none, pair_cosines
from tasks.benchmarks.sets import ScoredSet
from tasks.contrastive.evaluation import POSITIVE_SCORE, uniformity
from tasks.examples import distinct
from tasks.tables import Table, number, numbers, wide

PROBES = ("geometry", "frequency", "length", "weat")
ON_PAIRS = {"geometry", "frequency", "length"}
"""The probes that need data."""
LAYERS: dict[str, tuple[int, ...]] = {"mean": (-1,), **pooling.AVERAGES}
"""The layers whose token vectors are averaged, for the poolers that are means of tokens."""
REMOVED = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 34, 36, 40, 50, 60, 80, 100)
"""How many of the most frequent tokens are left out; ConSERT's best is at 34."""
REMOVED_SHOWN = (0, 2, 8, 16, 24, 34, 50, 100)
APPENDED = (" Okay, okay, okay.", " ? ? ? ? ?", " . . .", " What are the", " And so on, and so on, and so on.")
"""What the length probe appends: words and marks of the kinds that EdaCSE's Table 1 shows."""
GEOMETRY_NOTE = (
    "Alignment: mean squared distance of pairs scored above 4, less is better. Uniformity: ln of the mean of "
    "exp(−2 distance²), less is more even."
)
LENGTH_NOTE = (
    "The text is appended to each second sentence. Nearer, apart: mean change of the cosine where the lengths in "
    "tokens come closer, or move apart. With length bias, the first rises and the second falls."
)
WEAT_NOTE = (
    "d: effect size in standard deviations; above 0 the first targets are closer to the first attributes. p: "
    "one-sided, by permutation, not corrected for ten tests. Words are encoded as sentences of one word."
)


@dataclass
class Section:
    """The results of one probe: its fields in `probes.json`, its tables, and its figures (names of SVG files)."""

    content: dict[str, Any]
    tables: list[Table]
    figures: list[str] = field(default_factory=list)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The flags, checked. Raises `UserError` for a mistake."""
    parser = common.parser("probes", "Probes of an encoder's space of sentences.")
    names = f"{', '.join(PROBES)}, several with commas (default: all)"
    parser.add_argument("--probes", default=",".join(PROBES), metavar="NAMES", help=names)
    names = f"sets of the frequency probe: {sets.NAMES_HELP} (default: STS-B; the paper takes en)"
    parser.add_argument("--sets", default="STS-B", metavar="NAMES", help=names)
    options = common.parse(parser, arguments)
    options.probes = common.choose(options.probes, PROBES, "--probes")
    options.sets = sets.set_names(options.sets)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the probes with every encoder, and write `probes.json`, `probes.md` and the figure."""
    options = parse(arguments)
    folder = None
    if ON_PAIRS & set(options.probes):
        folder = data_path(options.data)
        (stsb,) = sets.read(folder, ["STS-B"])
        frequency_sets: list[ScoredSet] = []
        if "frequency" in options.probes:
            frequency_sets = sets.read(folder, options.sets)
    encoders = common.load_encoders(options)
    cache = EmbeddingCache(encoders)

    content: dict[str, Any] = {}
    tables: list[Table] = []
    figures: list[str] = []
    for name in options.probes:
        if name == "geometry":
            section = probe_geometry(cache, encoders, stsb, options)
        elif name == "frequency":
            section = probe_frequency(encoders, stsb, frequency_sets, options)
        elif name == "length":
            section = probe_length(cache, encoders, stsb, options)
        else:
            section = probe_weat(cache, encoders, options)
        content[name] = section.content
        tables += section.tables
        figures += section.figures
        cli.say(f"{name}: done")
        common.save(options, folder, encoders, complete=False, **content)
    common.save(options, folder, encoders, complete=True, **content)
    common.show(options, encoders, "Probes of the space of sentences", tables, figures)


def mean_or_nan(values: np.ndarray) -> float:
    """The mean; NaN of none."""
    return float(values.mean()) if len(values) else np.nan


# Geometry


def probe_geometry(
    cache: EmbeddingCache, encoders: Sequence[NamedEncoder], scored: ScoredSet, options: argparse.Namespace
) -> Section:
    """Alignment over pairs with a score above 4, and uniformity over the sentences of all pairs, as in SimCSE.

    The alignment has an interval, and paired differences to the first encoder.
    """
    scores = []
    is_positive = scored.gold > POSITIVE_SCORE
    for encoder in encoders:
        first = cache.unit(encoder, [pair[0] for pair in scored.pairs])
        second = cache.unit(encoder, [pair[1] for pair in scored.pairs])
        distances = np.square(first[is_positive] - second[is_positive]).sum(1)
        samples = intervals.mean_samples(
            distances, "alignment", scored.name, seed=options.seed, resamples=options.resamples
        )
        alignment = mean_or_nan(distances)
        scores.append(Score(encoder, "alignment", scored.name, alignment, samples, {"rows": len(distances)}))
        both = np.concatenate([first, second])
        details = {"rows": len(both)}
        scores.append(Score(encoder, "uniformity", scored.name, nan_if_none(uniformity(both)), details=details))
    differences = common.differences(scores, encoders, "alignment")
    rows = wide(common.frame_of(scores), COLUMNS, "measure", 3)
    tables = [Table(f"Geometry, {scored.name} test", rows, (GEOMETRY_NOTE,), left=2)]
    tables += common.difference_tables("Alignment", differences, digits=3, higher_is_better=False)
    content = {
        "results": common.as_json(common.frame_of(scores)),
        "differences": common.as_json(differences),
    }
    return Section(content, tables)


# Frequent tokens


def frequency_ranks(encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    """Rank of every id of the vocabulary by frequency: int64 [vocabulary], 0 the most frequent; unseen ids come last.

    [CLS] and [SEP] count once a text. Ties go to the smaller id.
    """
    rows, _ = encoder.rows(texts, prompt="")
    frequency = np.bincount(np.concatenate(rows), minlength=encoder.model.config.vocab_size)
    return stats.rankdata(-frequency, method="ordinal") - 1


def mean_without(rank: Tensor, removed: int, layers: Sequence[int]) -> Pool:
    """The mean of the tokens whose rank is `removed` or more; a sentence without any such token keeps all tokens.

    The tokens are left out of the average; the encoder still reads them (ConSERT, section 5.1).
    """

    def pool(model: BertModel, states: Sequence[Tensor], ragged: Ragged) -> Tensor:
        x = torch.stack([states[layer].float() for layer in layers]).mean(0)  # [T, D]
        kept = (rank.to(x.device)[ragged.ids] >= removed).float()[:, None]  # [T, 1]
        share = pooling.mean_of(kept, ragged)  # [B, 1]
        # both means are over all tokens, so their ratio is the mean over the kept ones
        return torch.where(share > 0, pooling.mean_of(x * kept, ragged) / share, pooling.mean_of(x, ragged))

    return pool


def probe_frequency(
    encoders: Sequence[NamedEncoder],
    frequencies_from: ScoredSet,
    scored_sets: Sequence[ScoredSet],
    options: argparse.Namespace,
) -> Section:
    """Mean over the sets of Spearman's rho without the k most frequent tokens (ConSERT, Figure 4).

    There is a curve over k for every encoder; poolers that do not average tokens are probed as `mean`. A value is NaN
    where a set's rho is undefined.
    """
    names = scored_sets[0].name
    if len(scored_sets) > 1:
        names = f"mean of {len(scored_sets)} sets"
    scores = []
    curves = {}
    for encoder in mean_encoders(encoders):
        values = rho_without_frequent_tokens(encoder, frequencies_from, scored_sets)
        for removed, value in zip(REMOVED, values, strict=True):
            scores.append(Score(encoder, "spearman", names, value, details={"removed": removed}))
        if np.isfinite(values).all():
            curves[encoder.label] = values
    figures = []
    if curves:
        figures.append("probes-frequent-tokens.svg")
        draw_curves(options.out / figures[0], curves, names)
    notes = (
        f"Spearman × 100, {names}; frequencies from {frequencies_from.name} test, [CLS] and [SEP] counted too.",
        "Poolers that do not average tokens are probed as `mean`.",
    )
    frame = common.frame_of(scores)
    rows = wide(frame[frame["removed"].isin(REMOVED_SHOWN)], COLUMNS, "removed", times=100)
    table = Table("Spearman without the most frequent tokens, by their number", rows, notes, left=2)
    content = {"sets": [scored.name for scored in scored_sets], "results": common.as_json(frame)}
    return Section(content, [table], figures)


def mean_encoders(encoders: Sequence[NamedEncoder]) -> list[NamedEncoder]:
    """The encoders with poolers that average tokens: their own, or `mean` in place of another."""
    averaging = []
    for encoder in encoders:
        pooler = encoder.pooler if encoder.pooler in LAYERS else "mean"
        averaging.append(NamedEncoder(encoder.name, pooler, encoder.folder, encoder.encoder))
    return list(dict.fromkeys(averaging))


def rho_without_frequent_tokens(
    encoder: NamedEncoder, frequencies_from: ScoredSet, scored_sets: Sequence[ScoredSet]
) -> list[float]:
    """Mean Spearman's rho over the sets for each number of `REMOVED` tokens."""
    rank = torch.from_numpy(frequency_ranks(encoder.encoder, frequencies_from.texts))
    pools = {removed: mean_without(rank, removed, LAYERS[encoder.pooler]) for removed in REMOVED}
    rhos: dict[int, list[float]] = {removed: [] for removed in REMOVED}
    for scored in scored_sets:
        texts, index = distinct(scored.texts)
        first, second = index.reshape(-1, 2).T
        for removed, vectors in common.encode_with_pools(encoder.encoder, texts, pools).items():
            cosines = pair_cosines(vectors[first], vectors[second])
            rhos[removed].append(nan_if_none(metrics.spearman(cosines, scored.gold)))
    return [float(np.mean(values)) for values in rhos.values()]


def draw_curves(path: Path, curves: Mapping[str, Sequence[float]], names: str) -> None:
    """Spearman by the number of frequent tokens left out of the mean (ConSERT, Figure 4), with a ring at the best."""
    with charts.panels(1, (8.0, 4.8)) as (axes,):
        for index, (name, values) in enumerate(curves.items()):
            percent = [100 * value for value in values]
            best = int(np.argmax(percent))
            colour = charts.SLOTS[index % len(charts.SLOTS)]
            label = f"{name}: {percent[0]:.2f}, best {percent[best]:.2f} without {REMOVED[best]} tokens"
            axes.plot(REMOVED, percent, color=colour, marker="o", markersize=4.5, label=label)
            axes.plot(
                [REMOVED[best]],
                [percent[best]],
                "o",
                markeredgecolor=colour,
                markersize=12,
                markerfacecolor="none",
                markeredgewidth=2,
            )
        axes.margins(y=0.12)
        axes.set(xlabel="tokens left out, [CLS] and [SEP] among them", ylabel=f"Spearman's ρ × 100, {names}")
        charts.legend(axes, 1)
        charts.title(axes.figure, "Leaving the most frequent tokens out of the mean")
        charts.save(axes.figure, path)


# Length bias


def probe_length(
    cache: EmbeddingCache, encoders: Sequence[NamedEncoder], scored: ScoredSet, options: argparse.Namespace
) -> Section:
    """The effect of appending words that mean nothing (EdaCSE, Table 1), and the differences of the change."""
    scores = []
    tables = []
    for encoder in encoders:
        shifts = []
        for appended in APPENDED:
            shifts += length_shift(cache, encoder, scored, appended, seed=options.seed, resamples=options.resamples)
        rows = wide(common.frame_of(shifts), ["set"], "measure", 4).rename(columns={"set": "appended"})
        title = f"Length bias of {encoder.label}: {scored.name}, {len(scored.pairs):,} pairs"
        tables.append(Table(title, rows, (LENGTH_NOTE,)))
        scores += shifts
    differences = common.differences(scores, encoders, "change")
    title = f"Change of the cosine, {scored.name}"
    tables += common.difference_tables(title, differences, digits=3, higher_is_better=False, column="appended")
    content = {
        "pairs": scored.name,
        "count": len(scored.pairs),
        "skipped": scored.skipped,
        "results": common.as_json(common.frame_of(scores)),
        "differences": common.as_json(differences),
    }
    return Section(content, tables)


def length_shift(
    cache: EmbeddingCache, encoder: NamedEncoder, scored: ScoredSet, appended: str, *, seed: int, resamples: int
) -> list[Score]:
    """The effect of appending a text to every second sentence, as scores on the "set" of its name.

    `lengths nearer` is the mean change of the cosine where the addition brings the two lengths (in tokens) closer
    together, `lengths apart` where it moves them apart. EdaCSE, Table 1.
    """
    longer_pairs = [(first, second + appended) for first, second in scored.pairs]
    before = cache.cosines(encoder, scored.pairs)
    after = cache.cosines(encoder, longer_pairs)
    change = after - before
    gap_change = length_gaps(encoder.encoder, longer_pairs) - length_gaps(encoder.encoder, scored.pairs)
    rho_before = nan_if_none(metrics.spearman(before, scored.gold))
    rho_after = nan_if_none(metrics.spearman(after, scored.gold))
    change_samples = intervals.mean_samples(change, "length bias", appended, seed=seed, resamples=resamples)
    rho_samples = intervals.bootstrap(
        "Spearman's rho",
        np.stack([before, after]),
        scored.gold,
        f"length bias {appended}",
        seed=seed,
        resamples=resamples,
    )
    none = np.empty(0)
    scores = []
    for measure, value, samples in (
        ("cosine", float(before.mean()), none),
        ("cosine after", float(after.mean()), none),
        ("change", float(change.mean()), change_samples),
        ("lengths nearer", mean_or_nan(change[gap_change < 0]), none),
        ("lengths apart", mean_or_nan(change[gap_change > 0]), none),
        ("spearman", rho_before, none),
        ("spearman after", rho_after, none),
        ("spearman change", rho_after - rho_before, rho_samples[1] - rho_samples[0]),
    ):
        details = {"rows": len(scored.pairs)}
        scores.append(Score(encoder, measure, repr(appended), value, samples, details))
    return scores


def length_gaps(encoder: Encoder, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The difference of a pair's lengths in tokens: [pairs]."""
    first = [len(ids) for ids in encoder.tokenizer.encode([pair[0] for pair in pairs])]
    second = [len(ids) for ids in encoder.tokenizer.encode([pair[1] for pair in pairs])]
    return np.abs(np.subtract(first, second))


# Word associations


def probe_weat(cache: EmbeddingCache, encoders: Sequence[NamedEncoder], options: argparse.Namespace) -> Section:
    """Effect sizes and p values of the association tests, each word encoded as a sentence of its own."""
    tests = weat.word_sets()
    scores = []
    columns = {"test": list(tests)}
    for encoder in encoders:
        effects = []
        p_values = []
        for name, parts in tests.items():
            vectors = [cache.unit(encoder, words) for words in parts]
            effect, p = weat.association_test(*vectors, seed=options.seed, name=name)
            scores.append(Score(encoder, "effect", name, effect, details={"p": p}))
            effects.append(effect)
            # four digits would show it as 0
            p_values.append("< 0.0001" if p < 1e-4 else number(p, 4))
        columns[f"d ({encoder.label})"] = numbers(effects, sign=True)
        columns[f"p ({encoder.label})"] = p_values
    table = Table("Word embedding association tests (Caliskan et al. 2017)", pd.DataFrame(columns), (WEAT_NOTE,))
    return Section({"results": common.as_json(common.frame_of(scores))}, [table])


if __name__ == "__main__":
    cli.run(main)
