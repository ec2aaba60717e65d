"""ConSERT's views of a sentence, made around the embedding layer of a ragged batch (ConSERT, section 3.2).

Axes: T tokens in the batch, B sentences, L tokens of a sentence, D hidden.

A view has two hooks. `positions` acts on what enters the embedding layer, `hidden` on its output, after its LayerNorm.
The released code (github.com/yym6472/ConSERT, transformers/modeling_bert.py) treats [CLS] and [SEP] as any other token:
they are shuffled and can be cut. `protect_special` leaves the first and the last token of each sentence unchanged and
does not count them in L. As in that code, exactly int(n * rate) of n items are cut and nothing is rescaled; this holds
for dropout too, where the paper speaks of a probability. Span cutoff follows the paper, not that code, whose `span`
keeps a run of int(L * (1 - rate)) tokens and replaces all others by [PAD].
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from minbert.bert import BertModel
from minbert.errors import UserError, one_of
from minbert.ragged import Ragged, inverse, ramp, to_device
from minbert.seeds import digest
from tasks.readers.kinds import parse_number

_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Streams:
    """Random bits for each sentence of a batch, a pure function of (seed, epoch, number of the view, key).

    `keys` (one for each text of the data) and `view_numbers` (0 for the first view) are int64 [B]. A stream does not
    depend on the rest of the batch, the chunk or the rank. Each sentence has its own SplitMix64 sequence (Steele et al.
    2014) of 64-bit words, which never repeat; those of a whole batch are computed at once, which a generator for each
    sentence cannot.
    """

    seed: int
    epoch: int
    keys: np.ndarray
    view_numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, sentences: np.ndarray | slice) -> "Streams":
        """The streams of some of the sentences, such as those of one chunk."""
        return replace(self, keys=self.keys[sentences], view_numbers=self.view_numbers[sentences])

    @cached_property
    def states(self) -> np.ndarray:
        """The first state of each sentence's sequence: uint64 [B]."""
        first, second = np.frombuffer(digest(self.seed, "views", self.epoch)[:16], dtype=np.uint64)
        # one mixing step for the row, one for the view, so that no two of them share a sequence
        by_key = _mixed(self.keys.astype(np.uint64) * _STEP + first)
        return _mixed((by_key ^ second) + self.view_numbers.astype(np.uint64) * _STEP)

    def random_bits(self, counts: np.ndarray) -> np.ndarray:
        """The first `counts[i]` words of each sentence i, end to end: uint64 [sum of counts]."""
        return _mixed(np.repeat(self.states, counts) + (ramp(counts) + 1).astype(np.uint64) * _STEP)

    def random_bits_of_each(self, counts: np.ndarray) -> Iterator[np.ndarray]:
        """The same words, one sentence after the other, so that many words stay in the processor's cache."""
        steps = (np.arange(counts.max(initial=0)) + 1).astype(np.uint64) * _STEP
        for state, count in zip(self.states, counts, strict=True):
            yield _mixed(state + steps[:count])

    def random_index(self, limits: np.ndarray) -> np.ndarray:
        """A whole number in 0..limits[i] - 1 for each sentence i: int64 [B]."""
        fractions = (self.random_bits(np.ones(len(self), dtype=np.int64)) >> np.uint64(11)) * 2.0**-53
        return (fractions * limits).astype(np.int64)

    def permutation(self, counts: np.ndarray) -> np.ndarray:
        """Runs of `counts` items end to end, each shuffled inside itself: int64 [sum of counts]."""
        return np.lexsort((self.random_bits(counts), np.repeat(np.arange(len(counts)), counts)))


@dataclass(frozen=True)
class View:
    """The identity view (`none`), and the base class of all others."""

    rate: float = 0.0
    protect_special: bool = False
    name: ClassVar[str] = "none"
    default_rate: ClassVar[float | None] = None  # None: the view takes no rate

    def positions(self, ragged: Ragged, streams: Streams) -> Ragged:
        """The batch that goes into the embedding layer."""
        return ragged

    def hidden(self, x: Tensor, ragged: Ragged, streams: Streams) -> Tensor:
        """The input of the first layer, from the embedding layer's output: [T, D] to [T, D]."""
        return x

    def _tokens(self, ragged: Ragged) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the tokens that the view may change, and their number in each sentence: [B]."""
        lengths = np.array(ragged.lengths)
        may_change = np.ones(lengths.sum(), dtype=bool)
        if self.protect_special:
            ends = np.cumsum(lengths)
            may_change[ends - lengths] = False  # [CLS]
            may_change[ends - 1] = False  # [SEP]
            lengths = np.maximum(lengths - 2, 0)
        return np.flatnonzero(may_change), lengths


class Shuffle(View):
    """Position ids permuted inside each sentence; token ids stay where they are."""

    name = "shuffle"

    def positions(self, ragged: Ragged, streams: Streams) -> Ragged:
        """The same tokens with permuted positions."""
        tokens, counts = self._tokens(ragged)
        source = np.arange(len(ragged.ids))
        source[tokens] = tokens[streams.permutation(counts)]
        return replace(ragged, positions=ragged.positions.index_select(0, _to_tensor(source, ragged.ids)))


class TokenCutoff(View):
    """Sets int(L * rate) rows of each sentence's L x D embedding to zero."""

    name = "token-cutoff"
    default_rate = 0.15

    def hidden(self, x: Tensor, ragged: Ragged, streams: Streams) -> Tensor:
        """Rows drawn without replacement."""
        tokens, counts = self._tokens(ragged)
        shuffled = tokens[streams.permutation(counts)]
        cut = ramp(counts) < np.repeat(_counts_to_cut(counts, self.rate), counts)
        return x.masked_fill(_row_mask(x, shuffled[cut]), 0.0)


class SpanCutoff(View):
    """Sets a run of int(L * rate) neighbouring rows of each sentence's L x D embedding to zero.

    ConSERT did not use it and names no rate: the default is token cutoff's.
    """

    name = "span-cutoff"
    default_rate = 0.15

    def hidden(self, x: Tensor, ragged: Ragged, streams: Streams) -> Tensor:
        """The start of the run is uniform."""
        tokens, counts = self._tokens(ragged)
        runs = _counts_to_cut(counts, self.rate)
        offset = ramp(counts) - np.repeat(streams.random_index(counts - runs + 1), counts)
        cut = (offset >= 0) & (offset < np.repeat(runs, counts))
        return x.masked_fill(_row_mask(x, tokens[cut]), 0.0)


class FeatureCutoff(View):
    """Sets int(D * rate) columns of each sentence's L x D embedding to zero, the same ones in all its rows."""

    name = "feature-cutoff"
    default_rate = 0.2

    def hidden(self, x: Tensor, ragged: Ragged, streams: Streams) -> Tensor:
        """Columns drawn without replacement."""
        width = x.shape[1]
        bits = streams.random_bits(np.full(len(ragged), width)).reshape(-1, width)
        columns = _to_tensor(mask_of_smallest(bits, int(width * self.rate)), x)  # [B, D]
        sentence = np.repeat(np.arange(len(ragged)), ragged.lengths)
        tokens, _ = self._tokens(ragged)
        of_sentence = columns.index_select(0, _to_tensor(sentence, x))  # [T, D]
        return x.masked_fill(of_sentence & _row_mask(x, tokens), 0.0)


class Dropout(View):
    """Sets int(L * D * rate) single entries of each sentence's L x D embedding to zero, without rescaling the rest."""

    name = "dropout"
    default_rate = 0.2

    def hidden(self, x: Tensor, ragged: Ragged, streams: Streams) -> Tensor:
        """Entries drawn without replacement."""
        tokens, counts = self._tokens(ragged)
        sizes = counts * x.shape[1]
        masks = []
        for bits, count in zip(streams.random_bits_of_each(sizes), _counts_to_cut(sizes, self.rate), strict=True):
            masks.append(mask_of_smallest(bits, count))
        cut = np.zeros((len(x), x.shape[1]), dtype=bool)
        cut[tokens] = np.concatenate(masks).reshape(-1, x.shape[1])
        return x.masked_fill(_to_tensor(cut, x), 0.0)


class Adversarial(View):
    """The embedding plus a `perturbation` (the paper's Fast Gradient Value); `rate` is its size.

    ConSERT's text names no size: the default is --noise_norm of the released main.py.
    """

    name = "adversarial"
    default_rate = 1.0

    def perturbation(self, gradient: Tensor, ragged: Ragged) -> Tensor:
        """rate * g / |g| for each token's gradient g, 0 where g is 0. [T, D], no graph.

        It is 0 too where g is not finite, after an overflow in fp16, and for a special token that is protected; the
        released code and the paper perturb every token. `gradient` [T, D] is that of the supervised loss with regard to
        the embedding layer's output.
        """
        rows = gradient.detach().float()
        rows = rows.where(rows.isfinite().all(1, keepdim=True), 0.0)
        largest = rows.abs().amax(1, keepdim=True)
        rows = rows / largest.where(largest > 0, 1.0)  # the squares of a small gradient would vanish
        norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(1.0)  # below 1 only where g is 0
        tokens, _ = self._tokens(ragged)
        change = (self.rate * rows / norm).where(_row_mask(gradient, tokens), 0.0)
        return change.to(gradient.dtype)


VIEWS: dict[str, type[View]] = {
    kind.name: kind for kind in (View, Shuffle, TokenCutoff, FeatureCutoff, SpanCutoff, Dropout, Adversarial)
}


def parse_views(spec: str, *, protect_special: bool = False) -> tuple[View, View]:
    """The two views of a text such as "feature-cutoff:0.2,shuffle"; a rate that is left out is the paper's.

    Raises `UserError` unless there are two views, of known names, with rates in range.
    """
    parts = [part.strip() for part in spec.split(",")]
    if len(parts) != 2:
        raise UserError(f"--views {spec!r}: two views of a text are needed, such as feature-cutoff:0.2,shuffle")
    return _parse_view(parts[0], protect_special), _parse_view(parts[1], protect_special)


def _parse_view(part: str, protect_special: bool) -> View:
    name, colon, number = part.partition(":")
    kind = VIEWS[one_of(name, VIEWS, "--views")]
    if kind.default_rate is None:
        if colon:
            raise UserError(f"--views: {part!r}: {kind.name} takes no rate")
        return kind(0.0, protect_special)
    rate = parse_number(number) if colon else kind.default_rate
    in_range = 0 <= rate < 1
    limits = "the rate must be at least 0 and below 1"
    if kind is Adversarial:
        in_range = 0 < rate < math.inf
        limits = "the size of the perturbation must be above 0"
    if not in_range:
        raise UserError(f"--views: {part!r}: {limits}")
    return kind(rate, protect_special)


def apply(
    model: BertModel, ragged: Ragged, views: Sequence[View], streams: Streams, *, perturbation: Tensor | None = None
) -> list[Tensor]:
    """Hidden states, as `BertModel.encode` gives them, with sentence i encoded under views[streams.view_numbers[i]].

    One call of the embedding layer and one of the encoder for all views; any mixture, order or chunk of sentences.
    `perturbation` [T, D] is added to the embeddings of sentences with an adversarial view; its other rows are ignored.
    """
    assert len(streams) == len(ragged), f"{len(streams)} keys for {len(ragged)} sentences"
    # the sentences of each view as a batch of their own
    parts = []
    positions = []
    token_indices = []
    for number in np.unique(streams.view_numbers):
        sentences = np.flatnonzero(streams.view_numbers == number)
        part, tokens = ragged.select(sentences)
        part_streams = streams.take(sentences)
        part = views[number].positions(part, part_streams)
        parts.append((views[number], part, part_streams, tokens))
        positions.append(part.positions)
        token_indices.append(tokens)

    # one call of the embedding layer for all views, in the order of the batch
    back = inverse(torch.cat(token_indices))
    viewed = replace(ragged, positions=torch.cat(positions).index_select(0, back))
    x = model.embed(viewed)

    # the views that act on its output
    pieces = []
    for view, part, part_streams, tokens in parts:
        piece = view.hidden(x.index_select(0, tokens), part, part_streams)
        if isinstance(view, Adversarial):
            assert perturbation is not None, "an adversarial view needs its perturbation"
            piece = piece + perturbation.index_select(0, tokens)
        pieces.append(piece)
    return model.encode(torch.cat(pieces).index_select(0, back), viewed)


def mask_of_smallest(words: np.ndarray, count: int) -> np.ndarray:
    """Mask of the `count` smallest words of each row: a random subset of that size, as no word is repeated."""
    if count == 0:
        return np.zeros(words.shape, dtype=bool)
    return words <= np.partition(words, count - 1, axis=-1)[..., count - 1 : count]


def _mixed(words: np.ndarray) -> np.ndarray:
    """SplitMix64's output function, in place: a bijection of 64-bit words (Stafford's variant 13)."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _counts_to_cut(sizes: np.ndarray, rate: float) -> np.ndarray:
    return (sizes * rate).astype(np.int64)


def _row_mask(x: Tensor, tokens: np.ndarray) -> Tensor:
    """Mask of whole rows of x: bool [T, 1]."""
    chosen = np.zeros((len(x), 1), dtype=bool)
    chosen[tokens] = True
    return _to_tensor(chosen, x)


def _to_tensor(array: np.ndarray, like: Tensor) -> Tensor:
    return to_device(torch.from_numpy(array), like.device)
