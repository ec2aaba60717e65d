"""Probes of an encoder's space: its geometry, the effect of frequent tokens on a mean of tokens, and length bias.

Axes: N sentences or pairs, T tokens of a batch, D hidden.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minbert import pooling
from minbert.bert import BertModel
from minbert.encoder import Encoder
from minbert.files import data_folder
from minbert.ragged import Ragged
from tasks import charts, intervals, metrics
from tasks.benchmarks import results, sets, weat
from tasks.benchmarks.encoders import Bank, Pool, System, load
from tasks.benchmarks.results import SYSTEM, Results, Suite, nan_if_none
from tasks.benchmarks.sets import ScoredSet
from tasks.charts import SLOTS
from tasks.contrastive.evaluation import ALIKE, uniformity
from tasks.tables import Table, wide

LAYERS: dict[str, tuple[int, ...]] = {"mean": (-1,), **pooling.AVERAGES}
"""The layers whose token vectors are averaged, for the poolers that are means of tokens."""
STEPS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 34, 36, 40, 50, 60, 80, 100)
_SHOWN = (0, 2, 8, 16, 24, 34, 50, 100)  # columns of the table

ADDED = (" Okay, okay, okay.", " ? ? ? ? ?", " . . .", " What are the", " And so on, and so on, and so on.")
"""What the length probe appends: words and marks of the kinds that EdaCSE's Table 1 shows."""
_LENGTH_NOTES = (
    "The text is appended to each second sentence. Nearer, apart: mean change of the cosine where the lengths in "
    "tokens come closer, or move apart. With length bias, the first rises and the second falls.",
)


def run_probes(options: argparse.Namespace) -> None:
    """Run the probes with every encoder, and write `probes.json`, `probes.md` and the figure."""
    on_pairs = {"geometry", "frequency", "length"} & set(options.probes)
    folder = data_folder(options.data) if on_pairs else None
    stsb = sets.read(folder, ["STS-B"])[0] if folder is not None else None
    frequent = sets.read(folder, sets.named(options.sets)) if folder and "frequency" in on_pairs else []
    suite = Suite(options, folder, load(options))
    probes: Any = {"geometry": geometry, "length": length, "weat": weat.weat}
    probes["frequency"] = partial(frequency, scored=frequent)
    for name in options.probes:
        suite.content[name] = probes[name](suite, stsb)
    if on_pairs:
        scored = frequent if stsb is None or on_pairs == {"frequency"} else [*frequent, stsb]
        suite.check_contamination({one.name: one.pairs for one in scored})
    suite.write("Probes of the space of sentences")


def geometry(suite: Suite, pairs: ScoredSet) -> dict[str, Any]:
    """Alignment over pairs with a score of 4 or more, and uniformity over the sentences of all pairs.

    SimCSE, section 2. The alignment has an interval, and paired differences to the first encoder.
    """
    bank = suite.bank(pairs.texts)
    scores, alike = Results(), pairs.gold >= ALIKE
    for system in suite.systems:
        first, second = (bank.unit(system, [pair[side] for pair in pairs.pairs]) for side in (0, 1))
        distances = np.square(first[alike] - second[alike]).sum(1)
        samples = intervals.mean_samples(distances, "alignment", pairs.name, **suite.bootstrap)
        scores.add(system, "alignment", pairs.name, _mean(distances), samples, rows=len(distances))
        both = np.concatenate([first, second])
        scores.add(system, "uniformity", pairs.name, uniformity(both), rows=len(both))
    note = (
        "Alignment: mean squared distance of pairs scored 4 or more, less is better. Uniformity: ln of the mean of "
        "exp(−2 distance²), less is more even."
    )
    differences = scores.differences(suite.pairings, "alignment")
    rows = wide(scores.frame(), SYSTEM, "measure", 3)
    suite.tables.append(Table(f"Geometry, {pairs.name} test", rows, (note,), left=2))
    suite.tables += results.difference_tables("Alignment", differences, digits=3, verdict=False)
    return results.content(scores, differences)


def frequency_ranks(encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    """Rank of every id of the vocabulary by frequency: int64 [vocabulary], 0 the most frequent; unseen ids come last.

    [CLS] and [SEP] count once a text. Ties go to the smaller id.
    """
    ids = [number for ids in encoder.tokenizer.encode(texts) for number in ids]
    ids += [encoder.tokenizer.cls, encoder.tokenizer.sep] * len(texts)
    frequency = np.bincount(ids, minlength=encoder.model.config.vocab_size)
    return np.argsort(np.argsort(-frequency, kind="stable"))


def mean_without(rank: Tensor, removed: int, layers: Sequence[int]) -> Pool:
    """The mean of the tokens whose rank is `removed` or more; a sentence without any such token keeps all tokens.

    The tokens are left out of the average; the encoder still reads them (ConSERT, section 5.1).
    """

    def pool(model: BertModel, states: Sequence[Tensor], ragged: Ragged) -> Tensor:
        x = torch.stack([states[layer].float() for layer in layers]).mean(0)
        kept = (rank.to(x.device)[ragged.ids] >= removed).float()[:, None]
        share = pooling.mean_of(kept, ragged)  # [B, 1]
        return torch.where(share > 0, pooling.mean_of(x * kept, ragged) / share, pooling.mean_of(x, ragged))

    return pool


def frequency(suite: Suite, pairs: ScoredSet, scored: Sequence[ScoredSet]) -> dict[str, Any]:
    """Mean over the sets of Spearman's rho without the k most frequent tokens of `pairs` (ConSERT, Figure 4).

    There is a curve over k for every encoder; poolers that do not average tokens are probed as `mean`. A value is NaN
    where a set's rho is undefined.
    """
    scores, curves = Results(), {}
    over = f"mean of {len(scored)} sets" if len(scored) > 1 else scored[0].name
    for one in suite.loaded:
        rank = torch.from_numpy(frequency_ranks(one.encoder, pairs.texts))
        for pooler in dict.fromkeys(name if name in LAYERS else "mean" for name in one.poolers):
            system, bank = System(one.name, pooler), Bank(text for some in scored for text in some.texts)
            bank.add(one, {removed: mean_without(rank, removed, LAYERS[pooler]) for removed in STEPS})
            values = []
            for removed in STEPS:
                rhos = [metrics.spearman(bank.cosines(removed, some.pairs), some.gold) for some in scored]
                values.append(float(np.mean(list(map(nan_if_none, rhos)))))
                scores.add(system, "spearman", over, values[-1], removed=removed)
            if np.isfinite(values).all():
                curves[system.name] = values
    notes = (
        f"Spearman × 100, {over}; frequencies from {pairs.name} test, [CLS] and [SEP] counted too.",
        "Poolers that do not average tokens are probed as `mean`.",
    )
    if curves:
        suite.figures.append(suite.out / "probes-frequent-tokens")
        _draw_curves(suite.figures[-1], curves, over)
    frame = scores.frame()
    rows = wide(frame[frame["removed"].isin(_SHOWN)], SYSTEM, "removed", times=100)
    suite.tables.append(Table("Spearman without the most frequent tokens, by their number", rows, notes, left=2))
    return {"sets": [some.name for some in scored]} | results.content(scores)


def _draw_curves(path: Path, curves: Mapping[str, Sequence[float]], sets: str) -> None:
    """Spearman by the number of frequent tokens left out of the mean (ConSERT, Figure 4), with a ring at the best."""
    with charts.panels(1, (8.0, 4.8)) as (axes,):
        for number, (name, values) in enumerate(curves.items()):
            shown, colour = [100 * value for value in values], SLOTS[number % len(SLOTS)]
            best = int(np.argmax(shown))
            label = f"{name}: {shown[0]:.2f}, best {shown[best]:.2f} without {STEPS[best]} tokens"
            axes.plot(STEPS, shown, color=colour, marker="o", markersize=4.5, label=label)
            ring: Any = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 2, "linestyle": "none"}
            axes.plot([STEPS[best]], [shown[best]], "o", markeredgecolor=colour, **ring)
        axes.margins(y=0.12)
        axes.set(xlabel="tokens left out, [CLS] and [SEP] among them", ylabel=f"Spearman's ρ × 100, {sets}")
        charts.legend(axes, 1)
        charts.title(axes.figure, "Leaving the most frequent tokens out of the mean")
        charts.save(axes.figure, path)


def length_shift(
    bank: Bank, system: System, encoder: Encoder, pairs: ScoredSet, added: str, *, seed: int, resamples: int
) -> dict[str, tuple[float, Any]]:
    """The effect of appending `added` to every second sentence, by measure: its value, and its bootstrap or ().

    `lengths nearer` is the mean change of the cosine where the addition brings the two lengths (in tokens) closer
    together, `lengths apart` where it moves them apart. `bank` holds the texts with and without the addition. EdaCSE,
    Table 1.
    """
    bootstrap = {"seed": seed, "resamples": resamples}
    changed = [(first, second + added) for first, second in pairs.pairs]
    both = np.stack([bank.cosines(system, pairs.pairs), bank.cosines(system, changed)])
    change = both[1] - both[0]
    gap = _length_gaps(encoder, changed) - _length_gaps(encoder, pairs.pairs)
    rho = [nan_if_none(metrics.spearman(side, pairs.gold)) for side in both]
    samples = intervals.bootstrap("Spearman's rho", both, pairs.gold, f"length bias {added}", **bootstrap)
    return {
        "cosine": (float(both[0].mean()), ()),
        "cosine then": (float(both[1].mean()), ()),
        "change": (_mean(change), intervals.mean_samples(change, "length bias", added, **bootstrap)),
        "lengths nearer": (_mean(change[gap < 0]), ()),
        "lengths apart": (_mean(change[gap > 0]), ()),
        "spearman": (rho[0], ()),
        "spearman then": (rho[1], ()),
        "spearman change": (rho[1] - rho[0], samples[1] - samples[0]),
    }


def _length_gaps(encoder: Encoder, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The difference of a pair's lengths in tokens: [pairs]."""
    first, second = (encoder.tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    return np.abs([len(one) - len(two) for one, two in zip(first, second, strict=True)])


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def length(suite: Suite, pairs: ScoredSet) -> dict[str, Any]:
    """Length shifts of every system, and the differences of the change."""
    scores = Results()
    bank = suite.bank(text for one, two in pairs.pairs for text in (one, two, *(two + more for more in ADDED)))
    for one in suite.loaded:
        for system in one.systems:
            for more in ADDED:
                shift = length_shift(bank, system, one.encoder, pairs, more, **suite.bootstrap)
                for measure, (value, samples) in shift.items():
                    scores.add(system, measure, repr(more), value, samples, rows=len(pairs.pairs))
            title = f"Length bias of {system.name}: {pairs.name}, {len(pairs.pairs):,} pairs"
            rows = wide(scores.frame(system=system), ["set"], "measure", 4).rename(columns={"set": "appended"})
            suite.tables.append(Table(title, rows, _LENGTH_NOTES))
    differences = scores.differences(suite.pairings, "change")
    title = f"Change of the cosine, {pairs.name}"
    suite.tables += results.difference_tables(title, differences, digits=3, verdict=False, column="appended")
    head = {"pairs": pairs.name, "count": len(pairs.pairs), "skipped": pairs.skipped}
    return head | results.content(scores, differences)
