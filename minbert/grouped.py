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

from minbert.dropout import keep_mask
from minbert.ragged import Ragged

Shapes = list[tuple[int, int, int]]


class GroupedAttention(torch.autograd.Function):
    """dropout(softmax(q k' / sqrt(d))) v for [T or B, H, d], [T, H, d], [T, H, d]; returns the shape of `query`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, p: float) -> Tensor:
        heads, width = query.shape[1:]
        single = len(query) == len(ragged)  # one query a sentence; where every sentence is one token both layouts agree
        ctx.order = None if single else ragged.head_order(heads)
        ctx.inverse, ctx.key_order = ragged.head_order_inverse(heads), ragged.head_order(heads)
        ctx.groups = [(n * heads, 1 if single else length, length) for n, length in ragged.groups]
        ctx.dtype, ctx.scale = query.dtype, 1 / math.sqrt(width)
        q, k, v = _lay_out(query, ctx.order), _lay_out(key, ctx.key_order), _lay_out(value, ctx.key_order)
        q *= ctx.scale
        scores, probabilities, out = q.new_empty(_area(ctx.groups)), q.new_empty(_area(ctx.groups)), torch.empty_like(q)
        for q_g, k_g, scores_g, probabilities_g in zip(
            *_rows(q, k, ctx.groups), _squares(scores, ctx.groups), _squares(probabilities, ctx.groups), strict=True
        ):
            torch.bmm(q_g, k_g.transpose(1, 2), out=scores_g)
            torch.softmax(scores_g, -1, out=probabilities_g)
        mask = _mask(probabilities, p)
        dropped = torch.mul(probabilities, mask, out=scores)
        for out_g, v_g, dropped_g in zip(*_rows(out, v, ctx.groups), _squares(dropped, ctx.groups), strict=True):
            torch.bmm(dropped_g, v_g, out=out_g)
        ctx.save_for_backward(q, k, v, probabilities, mask, dropped)
        return _lay_back(out, None if single else ctx.inverse, query)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, probabilities, mask, dropped = ctx.saved_tensors
        groups = ctx.groups
        to_out = _lay_out(gradient, ctx.order)
        to_scores = torch.empty_like(probabilities)
        to_q, to_k, to_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        parts = zip(
            *_rows(to_out, v, groups),
            _rows(to_q, to_v, groups)[1],
            _squares(to_scores, groups),
            _squares(dropped, groups),
            strict=True,
        )
        for to_out_g, v_g, to_v_g, to_scores_g, dropped_g in parts:
            torch.bmm(to_out_g, v_g.transpose(1, 2), out=to_scores_g)
            torch.bmm(dropped_g.transpose(1, 2), to_out_g, out=to_v_g)
        to_scores *= mask
        parts = zip(
            *_rows(q, k, groups),
            *_rows(to_q, to_k, groups),
            _squares(to_scores, groups),
            _squares(probabilities, groups),
            strict=True,
        )
        for q_g, k_g, to_q_g, to_k_g, to_scores_g, probabilities_g in parts:
            inner = torch._softmax_backward_data(to_scores_g, probabilities_g, -1, probabilities_g.dtype)
            torch.bmm(inner, k_g, out=to_q_g)
            torch.bmm(inner.transpose(1, 2), q_g, out=to_k_g)
        to_q *= ctx.scale
        like = k.new_empty(0, dtype=ctx.dtype)
        shape = (-1, *gradient.shape[1:])
        return (
            _lay_back(to_q, None if ctx.order is None else ctx.inverse, like, shape),
            _lay_back(to_k, ctx.inverse, like, shape),
            _lay_back(to_v, ctx.inverse, like, shape),
            None,
            None,
        )


def _lay_out(x: Tensor, order: Tensor | None) -> Tensor:
    """[rows, H, d] to [rows * H, d], the rows of a group and a head together; fp32 on the CPU."""
    x = x.flatten(0, 1)
    x = x if x.is_cuda else x.float()
    return x.clone() if order is None else x.index_select(0, order)


def _lay_back(x: Tensor, inverse: Tensor | None, like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    x = x if inverse is None else x.index_select(0, inverse)
    return x.to(like.dtype).view(like.shape if shape is None else shape)


def _area(groups: Shapes) -> int:
    return sum(n * q * length for n, q, length in groups)


def _rows(x: Tensor, y: Tensor, groups: Shapes) -> tuple[list[Tensor], list[Tensor]]:
    """Views of queries `x` as [n, Q, d] and of keys or values `y` as [n, L, d], group by group."""
    xs = x.split([n * q for n, q, _ in groups])
    ys = y.split([n * length for n, _, length in groups])
    return (
        [part.unflatten(0, (n, q)) for part, (n, q, _) in zip(xs, groups, strict=True)],
        [part.unflatten(0, (n, length)) for part, (n, _, length) in zip(ys, groups, strict=True)],
    )


def _squares(x: Tensor, groups: Shapes) -> list[Tensor]:
    """Views of scores as [n, Q, L], group by group."""
    parts = x.split([n * q * length for n, q, length in groups])
    return [part.view(shape) for part, shape in zip(parts, groups, strict=True)]


def _mask(x: Tensor, p: float) -> Tensor:
    """What dropout multiplies with: 0, or the inverse of the share that is kept."""
    if p == 0.0:
        return torch.ones_like(x)
    if x.is_cuda:
        return torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)
    mask, scale = keep_mask(x.numel(), p)
    return mask * x.new_tensor(scale)
