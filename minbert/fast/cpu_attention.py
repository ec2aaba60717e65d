"""Attention over groups of sentences of equal length on the CPU, with dropout and a hand-written backward pass.

A batch of 32 sentences has some 20 different lengths, so the number of calls dominates the cost. The heads are
therefore reordered once for all groups, and one tensor holds the probabilities of all groups, another their dropout
masks. Each group then takes four calls forward and seven backward with dropout. The products run in fp32: a group's
matrices are small, and oneDNN would compile a bf16 kernel for each of their many shapes.

Axes: T tokens in the batch, B sentences, H heads, d width of a head. In a group of n sentences of equal length:
L tokens and Q queries per sentence (Q = L, or 1 if only the [CLS] rows are needed). The suffix `_g` is the part of one
group; `grad_x` is the gradient of x.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from minbert.attention import grouped, rows_of_groups
from minbert.fast.dropout import keep_factors
from minbert.ragged import Ragged, inverse

_LONG = 128  # tokens of a sentence
_LARGEST_EXPONENT = 80  # exp(80) times 512 tokens is still a number in fp32 and bf16, and exp(-80) is not rounded to 0


def attend(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """`minbert.attention.attend` for the CPU.

    It is `GroupedAttention` with gradients or dropout, and `two_products` for all tokens of short sentences in bf16.
    """
    if torch.is_grad_enabled() or dropout:
        return GroupedAttention.apply(query, key, value, ragged, dropout)  # type: ignore[no-untyped-call]
    one_query = len(query) == len(ragged)
    if query.dtype != torch.bfloat16 or one_query or max(ragged.lengths) > _LONG:
        return grouped(query, key, value, ragged)
    return two_products(query, key, value, ragged)


def two_products(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged) -> Tensor:
    """softmax(q k' / sqrt(d)) v, without gradients: `query`, `key` and `value` [T, H, d].

    In a batch of short sentences, which has many small groups, two plain products are faster than
    `F.scaled_dot_product_attention`. torch's softmax works row by row, and a row is only as long as a sentence; so
    exp(scores) v is divided by the row sums of exp(scores) instead, in passes over a whole group. On a Xeon with AMX
    these passes save 10% of an encoding of short sentences; with 500 tokens an encoding takes 1.4 times as long.
    """
    scale = 1 / math.sqrt(query.shape[-1])
    sizes = rows_of_groups(key, ragged)
    output = torch.empty(query.shape, dtype=query.dtype)
    rows = zip(query.split(sizes), key.split(sizes), value.split(sizes), output.split(sizes), strict=True)
    for (n, _), (query_g, key_g, value_g, output_g) in zip(ragged.groups, rows, strict=True):
        q = _by_head(query_g, n)  # [n * H, L, d]
        k = _by_head(key_g, n)
        v = _by_head(value_g, n)
        scores = torch.bmm(q, k.transpose(1, 2)).mul_(scale)  # [n * H, L, L]
        low, high = torch.aminmax(scores)
        if not -_LARGEST_EXPONENT < low <= high < _LARGEST_EXPONENT:
            scores -= scores.amax(-1, keepdim=True)
        weights = scores.exp_()
        sums = weights.sum(-1, keepdim=True).unflatten(0, (n, -1))
        weighted = torch.bmm(weights, v).unflatten(0, (n, -1))  # [n, H, L, d]
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
        probabilities = q.new_empty(layout.number_of_scores)
        factors = keep_factors(probabilities, p) if p else None  # 0 or 1 / (1 - p)
        out = torch.empty_like(q)
        groups = zip(*layout.views(q, k, v, probabilities, factors), _views(out, layout.queries), strict=True)
        with torch.autocast("cpu", enabled=False):
            for q_g, k_g, v_g, probabilities_g, factors_g, out_g in groups:
                torch.softmax(torch.bmm(q_g, k_g.transpose(1, 2)), -1, out=probabilities_g)
                torch.bmm(_dropped(probabilities_g, factors_g), v_g, out=out_g)
        ctx.layout = layout
        ctx.scale = scale
        ctx.save_for_backward(q, k, v, probabilities, factors)
        return layout.scatter(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Gradients of query, key and value."""
        layout: _Layout = ctx.layout
        q, k, v, probabilities, factors = ctx.saved_tensors
        grad_out = layout.gather(gradient)
        grad_q = torch.empty_like(q)
        grad_k = torch.empty_like(k)
        grad_v = torch.empty_like(v)
        saved = layout.views(q, k, v, probabilities, factors)
        gradients = [_views(x, layout.queries) for x in (grad_out, grad_q)]
        gradients += [_views(x, layout.keys) for x in (grad_k, grad_v)]
        groups = zip(*saved, *gradients, strict=True)
        with torch.autocast("cpu", enabled=False):
            for q_g, k_g, v_g, probabilities_g, factors_g, grad_out_g, grad_q_g, grad_k_g, grad_v_g in groups:
                torch.bmm(_dropped(probabilities_g, factors_g).transpose(1, 2), grad_out_g, out=grad_v_g)
                grad = _dropped(torch.bmm(grad_out_g, v_g.transpose(1, 2)), factors_g)  # of the probabilities
                grad = torch._softmax_backward_data(grad, probabilities_g, -1, grad.dtype)  # of the scores
                torch.bmm(grad, k_g, out=grad_q_g)
                torch.bmm(grad.transpose(1, 2), q_g, out=grad_k_g)
        grad_q *= ctx.scale
        return layout.scatter(grad_q), layout.scatter(grad_k), layout.scatter(grad_v), None, None


def _dropped(x: Tensor, factors: Tensor | None) -> Tensor:
    return x if factors is None else x * factors


class _Layout:
    """The memory layout of the groups: `gather` makes each head of a sentence contiguous, `scatter` is its inverse.

    `queries`, `keys` and `scores` are the shapes of the groups' parts of a gathered tensor.
    """

    def __init__(self, query: Tensor, ragged: Ragged) -> None:
        rows, heads, width = query.shape
        one_query = rows == len(ragged)  # if all sentences have one token, both layouts agree
        self._dtype = query.dtype
        self._heads = heads
        self._order, self._inverse = _head_order(ragged, heads)
        self.queries: list[tuple[int, int, int]] = []  # [n * H, Q, d]
        self.keys: list[tuple[int, int, int]] = []  # [n * H, L, d]
        self.scores: list[tuple[int, int, int]] = []  # [n * H, Q, L]
        for sentences, length in ragged.groups:
            n = sentences * heads
            queries = 1 if one_query else length
            self.queries.append((n, queries, width))
            self.keys.append((n, length, width))
            self.scores.append((n, queries, length))
        self.number_of_scores = sum(math.prod(shape) for shape in self.scores)

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

    def views(self, q: Tensor, k: Tensor, v: Tensor, probabilities: Tensor, factors: Tensor | None) -> tuple[Any, ...]:
        """One list for each argument, with its view of each group, or None where there are no factors."""
        factors_g = [None] * len(self.scores) if factors is None else _views(factors, self.scores)
        q_g = _views(q, self.queries)
        return q_g, _views(k, self.keys), _views(v, self.keys), _views(probabilities, self.scores), factors_g


def _views(x: Tensor, shapes: list[tuple[int, int, int]]) -> list[Tensor]:
    """The part of each group as a view."""
    parts = x.view(-1).split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _head_order(ragged: Ragged, heads: int) -> tuple[Tensor, Tensor]:
    """The order of the rows of [T * H, ...] in which each head of a sentence is contiguous, and its inverse, int64.

    The rows of a sentence are sorted by token, then head; in this order they are sorted by head, then token.
    """
    key = ("head order", heads)
    if key not in ragged.memo:  # the same in every layer
        rows = torch.arange(len(ragged.ids) * heads).unflatten(0, (-1, heads))  # [T, H]
        parts = rows.split(rows_of_groups(rows, ragged))
        order = torch.cat([_by_head(part, n).flatten() for (n, _), part in zip(ragged.groups, parts, strict=True)])
        ragged.memo[key] = (order, inverse(order))
    order, back = ragged.memo[key]
    return order, back
