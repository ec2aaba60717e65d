"""Dropout whose mask is drawn from 16 random bits an element: on the CPU several times as fast as torch's."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 1 << 16


def keep_mask(size: int, p: float) -> tuple[Tensor, float]:
    """A mask of `size` elements, each kept with a probability of 1 - p to the nearest 1/65536, and 1 / that probability.

    Four elements are cut from each 64-bit draw of torch's CPU generator.
    """
    dropped = round(p * _LEVELS)
    draws = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    mask = draws.view(torch.int16)[:size] >= dropped - _LEVELS // 2
    return mask, _LEVELS / (_LEVELS - dropped)


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p)."""
    if x.is_cuda or p in (0.0, 1.0):
        return F.dropout(x, p)
    mask, scale = keep_mask(x.numel(), p)
    return x * (mask.view(x.shape) * x.new_tensor(scale))


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        return dropout(x, self.p) if self.training and self.p else x
