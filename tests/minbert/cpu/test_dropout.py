"""Guards: dropout keeps at its rate, scales what it keeps, and a seed replays it.

python -m pytest --import-mode=importlib tests/minbert/cpu/test_dropout.py
"""

import math

import pytest
import torch

from minbert.cpu.dropout import FastDropout

RATES = [0.1, 0.5, 0.9]


def dropout(x: torch.Tensor, p: float) -> torch.Tensor:
    return FastDropout(p)(x)


@pytest.mark.parametrize("p", RATES)
def test_keep_rate_is_binomial(p: float) -> None:
    n = 200_003
    kept = int((dropout(torch.ones(n), p) != 0).sum())
    assert abs(kept - (1 - p) * n) < 5 * math.sqrt(n * p * (1 - p))
    places = (dropout(torch.ones(40_000, 4), p) != 0).float().mean(0)  # each place of a 64-bit draw
    assert (places - (1 - p)).abs().max() < 5 * math.sqrt(p * (1 - p) / 40_000)


@pytest.mark.parametrize("p", RATES)
def test_what_is_kept_is_scaled_in_the_sum_and_in_its_gradients(p: float) -> None:
    x, residual = (torch.randn(3000) + 5).requires_grad_(), torch.full((3000,), 0.5, requires_grad=True)
    out = FastDropout(p).add(residual, x)
    factors = (out != 0.5).float() / (1 - p)
    torch.testing.assert_close(out, 0.5 + x * factors, rtol=2e-4, atol=0)
    out.sum().backward()
    assert x.grad is not None and residual.grad is not None
    torch.testing.assert_close(x.grad, factors, rtol=2e-4, atol=0)
    assert torch.equal(residual.grad, torch.ones(3000))


def test_a_seed_replays_the_mask_and_another_seed_does_not() -> None:
    x, draws = torch.ones(1001), []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        draws.append(dropout(x, 0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_gradient_is_the_mask() -> None:
    x = torch.randn(500, requires_grad=True)
    out = dropout(x, 0.25)
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (out / x).detach(), rtol=1e-5, atol=1e-6)
