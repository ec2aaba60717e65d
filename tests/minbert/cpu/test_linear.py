"""Guards: the blocked linear layer equals torch's under bf16 autocast for any number of rows, with few block heights.

python -m pytest --import-mode=importlib tests/minbert/cpu/test_linear.py
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from minbert.cpu.linear import FastLinear, heights, linear

ROWS = [1, 2, 31, 32, 33, 63, 64, 1000, 2047, 2048, 2049, 2080, 4096, 5001]


@pytest.mark.parametrize("rows", ROWS)
def test_heights_sum_to_the_rows(rows: int) -> None:
    assert sum(heights(rows)) == rows
    assert min(heights(rows)) > 0


def test_heights_come_from_a_small_set() -> None:
    seen = {height for rows in range(1, 8000) for height in heights(rows)}
    assert len(seen) <= 2048 // 32 + 32
    assert max(seen) <= 2048


def run(kind: str, rows: int, half: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 24, generator=generator).requires_grad_()
    weight = torch.randn(40, 24, generator=generator).requires_grad_()
    bias = torch.randn(40, generator=generator).requires_grad_()
    direction = torch.randn(rows, 40, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        out = (linear if kind == "ours" else F.linear)(x, weight, bias)
    assert out.dtype == (torch.bfloat16 if half else torch.float32)
    return [out, *torch.autograd.grad((out.float() * direction).sum(), [x, weight, bias])]


@pytest.mark.parametrize("rows", ROWS)
def test_values_and_gradients_are_as_close_to_exact_as_torch(rows: int) -> None:
    exact, mine, theirs = run("torch", rows, False), run("ours", rows, True), run("torch", rows, True)
    for wanted, value, reference in zip(exact, mine, theirs, strict=True):
        size = wanted.norm()
        assert value.shape == wanted.shape
        assert (value.float() - wanted).norm() <= 0.006 * size
        assert (value.float() - wanted).norm() <= 1.1 * (reference.float() - wanted).norm() + 1e-3 * size


def test_values_equal_torchs_to_bf16_rounding() -> None:
    torch.testing.assert_close(run("ours", 64, True)[0], run("torch", 64, True)[0], rtol=1e-2, atol=1e-2)


def test_without_autocast_it_is_torchs() -> None:
    assert all(torch.equal(a, b) for a, b in zip(run("ours", 70, False), run("torch", 70, False), strict=True))


def test_gradients_are_fp32_and_inputs_may_need_none() -> None:
    layer, x = FastLinear(8, 4), torch.randn(40, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x).float().sum().backward()
    assert layer.weight.grad is not None and layer.bias.grad is not None
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(4, 8), rtol=0.02, atol=0.05)
    torch.testing.assert_close(layer.bias.grad, torch.full((4,), 40.0))


def test_a_row_does_not_depend_on_how_many_others_there_are() -> None:
    layer, x = FastLinear(24, 40), torch.randn(2100, 24)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        many = layer(x)
        torch.testing.assert_close(many[:33], layer(x[:33]), rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(many[2050:], layer(x[2050:]), rtol=1e-2, atol=1e-2)
