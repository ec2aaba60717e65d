"""Dropout whose mask is drawn from 16 random bits an element: on the CPU several times as fast as torch's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_LEVELS = 1 << 16


def keep_mask(size: int, p: float) -> tuple[Tensor, float]:
    """A mask of `size` elements, and 1 / the probability that an element is kept: 1 - p to the nearest 1/65536.

    Four elements are cut from each 64-bit draw of torch's CPU generator.
    """
    dropped = round(p * _LEVELS)
    draws = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    mask = draws.view(torch.int16)[:size] >= dropped - _LEVELS // 2
    return mask, _LEVELS / (_LEVELS - dropped)


def keep_factors(like: Tensor, p: float) -> Tensor:
    """What dropout multiplies with, in the shape and dtype of `like`: 0, or the inverse of the share that is kept."""
    if like.is_cuda:
        return torch.empty_like(like).bernoulli_(1 - p).div_(1 - p)
    mask, scale = keep_mask(like.numel(), p)
    return mask.view(like.shape).to(like.dtype).mul_(scale)  # converted first: products of mixed dtypes are slow


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p)."""
    if x.is_cuda or p in (0.0, 1.0):
        return F.dropout(x, p)
    return x * keep_factors(x, p)


def add_dropped(residual: Tensor, x: Tensor, p: float) -> Tensor:
    """residual + dropout(x, p), in the dtype of `residual`."""
    if x.is_cuda or p in (0.0, 1.0):
        return residual + F.dropout(x, p)
    added: Tensor = _AddDropped.apply(residual, x, p)  # type: ignore[no-untyped-call]
    return added


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        return dropout(x, self.p) if self.training and self.p else x

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus what `forward` makes of `x`."""
        if self.training:
            return add_dropped(residual, x, self.p)
        return residual + x.to(residual.dtype)  # converted first: sums of mixed dtypes are slow


class _AddDropped(torch.autograd.Function):
    """One pass over memory where a mask, a product and a sum of mixed dtypes take three slow ones."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, p: float) -> Tensor:
        factors = keep_factors(residual, p)
        ctx.save_for_backward(factors)
        ctx.dtype = x.dtype
        return torch.addcmul(residual, x.to(residual.dtype), factors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (factors,) = ctx.saved_tensors
        return gradient, (gradient * factors).to(ctx.dtype), None
