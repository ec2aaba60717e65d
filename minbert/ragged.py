"""A batch of sentences, concatenated into one sequence of tokens without padding.

Axes: T tokens in the batch, B sentences, L length of a padded row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from minbert.errors import UserError


@dataclass(frozen=True)
class Ragged:
    """Token ids of B sentences, concatenated.

    `ids`, `positions` and `types` are int64 [T]. `lengths` holds B Python integers that sum to T; they are on the
    host, so finding where a sentence ends needs no device sync. The sentences may be in any order; the encoder
    sorts them by length (`by_length`).
    """

    ids: Tensor
    positions: Tensor
    types: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def from_lists(cls, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> "Ragged":
        """Concatenate lists of token ids. Positions count from 0 in each list; token types default to 0."""
        if not ids or not all(len(row) for row in ids):
            raise UserError("a batch needs at least one sentence, and every sentence at least one token")
        lengths = tuple(len(row) for row in ids)
        if types is not None and lengths != tuple(len(row) for row in types):
            raise UserError("the lists of token types must be as long as the lists of ids")
        positions = torch.from_numpy(ramp(np.array(lengths)))
        joined = _joined(ids)
        return cls(joined, positions, torch.zeros_like(joined) if types is None else _joined(types), lengths)

    @classmethod
    def from_padded(cls, ids: Tensor, mask: Tensor | None = None) -> "Ragged":
        """The tokens of a padded [B, L] batch where the mask is 1, of type 0; a token's position is its column."""
        if ids.dim() != 2:
            raise UserError(f"input_ids must have shape [B, L], not {list(ids.shape)}")
        mask = torch.ones_like(ids) if mask is None else mask
        if mask.shape != ids.shape:
            raise UserError(
                f"attention_mask must have the shape of input_ids {list(ids.shape)}, not {list(mask.shape)}"
            )
        real = mask.bool()
        lengths = tuple(int(count) for count in real.sum(1).tolist())  # a device sync, and so is the indexing below
        if not lengths or min(lengths) == 0:
            raise UserError("attention_mask has a row without a single 1")
        columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        return cls(ids[real].long(), columns[real], columns.new_zeros(sum(lengths)), lengths)

    def to_padded(self, x: Tensor, length: int) -> Tensor:
        """Token rows [T, ...] as a zero-padded [B, length, ...]; a token's column is its position."""
        rows = torch.repeat_interleave(torch.arange(len(self)), torch.tensor(self.lengths)).to(x.device)
        padded = x.new_zeros(len(self), length, *x.shape[1:])
        return padded.index_put((rows, self.positions), x)

    def split(self, sentences: int) -> "tuple[Ragged, Ragged]":
        """The first `sentences` sentences, and the rest."""
        cut = sum(self.lengths[:sentences])
        first = Ragged(self.ids[:cut], self.positions[:cut], self.types[:cut], self.lengths[:sentences])
        return first, Ragged(self.ids[cut:], self.positions[cut:], self.types[cut:], self.lengths[sentences:])

    def select(self, sentences: np.ndarray) -> "tuple[Ragged, Tensor]":
        """The sentences of these numbers, in this order, and the indices of their tokens, int64."""
        lengths = np.array(self.lengths)
        starts, lengths = (np.cumsum(lengths) - lengths)[sentences], lengths[sentences]
        tokens = to_device(torch.from_numpy(np.repeat(starts, lengths) + ramp(lengths)), self.ids.device)
        ids, positions, types = (x.index_select(0, tokens) for x in (self.ids, self.positions, self.types))
        return Ragged(ids, positions, types, tuple(lengths.tolist())), tokens

    def repeated(self, times: int) -> "Ragged":
        """All sentences `times` times, one round after the other."""
        ids, positions, types = (x.repeat(times) for x in (self.ids, self.positions, self.types))
        return Ragged(ids, positions, types, self.lengths * times)

    def to(self, device: torch.device) -> "Ragged":
        """The same batch on another device."""
        if self.ids.device == device:
            return self
        together = to_device(torch.stack([self.ids, self.positions, self.types]), device)
        ids, positions, types = together.unbind()
        return replace(self, ids=ids, positions=positions, types=types)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Tensor:
        """Index of each sentence's first token, its [CLS]: int64 [B]."""
        return self.cu_seqlens[:-1].long()

    @cached_property
    def cu_seqlens(self) -> Tensor:
        """Cumulative sequence lengths, starting at 0, as variable-length kernels expect: int32 [B + 1]."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32)
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
        starts, longest = self.starts[:, None], max(self.lengths)
        columns = torch.arange(longest, device=self.ids.device)
        tokens = (starts + columns).clamp(max=len(self.ids) - 1).flatten()
        shifts = torch.arange(len(self), device=self.ids.device) * longest - self.starts
        shift = torch.repeat_interleave(shifts, self.lengths_on_device, output_size=len(self.ids))
        cells = torch.arange(len(self.ids), device=self.ids.device) + shift
        return tokens, cells, columns < self.lengths_on_device[:, None]

    @cached_property
    def groups(self) -> list[tuple[int, int]]:
        """Consecutive sentences of equal length, as (number of sentences, their length)."""
        return [(len(list(run)), length) for length, run in groupby(self.lengths)]

    def head_order(self, heads: int) -> tuple[Tensor, Tensor]:
        """Indices that reorder the rows of [T * H, ...] so that each head of a sentence is contiguous, int64 [T * H].

        The order of axes changes from group, sentence, token, head to group, sentence, head, token. The second tensor
        is the inverse permutation.
        """
        cached = self.__dict__.get("_orders")
        if cached is None or len(cached[0]) != len(self.ids) * heads:
            lengths = np.array(self.lengths)
            rows = np.repeat(lengths, heads)  # number of tokens for each sentence and head
            starts = np.repeat(np.cumsum(lengths) - lengths, heads)
            head = np.tile(np.arange(heads), len(lengths))
            order = (np.repeat(starts, rows) + ramp(rows)) * heads + np.repeat(head, rows)
            on_device = to_device(torch.from_numpy(order), self.ids.device)
            cached = self.__dict__["_orders"] = (on_device, inverse(on_device))
        return cached

    @cached_property
    def by_length(self) -> "tuple[Ragged, Tensor, Tensor] | None":
        """The batch sorted by length, with the token order [T] and the sentence order [B] that sort it.

        None if the batch is already sorted. The sort is stable.
        """
        order = np.argsort(self.lengths, kind="stable")
        if (order[1:] > order[:-1]).all():
            return None
        return *self.select(order), to_device(torch.from_numpy(order), self.ids.device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. A copy from the host to a GPU starts from pinned memory: the host does not wait for it."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def inverse(order: Tensor) -> Tensor:
    """The inverse permutation of `order`."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def _joined(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]))


def ramp(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ..., length - 1 for each length, which may be 0, concatenated."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
