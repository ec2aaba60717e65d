"""Guards: linear layers with rounded heights equal torch's, as exactly as torch's own bf16.

python -m pytest --import-mode=importlib tests/minbert/fast/test_linear.py
"""

import pytest
import torch
from torch import Tensor, nn

from minbert.fast.linear import FastLinear, rounded_height

HEIGHTS = [1, 33, 64, 2047, 2049, 5001]


def product(kind: str, rows: int, half: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 24, generator=generator).requires_grad_()
    layer = (FastLinear if kind == "ours" else nn.Linear)(24, 40)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    direction = torch.randn(rows, 40, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        out = layer(x)
    assert out.dtype == (torch.bfloat16 if half else torch.float32)
    return [out, *torch.autograd.grad((out.float() * direction).sum(), [x, *layer.parameters()])]


def test_few_heights_little_waste() -> None:
    heights = {rows: rounded_height(rows) for rows in range(1, 1 << 15)}
    assert all(rows <= height < rows * 33 / 32 + 32 for rows, height in heights.items())
    assert len(set(heights.values())) <= 64 + 32 * 4
    assert {height % 32 for height in heights.values()} == {0}


@pytest.mark.parametrize("rows", HEIGHTS)
def test_bf16_is_as_exact_as_torch(rows: int) -> None:
    exact, mine, theirs = product("torch", rows, False), product("ours", rows, True), product("torch", rows, True)
    for wanted, value, reference in zip(exact, mine, theirs, strict=True):
        size = wanted.norm()
        assert value.shape == wanted.shape
        assert (value.float() - wanted).norm() <= 0.006 * size
        assert (value.float() - wanted).norm() <= 1.1 * (reference.float() - wanted).norm() + 1e-3 * size
