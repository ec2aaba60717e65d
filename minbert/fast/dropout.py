"""Dropout with 16 random bits per element, on the CPU several times as fast as torch's."""

import torch
from torch import Tensor, nn

_LEVELS = 1 << 16  # of a 16-bit number


def keep_factors(like: Tensor, p: float) -> Tensor:
    """The factors of dropout, in the shape and dtype of `like`: 0, or 1 / (1 - p) for a kept element.

    p is rounded to the nearest 1/65536. Each 64-bit draw of torch's CPU generator decides four elements.
    """
    size = like.numel()
    dropped = round(p * _LEVELS)
    random_words = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    # the levels of int16 begin at -_LEVELS / 2
    mask = random_words.view(torch.int16)[:size] >= dropped - _LEVELS // 2
    scale = _LEVELS / (_LEVELS - dropped)
    # cast first: products of mixed dtypes are slow
    return mask.view(like.shape).to(like.dtype).mul_(scale)


class FastDropout(nn.Dropout):
    """`nn.Dropout` with 16 random bits per element on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        if self.training and 0.0 < self.p < 1.0 and x.device.type == "cpu":
            return x * keep_factors(x, self.p)
        return super().forward(x)
