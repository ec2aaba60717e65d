"""Attention over groups of sentences of equal length on the CPU, with dropout and a hand-written backward pass.

A batch of 32 sentences has some 20 different lengths, so the number of calls dominates the cost. The heads are
therefore reordered once for all groups, and one tensor holds the probabilities of all groups, another their dropout
masks. Each group then takes three calls forward and five backward. The products run in fp32: a group's matrices are
small, and oneDNN would compile a bf16 kernel for each of their many shapes.

Axes: T tokens in the batch, B sentences, H heads, d width of a head. In a group of n sentences of equal length:
L tokens and Q queries per sentence (Q = L, or 1 if only the [CLS] rows are needed). The suffix `_g` is the part of one
group; `grad_x` is the gradient of x.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from minbert.attention import grouped, rows_of_groups
from minbert.fast.dropout import keep_factors
from minbert.ragged import Ragged, inverse, ramp

_LARGEST_EXPONENT = 80  # exp(80) times 512 tokens is still a number in fp32 and bf16, and exp(-80) is not rounded to 0


def attend(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """`minbert.attention.attend` for the CPU: `GroupedAttention` with gradients or dropout, `two_products` in bf16."""
    if torch.is_grad_enabled() or dropout:
        explicit: Tensor = GroupedAttention.apply(query, key, value, ragged, dropout)  # type: ignore[no-untyped-call]
        return explicit
    if query.dtype == torch.float32:
        return grouped(query, key, value, ragged)
    return two_products(query, key, value, ragged)


def two_products(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged) -> Tensor:
    """softmax(q k' / sqrt(d)) v, without gradients: `query` [T, H, d] or [B, H, d], `key` and `value` [T, H, d].

    In bf16, two plain products take half the time of `F.scaled_dot_product_attention` at usual sentence lengths.
    torch's softmax works row by row, and a row is only as long as a sentence; so exp(scores) v is divided by the row
    sums of exp(scores) instead, in passes over a whole group (10% of an encoding on a Xeon with AMX).
    """
    scale = 1 / math.sqrt(query.shape[-1])
    sizes = rows_of_groups(key, ragged)
    query_sizes = rows_of_groups(query, ragged)
    output = torch.empty(query.shape, dtype=query.dtype)
    rows = zip(query.split(query_sizes), key.split(sizes), value.split(sizes), output.split(query_sizes), strict=True)
    for (n, _), (query_g, key_g, value_g, output_g) in zip(ragged.groups, rows, strict=True):
        q = _by_head(query_g, n)  # [n * H, Q, d]
        k = _by_head(key_g, n)  # [n * H, L, d]
        v = _by_head(value_g, n)
        scores = torch.bmm(q, k.transpose(1, 2)).mul_(scale)  # [n * H, Q, L]
        low, high = torch.aminmax(scores)
        if not -_LARGEST_EXPONENT < low <= high < _LARGEST_EXPONENT:
            scores -= scores.amax(-1, keepdim=True)
        weights = scores.exp_()
        sums = weights.sum(-1, keepdim=True).unflatten(0, (n, -1))
        weighted = torch.bmm(weights, v).unflatten(0, (n, -1))  # [n, H, Q, d]
        torch.div(weighted.transpose(1, 2), sums.transpose(1, 2), out=output_g.unflatten(0, (n, -1)))
    return output


def _by_head(x: Tensor, n: int) -> Tensor:
    """[n * L, H, d] to [n * H, L, d]."""
    return x.unflatten(0, (n, -1)).transpose(1, 2).flatten(0, 1)


class GroupedAttention(torch.autograd.Function):
    """dropout(softmax(q k' / sqrt(d))) v.

    `query` is [T, H, d] or [B, H, d]; `key` and `value` are [T, H, d]. Returns the shape of `query`.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, p: float) -> Tensor:
        """The formula of the class; dropout masks are drawn from torch's default generator."""
        layout = _Layout(query, ragged)
        scale = 1 / math.sqrt(query.shape[-1])
        q = layout.gather(query) * scale
        k = layout.gather(key)
        v = layout.gather(value)
        probabilities = _probabilities(q, k, layout)
        factors = None
        dropped = probabilities
        if p:
            factors = keep_factors(probabilities, p)  # 0 or 1 / (1 - p)
            dropped = probabilities * factors
        out = torch.empty_like(q)
        for out_g, v_g, dropped_g in zip(layout.queries(out), layout.keys(v), layout.scores(dropped), strict=True):
            torch.bmm(dropped_g, v_g, out=out_g)
        ctx.layout = layout
        ctx.scale = scale
        ctx.save_for_backward(q, k, v, probabilities, factors, dropped)
        return layout.scatter(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Gradients of query, key and value."""
        q, k, v, probabilities, factors, dropped = ctx.saved_tensors
        layout: _Layout = ctx.layout
        grad_dropped, grad_v = _backward_of_weighted_sum(layout.gather(gradient), v, dropped, layout)
        if factors is not None:
            grad_dropped *= factors
        grad_q, grad_k = _backward_of_softmax(grad_dropped, probabilities, q, k, layout)
        grad_q *= ctx.scale
        return layout.scatter(grad_q), layout.scatter(grad_k), layout.scatter(grad_v), None, None


def _probabilities(q: Tensor, k: Tensor, layout: "_Layout") -> Tensor:
    """softmax(q k') of every group, flattened and concatenated."""
    scores = q.new_empty(layout.number_of_scores)
    probabilities = q.new_empty(layout.number_of_scores)
    rows = zip(layout.queries(q), layout.keys(k), layout.scores(scores), layout.scores(probabilities), strict=True)
    for q_g, k_g, scores_g, probabilities_g in rows:
        torch.bmm(q_g, k_g.transpose(1, 2), out=scores_g)
        torch.softmax(scores_g, -1, out=probabilities_g)
    return probabilities


def _backward_of_weighted_sum(grad_out: Tensor, v: Tensor, dropped: Tensor, layout: "_Layout") -> tuple[Tensor, Tensor]:
    """Backward of out = dropped v: from the gradient of `out`, the gradients of `dropped` and `v`."""
    grad_dropped = torch.empty_like(dropped)
    grad_v = torch.empty_like(v)
    rows = zip(layout.queries(grad_out), layout.keys(v), layout.keys(grad_v), strict=True)
    squares = zip(layout.scores(dropped), layout.scores(grad_dropped), strict=True)
    for (grad_out_g, v_g, grad_v_g), (dropped_g, grad_dropped_g) in zip(rows, squares, strict=True):
        torch.bmm(grad_out_g, v_g.transpose(1, 2), out=grad_dropped_g)
        torch.bmm(dropped_g.transpose(1, 2), grad_out_g, out=grad_v_g)
    return grad_dropped, grad_v


def _backward_of_softmax(
    grad_probabilities: Tensor, probabilities: Tensor, q: Tensor, k: Tensor, layout: "_Layout"
) -> tuple[Tensor, Tensor]:
    """Backward of probabilities = softmax(q k'): from their gradient, the gradients of `q` and `k`."""
    grad_q = torch.empty_like(q)
    grad_k = torch.empty_like(k)
    rows = zip(layout.queries(q), layout.keys(k), layout.queries(grad_q), layout.keys(grad_k), strict=True)
    squares = zip(layout.scores(grad_probabilities), layout.scores(probabilities), strict=True)
    for (q_g, k_g, grad_q_g, grad_k_g), (grad_probabilities_g, probabilities_g) in zip(rows, squares, strict=True):
        grad_scores_g = torch._softmax_backward_data(grad_probabilities_g, probabilities_g, -1, probabilities_g.dtype)
        torch.bmm(grad_scores_g, k_g, out=grad_q_g)
        torch.bmm(grad_scores_g.transpose(1, 2), q_g, out=grad_k_g)
    return grad_q, grad_k


class _Layout:
    """The memory layout of the groups: `gather` makes each head of a sentence contiguous, `scatter` is its inverse.

    On gathered tensors, `queries`, `keys` and `scores` return one view per group.
    """

    def __init__(self, query: Tensor, ragged: Ragged) -> None:
        rows, heads, width = query.shape
        one_query = rows == len(ragged)  # if all sentences have one token, both layouts agree
        self._dtype = query.dtype
        self._heads = heads
        self._order, self._inverse = _head_order(ragged, heads)
        self._queries: list[tuple[int, int, int]] = []
        self._keys: list[tuple[int, int, int]] = []
        self._scores: list[tuple[int, int, int]] = []
        for sentences, length in ragged.groups:
            n = sentences * heads
            queries = 1 if one_query else length
            self._queries.append((n, queries, width))
            self._keys.append((n, length, width))
            self._scores.append((n, queries, length))
        self.number_of_scores = sum(math.prod(shape) for shape in self._scores)

    def gather(self, x: Tensor) -> Tensor:
        """[T, H, d] to fp32 [T * H, d] in the order of `_head_order`; [B, H, d] needs no reordering."""
        x = x.flatten(0, 1)
        if len(x) == len(self._order):
            x = x.index_select(0, self._order)
        return x.float()

    def scatter(self, x: Tensor) -> Tensor:
        """The inverse of `gather`, in the dtype of the query."""
        x = x.to(self._dtype)
        if len(x) == len(self._inverse):
            x = x.index_select(0, self._inverse)
        return x.unflatten(0, (-1, self._heads))

    def queries(self, x: Tensor) -> list[Tensor]:
        """A view [n * H, Q, d] for each group."""
        return _views(x, self._queries)

    def keys(self, x: Tensor) -> list[Tensor]:
        """A view [n * H, L, d] for each group."""
        return _views(x, self._keys)

    def scores(self, x: Tensor) -> list[Tensor]:
        """A view [n * H, Q, L] for each group."""
        return _views(x, self._scores)


def _views(x: Tensor, shapes: list[tuple[int, int, int]]) -> list[Tensor]:
    parts = x.view(-1).split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _head_order(ragged: Ragged, heads: int) -> tuple[Tensor, Tensor]:
    """The order of the rows of [T * H, ...] in which each head of a sentence is contiguous, and its inverse, int64.

    The rows of a sentence are sorted by token, then head; in this order they are sorted by head, then token.
    """
    key = ("head order", heads)
    if key not in ragged.memo:  # the same in every layer
        lengths = np.array(ragged.lengths)
        head_lengths = np.repeat(lengths, heads)  # [B * H]
        first_tokens = np.repeat(np.cumsum(lengths) - lengths, heads)  # [B * H]
        tokens = np.repeat(first_tokens, head_lengths) + ramp(head_lengths)  # [T * H]
        head = np.repeat(np.tile(np.arange(heads), len(lengths)), head_lengths)  # [T * H]
        order = torch.from_numpy(tokens * heads + head)
        ragged.memo[key] = (order, inverse(order))
    order, back = ragged.memo[key]
    return order, back
