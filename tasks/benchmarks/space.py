"""Two probes of an encoder's space: its geometry on STS-B, and how far frequent tokens spoil the mean of tokens.

Axes: N sentences or pairs, T tokens of a batch, D hidden.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minbert.bert import BertModel
from minbert.encode import Encoder
from minbert.ragged import Ragged
from minbert.seeds import numpy_generator
from minbert.training import start
from tasks import metrics
from tasks.benchmarks import figures, options, results, sets
from tasks.benchmarks.options import Loaded, System
from tasks.benchmarks.results import Probed, Table, defined, number
from tasks.benchmarks.sets import ScoredSet
from tasks.benchmarks.vectors import Bank, Way
from tasks.contrastive.validation import ALIKE, uniformity, unit

UNLIKE = 2.0  # gold similarity, of 5, below which a pair counts as dissimilar in the histogram

# The layers whose token vectors are averaged, for the poolers that are means of tokens.
LAYERS = {"mean": (-1,), "avg-first-last": (1, -1), "avg-static-last": (0, -1), "avg-last-two": (-2, -1)}
STEPS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 34, 36, 40, 50, 60, 80, 100)
_SHOWN = (0, 2, 8, 16, 24, 34, 50, 100)  # columns of the table


def mean_cosine(vectors: np.ndarray) -> float:
    """Mean cosine over all pairs of N unit vectors, without any N x N matrix; NaN for fewer than two.

    Near 0 the directions are used evenly; near 1 all sentences point one way (Ethayarajh 2019, section 4.1).
    """
    count, total = len(vectors), vectors.sum(0)
    if count < 2:
        return float("nan")
    return float((total @ total - np.square(vectors).sum()) / (count * (count - 1)))


def top_singular_share(vectors: np.ndarray) -> float:
    """The largest squared singular value of [N, D] over the sum of all: 1/D at best, 1 if all lie on one line."""
    values = np.linalg.eigvalsh(vectors.T @ vectors)
    return float(values[-1] / values.sum()) if values.sum() > 0 else float("nan")


def cosine_groups(one: ScoredSet, first: np.ndarray, second: np.ndarray, *, seed: int) -> dict[str, np.ndarray]:
    """Cosines of three kinds of pairs of unit vectors: random partners, pairs with a low and with a high score."""
    cosine = (first * second).sum(1)
    shuffled = numpy_generator(seed, "random pairs", one.name).permutation(len(first))
    random = (first * second[shuffled]).sum(1)[shuffled != np.arange(len(first))]
    return {
        "random pairs": random,
        f"human score below {UNLIKE:g}": cosine[one.gold < UNLIKE],
        f"human score {ALIKE:g} or more": cosine[one.gold >= ALIKE],
    }


def geometry(given: argparse.Namespace, loaded: list[Loaded], base: ScoredSet, out: Path) -> Probed:
    """Alignment over pairs with a score of 4 or more, uniformity over the sentences of all pairs, and isotropy.

    SimCSE, section 6. The alignment has an interval, and paired differences to the first encoder.
    """
    bank = Bank.of(loaded, (text for pair in base.pairs for text in pair))
    found, groups, alike = results.Results(), {}, base.gold >= ALIKE
    for system in options.systems(loaded):
        first, second = (unit(bank.of_texts(system, [pair[side] for pair in base.pairs])) for side in (0, 1))
        distances, distinct = np.square(first[alike] - second[alike]).sum(1), unit(bank.vectors[system])
        draws = results.means(distances, "alignment", base.shown, seed=given.seed, resamples=given.resamples)
        mean = float(distances.mean()) if len(distances) else None
        found.add(system, "alignment", base.shown, mean, draws, rows=len(distances))
        for measure, value in (
            ("uniformity", uniformity(np.concatenate([first, second]))),
            ("mean cosine", mean_cosine(distinct)),
            ("top singular share", top_singular_share(distinct)),
        ):
            found.add(system, measure, base.shown, value, rows=len(distances))
        groups[system.name] = cosine_groups(base, first, second, seed=given.seed)
    notes = (
        "Alignment: mean squared distance of pairs scored 4 or more, less is better. Uniformity: ln of the mean of "
        "exp(−2 distance²), less is more even.",
        "Isotropy: the mean cosine of any two sentences, and the largest squared singular value's share of all.",
    )
    figures.histogram(out / "probes-cosines", groups)
    apart = found.differences(options.references(loaded), "alignment")
    rows = results.wide(found.frame(), ("encoder", "pooler"), "measure", lambda value: number(value, 3))
    tables = [Table(f"Geometry, {base.shown} test", rows, notes, left=2)]
    tables += results.difference_tables("Alignment", apart, digits=3, verdict=False)
    return Probed(tables, results.content(found, apart), [out / "probes-cosines"])


def frequency_ranks(encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    """Rank of every id of the vocabulary by frequency: int64 [vocabulary], 0 the most frequent; unseen ids come last.

    [CLS] and [SEP] count once a text. Ties go to the smaller id.
    """
    counts = Counter(number for ids in encoder.tokenizer.encode(texts) for number in ids)
    counts.update({encoder.tokenizer.cls: len(texts), encoder.tokenizer.sep: len(texts)})
    frequency = np.zeros(encoder.model.config.vocab_size, dtype=np.int64)
    frequency[list(counts)] = list(counts.values())
    rank = np.empty(len(frequency), dtype=np.int64)
    rank[np.argsort(-frequency, kind="stable")] = np.arange(len(frequency))
    return rank


def mean_without(rank: Tensor, removed: int, layers: Sequence[int]) -> Way:
    """The mean of the tokens whose rank is `removed` or more; a sentence without any such token keeps all tokens."""

    def pool(model: BertModel, states: Sequence[Tensor], ragged: Ragged) -> Tensor:
        x = torch.stack([states[layer].float() for layer in layers]).mean(0)
        sentence = torch.repeat_interleave(
            torch.arange(len(ragged), device=x.device), torch.tensor(ragged.lengths, device=x.device)
        )
        kept = (rank.to(x.device)[ragged.ids] >= removed).float()
        empty = x.new_zeros(len(ragged)).index_add(0, sentence, kept) == 0
        kept = torch.where(empty[sentence], torch.ones_like(kept), kept)
        total = x.new_zeros(len(ragged), x.shape[1]).index_add(0, sentence, x * kept[:, None])
        return total / x.new_zeros(len(ragged)).index_add(0, sentence, kept)[:, None]

    return pool


def frequency_curve(one: Loaded, pooler: str, scored: Sequence[ScoredSet], counted: Iterable[str]) -> list[float]:
    """Mean over the sets of Spearman's rho without the k most frequent tokens of `counted`, for each k of STEPS.

    ConSERT, section 5.1 and Figure 4. The tokens are left out of the average; the encoder still reads them. NaN where
    a set's rho is undefined.
    """
    rank = torch.from_numpy(frequency_ranks(one.encoder, list(counted)))
    ways: Any = {removed: mean_without(rank, removed, LAYERS[pooler]) for removed in STEPS}
    texts = (text for some in scored for pair in some.pairs for text in pair)
    bank = Bank.encoded(one.encoder, texts, ways, name=one.name)
    return [
        float(np.mean([defined(metrics.spearman(bank.cosines(removed, some.pairs), some.gold)) for some in scored]))
        for removed in STEPS
    ]


def frequency(given: argparse.Namespace, loaded: list[Loaded], base: ScoredSet, out: Path) -> Probed:
    """The curve of every encoder; poolers that are no mean of tokens are probed as `mean`."""
    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets or "STS-B", folder))
    found, curves = results.Results(), {}
    spread = f"mean of {len(scored)} sets" if len(scored) > 1 else scored[0].shown
    for one in loaded:
        for pooler in dict.fromkeys(name if name in LAYERS else "mean" for name in one.poolers):
            system = System(one.name, pooler)
            values = frequency_curve(one, pooler, scored, (text for pair in base.pairs for text in pair))
            for removed, value in zip(STEPS, values, strict=True):
                found.add(system, "spearman", spread, value, removed=removed)
            if np.isfinite(values).all():
                curves[system.name] = values
    notes = (
        f"Spearman × 100 (protocol all), {spread}; frequencies from {base.shown} test, [CLS] and [SEP] counted too.",
        "Poolers that are no mean of tokens are probed as `mean`.",
    )
    paths = [out / "probes-frequent-tokens"] if curves else []
    if curves:
        figures.removed_tokens(paths[0], STEPS, curves, spread)
    frame = found.frame()
    shown = frame[frame["removed"].isin(_SHOWN)]
    rows = results.wide(shown, ("encoder", "pooler"), "removed", lambda value: number(value, times=100))
    table = Table("Spearman without the most frequent tokens, by their number", rows, notes, left=2)
    return Probed([table], {"sets": [some.shown for some in scored]} | results.content(found), paths)
