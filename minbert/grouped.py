"""Attention over groups of sentences of equal length, with dropout, forward and backward by hand.

A batch of 32 sentences has some 20 different lengths, so what costs is the number of calls: the heads are laid out
once for all groups, probabilities and masks of all groups lie in one piece of memory, and each group then takes
three calls forward and five backward. On the CPU the products run in fp32: a group's matrices are small, and oneDNN
would compile a bf16 kernel for each of their many shapes.

Axes: T tokens in the batch, B sentences, H heads, d width of a head; in a group, n sentences of L tokens, each
asking Q queries (Q = L, or 1 where only the [CLS] rows are wanted).
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from minbert.dropout import keep_factors
from minbert.ragged import Ragged


class GroupedAttention(torch.autograd.Function):
    """dropout(softmax(q k' / sqrt(d))) v for [T or B, H, d], [T, H, d], [T, H, d]; returns the shape of `query`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, p: float) -> Tensor:
        """What the class says; masks are drawn from torch's default generator."""
        ctx.layout = layout = _Layout(query, ragged)
        ctx.scale = 1 / math.sqrt(query.shape[-1])
        q, k, v = layout.gather_queries(query) * ctx.scale, layout.gather_keys(key), layout.gather_keys(value)
        probabilities = _probabilities(q, k, layout)
        factors = keep_factors(probabilities, p) if p else None  # what dropout multiplies with
        dropped = probabilities if factors is None else probabilities * factors
        out = torch.empty_like(q)
        for out_g, v_g, dropped_g in zip(layout.queries(out), layout.keys(v), layout.squares(dropped), strict=True):
            torch.bmm(dropped_g, v_g, out=out_g)
        ctx.save_for_backward(q, k, v, probabilities, factors, dropped)
        return layout.return_queries(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Gradients of query, key and value."""
        q, k, v, probabilities, factors, dropped = ctx.saved_tensors
        layout: _Layout = ctx.layout
        to_dropped, to_v = _through_mixing(layout.gather_queries(gradient), v, dropped, layout)
        if factors is not None:
            to_dropped *= factors
        to_q, to_k = _through_softmax(to_dropped, probabilities, q, k, layout)
        to_q *= ctx.scale
        return layout.return_queries(to_q), layout.return_keys(to_k), layout.return_keys(to_v), None, None


def _probabilities(q: Tensor, k: Tensor, layout: "_Layout") -> Tensor:
    """softmax(q k') of every group, end to end."""
    scores, probabilities = q.new_empty(layout.area), q.new_empty(layout.area)
    queries, keys = layout.queries(q), layout.keys(k)
    for q_g, k_g, scores_g, probabilities_g in zip(
        queries, keys, layout.squares(scores), layout.squares(probabilities), strict=True
    ):
        torch.bmm(q_g, k_g.transpose(1, 2), out=scores_g)
        torch.softmax(scores_g, -1, out=probabilities_g)
    return probabilities


def _through_mixing(to_out: Tensor, v: Tensor, dropped: Tensor, layout: "_Layout") -> tuple[Tensor, Tensor]:
    """Backward of out = dropped v: the gradients of `dropped` and `v`."""
    to_dropped, to_v = torch.empty_like(dropped), torch.empty_like(v)
    outputs, values, to_values = layout.queries(to_out), layout.keys(v), layout.keys(to_v)
    for to_out_g, v_g, to_v_g, dropped_g, to_dropped_g in zip(
        outputs, values, to_values, layout.squares(dropped), layout.squares(to_dropped), strict=True
    ):
        torch.bmm(to_out_g, v_g.transpose(1, 2), out=to_dropped_g)
        torch.bmm(dropped_g.transpose(1, 2), to_out_g, out=to_v_g)
    return to_dropped, to_v


def _through_softmax(
    to_probabilities: Tensor, probabilities: Tensor, q: Tensor, k: Tensor, layout: "_Layout"
) -> tuple[Tensor, Tensor]:
    """Backward of probabilities = softmax(q k'): the gradients of `q` and `k`."""
    to_q, to_k = torch.empty_like(q), torch.empty_like(k)
    rows = zip(layout.queries(q), layout.keys(k), layout.queries(to_q), layout.keys(to_k), strict=True)
    squares = zip(layout.squares(to_probabilities), layout.squares(probabilities), strict=True)
    for (q_g, k_g, to_q_g, to_k_g), (to_probabilities_g, probabilities_g) in zip(rows, squares, strict=True):
        to_scores_g = torch._softmax_backward_data(to_probabilities_g, probabilities_g, -1, probabilities_g.dtype)
        torch.bmm(to_scores_g, k_g, out=to_q_g)
        torch.bmm(to_scores_g.transpose(1, 2), q_g, out=to_k_g)
    return to_q, to_k


class _Layout:
    """Where the rows of each group and head lie: `gather_*` brings them together, `return_*` takes them back.

    In between, `queries`, `keys` and `squares` give one view for each group.
    """

    def __init__(self, query: Tensor, ragged: Ragged) -> None:
        rows, heads, width = query.shape
        single = rows == len(ragged)  # one query a sentence; where every sentence is one token both layouts agree
        groups = [(n * heads, 1 if single else length, length) for n, length in ragged.groups]
        self._single, self._dtype, self._tail = single, query.dtype, (heads, width)
        self._order, self._inverse = ragged.head_order(heads), ragged.head_order_inverse(heads)
        self._query_shapes = [(n, asked, width) for n, asked, _ in groups]
        self._key_shapes = [(n, length, width) for n, _, length in groups]
        self._square_shapes = groups
        self.area = sum(n * asked * length for n, asked, length in groups)

    def gather_keys(self, x: Tensor) -> Tensor:
        """[T, H, d] to [T * H, d], the rows of a group and a head together; fp32 on the CPU."""
        x = x.flatten(0, 1).index_select(0, self._order)
        return x if x.is_cuda else x.float()

    def gather_queries(self, x: Tensor) -> Tensor:
        """The same for [T, H, d] or [B, H, d]; one query a sentence lies as it should already."""
        if not self._single:
            return self.gather_keys(x)
        x = x.flatten(0, 1)
        return x if x.is_cuda else x.float()

    def return_keys(self, x: Tensor) -> Tensor:
        """[T * H, d] to [T, H, d] in the dtype that came in."""
        return x.to(self._dtype).index_select(0, self._inverse).unflatten(0, (-1, self._tail[0]))

    def return_queries(self, x: Tensor) -> Tensor:
        """The same for queries."""
        return x.to(self._dtype).view(-1, *self._tail) if self._single else self.return_keys(x)

    def queries(self, x: Tensor) -> list[Tensor]:
        """[n * H, Q, d] for each group."""
        return _views(x, self._query_shapes)

    def keys(self, x: Tensor) -> list[Tensor]:
        """[n * H, L, d] for each group."""
        return _views(x, self._key_shapes)

    def squares(self, x: Tensor) -> list[Tensor]:
        """[n * H, Q, L] for each group."""
        return _views(x, self._square_shapes)


def _views(x: Tensor, shapes: list[tuple[int, int, int]]) -> list[Tensor]:
    parts = x.view(-1).split([a * b * c for a, b, c in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
