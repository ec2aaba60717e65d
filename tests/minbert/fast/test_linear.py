"""Guards: linear layers with rounded heights equal torch's, as exactly as torch's own bf16.

python -m pytest --import-mode=importlib tests/minbert/fast/test_linear.py
"""

import pytest
import torch
from torch import Tensor, nn

from minbert.fast.linear import FastLinear, rounded_height


def product(kind: type[nn.Linear], rows: int, dtype: torch.dtype) -> list[Tensor]:
    """The output of a layer, then the gradients of its input, weight and bias."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 24, generator=generator).requires_grad_()
    layer = kind(24, 40)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    direction = torch.randn(rows, 40, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        out = layer(x)
    assert out.dtype == dtype
    gradients = torch.autograd.grad((out.float() * direction).sum(), [x, *layer.parameters()])
    return [out, *gradients]


def test_few_heights_little_waste() -> None:
    heights = set()
    for rows in range(1, 1 << 15):
        height = rounded_height(rows)
        assert rows <= height < rows * 33 / 32 + 32
        assert height % 32 == 0
        heights.add(height)
    assert len(heights) <= 64 + 32 * 4


@pytest.mark.parametrize("rows", [1, 64, 5001])
def test_bf16_is_as_exact_as_torch(rows: int) -> None:
    exact = product(nn.Linear, rows, torch.float32)
    mine = product(FastLinear, rows, torch.bfloat16)
    theirs = product(nn.Linear, rows, torch.bfloat16)
    for wanted, value, reference in zip(exact, mine, theirs, strict=True):
        assert value.shape == wanted.shape
        size = wanted.norm()
        error = (value.float() - wanted).norm()
        assert error <= 0.006 * size
        assert error <= 1.1 * (reference.float() - wanted).norm() + 1e-3 * size
