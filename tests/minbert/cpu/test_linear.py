"""Guards: the blocked linear layer equals torch's under bf16 autocast for any number of rows, with few block heights.

python -m pytest --import-mode=importlib tests/minbert/cpu/test_linear.py
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from minbert.cpu.linear import blocked_linear, heights

ROWS = [1, 31, 33, 64, 2047, 2048, 2049, 2080, 5001]


def run(kind: str, rows: int, half: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 24, generator=generator).requires_grad_()
    weight = torch.randn(40, 24, generator=generator).requires_grad_()
    bias = torch.randn(40, generator=generator).requires_grad_()
    direction = torch.randn(rows, 40, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        out = (blocked_linear if kind == "ours" else F.linear)(x, weight, bias)
    assert out.dtype == (torch.bfloat16 if half else torch.float32)
    return [out, *torch.autograd.grad((out.float() * direction).sum(), [x, weight, bias])]


def test_heights_sum_to_the_rows_and_come_from_a_small_set() -> None:
    for rows in ROWS:
        assert sum(heights(rows)) == rows and min(heights(rows)) > 0
    assert len({height for rows in range(1, 8000) for height in heights(rows)}) <= 2048 // 32 + 32


@pytest.mark.parametrize("rows", ROWS)
def test_values_and_gradients_are_as_close_to_exact_as_torch(rows: int) -> None:
    exact, mine, theirs = run("torch", rows, False), run("ours", rows, True), run("torch", rows, True)
    for wanted, value, reference in zip(exact, mine, theirs, strict=True):
        size = wanted.norm()
        assert value.shape == wanted.shape
        assert (value.float() - wanted).norm() <= 0.006 * size
        assert (value.float() - wanted).norm() <= 1.1 * (reference.float() - wanted).norm() + 1e-3 * size


def test_without_autocast_it_is_torchs() -> None:
    assert all(torch.equal(a, b) for a, b in zip(run("ours", 70, False), run("torch", 70, False), strict=True))
