"""A batch of sentences, concatenated into one sequence of tokens without padding.

Axes: T tokens in the batch, B sentences, L length of a padded row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from minbert.errors import UserError


class SortedBatch(NamedTuple):
    """A batch sorted by length, and the orders that sort it: of its tokens, int64 [T], and its sentences, int64 [B]."""

    ragged: "Ragged"
    token_order: Tensor
    sentence_order: Tensor


@dataclass(frozen=True)
class Ragged:
    """Token ids of B sentences, concatenated.

    `ids`, `positions` and `types` are int64 [T]. `lengths` holds B Python integers that sum to T; they are on the
    host, so finding where a sentence ends needs no device sync. The sentences may be in any order; the encoder
    sorts them by length (`by_length`). What is computed of a batch is kept with it, so a batch that was used inside
    `torch.inference_mode()` cannot be trained on: make a new one.
    """

    ids: Tensor
    positions: Tensor
    types: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def from_lists(cls, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> "Ragged":
        """Concatenate lists of token ids. Positions count from 0 in each list; token types default to 0."""
        lengths = tuple(len(row) for row in ids)
        _require_tokens(lengths)
        joined = _concatenate(ids)
        positions = torch.from_numpy(ramp(np.array(lengths)))
        joined_types = torch.zeros_like(joined) if types is None else _concatenate(types)
        return cls(joined, positions, joined_types, lengths)

    @classmethod
    def from_padded(cls, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> "Ragged":
        """The tokens of a padded [B, L] batch where the mask is 1, by default all, with their types, by default 0.

        A token's position is its column.
        """
        if mask is None:
            mask = torch.ones_like(ids)
        if types is None:
            types = torch.zeros_like(ids)
        real = mask.bool()
        # a device sync, and so is the indexing by `real` below
        lengths = tuple(int(count) for count in real.sum(1).tolist())
        _require_tokens(lengths)
        columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        return cls(ids[real].long(), columns[real], types.expand_as(ids)[real].long(), lengths)

    def to_padded(self, x: Tensor, length: int) -> Tensor:
        """Token rows [T, ...] as a zero-padded [B, length, ...]; a token's column is its position."""
        rows = torch.repeat_interleave(self.lengths_on_device, output_size=len(x))
        padded = x.new_zeros(len(self), length, *x.shape[1:])
        return padded.index_put((rows, self.positions), x)

    def split(self, sentences: int) -> "tuple[Ragged, Ragged]":
        """The first `sentences` sentences, and the rest."""
        cut = sum(self.lengths[:sentences])
        first = Ragged(self.ids[:cut], self.positions[:cut], self.types[:cut], self.lengths[:sentences])
        rest = Ragged(self.ids[cut:], self.positions[cut:], self.types[cut:], self.lengths[sentences:])
        return first, rest

    def select(self, sentences: np.ndarray) -> "tuple[Ragged, Tensor]":
        """The sentences of these numbers, in this order, and the indices of their tokens, int64."""
        all_lengths = np.array(self.lengths)
        all_starts = np.cumsum(all_lengths) - all_lengths
        lengths = all_lengths[sentences]
        index = np.repeat(all_starts[sentences], lengths) + ramp(lengths)
        tokens = to_device(torch.from_numpy(index), self.ids.device)
        selected = Ragged(
            self.ids.index_select(0, tokens),
            self.positions.index_select(0, tokens),
            self.types.index_select(0, tokens),
            tuple(lengths.tolist()),
        )
        return selected, tokens

    def repeated(self, times: int) -> "Ragged":
        """All sentences `times` times, one round after the other."""
        return Ragged(
            self.ids.repeat(times), self.positions.repeat(times), self.types.repeat(times), self.lengths * times
        )

    def to(self, device: str | torch.device) -> "Ragged":
        """The same batch on another device."""
        device = torch.device(device)
        if self.ids.device == device:
            return self
        # stacked, so that there is one copy to the device instead of three
        together = to_device(torch.stack([self.ids, self.positions, self.types]), device)
        return replace(self, ids=together[0], positions=together[1], types=together[2])

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Tensor:
        """Index of each sentence's first token, its [CLS]: int64 [B]."""
        return self.cu_seqlens[:-1].long()

    @cached_property
    def cu_seqlens(self) -> Tensor:
        """Cumulative sequence lengths, starting at 0, as variable-length kernels expect: int32 [B + 1]."""
        ends = np.cumsum([0, *self.lengths]).astype(np.int32)
        return to_device(torch.from_numpy(ends), self.ids.device)

    @cached_property
    def lengths_on_device(self) -> Tensor:
        """The lengths on the batch's device: int64 [B]."""
        return self.cu_seqlens.diff().long()

    @cached_property
    def padding(self) -> tuple[Tensor, Tensor, Tensor]:
        """Indices that pad the batch to its longest sentence, L tokens, and undo it.

        The index of each cell's token in a padded [B, L], an arbitrary one for padding: int64 [B * L]. The index of
        each token's cell: int64 [T]. The mask of the cells that hold tokens: bool [B, L].
        """
        device = self.ids.device
        longest = max(self.lengths)
        columns = torch.arange(longest, device=device)
        tokens = (self.starts[:, None] + columns).clamp(max=len(self.ids) - 1).flatten()
        # a token of sentence b moves from start[b] + column to b * L + column
        shifts = torch.arange(len(self), device=device) * longest - self.starts
        cells = torch.arange(len(self.ids), device=device)
        # with its size given, repeat_interleave needs no device sync
        cells = cells + torch.repeat_interleave(shifts, self.lengths_on_device, output_size=len(self.ids))
        return tokens, cells, columns < self.lengths_on_device[:, None]

    @cached_property
    def groups(self) -> list[tuple[int, int]]:
        """Consecutive sentences of equal length, as (number of sentences, their length)."""
        return [(len(list(run)), length) for length, run in groupby(self.lengths)]

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """Empty at first: `minbert.fast.cpu_attention` keeps here what is the same in all layers."""
        return {}

    @cached_property
    def by_length(self) -> SortedBatch | None:
        """The batch sorted by length, stably, with the orders that sort it; None if it is already sorted."""
        if (np.diff(self.lengths) >= 0).all():
            return None
        order = np.argsort(self.lengths, kind="stable")
        ragged, tokens = self.select(order)
        return SortedBatch(ragged, tokens, to_device(torch.from_numpy(order), self.ids.device))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. A copy from the host to a GPU starts from pinned memory: the host does not wait for it."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def inverse(order: Tensor) -> Tensor:
    """The inverse permutation of `order`."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def ramp(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ..., length - 1 for each length, which may be 0, concatenated."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _require_tokens(lengths: tuple[int, ...]) -> None:
    """Raises `UserError` for a batch with an empty sentence, whose start would be the next sentence's first token."""
    if not lengths or min(lengths) == 0:
        raise UserError("a batch needs at least one sentence, and every sentence at least one token")


def _concatenate(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]))
