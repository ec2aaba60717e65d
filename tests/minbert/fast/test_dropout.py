"""Guards: dropout with 16 random bits drops at its rate and scales what it keeps, in values and gradients.

python -m pytest --import-mode=importlib tests/minbert/fast/test_dropout.py
"""

import math

import pytest
import torch

from minbert.fast.dropout import FastDropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keep_rate_is_binomial(p: float) -> None:
    n = 200_003
    x = torch.ones(n, requires_grad=True)
    out = FastDropout(p)(x)
    out.sum().backward()
    assert torch.equal(out, x.grad)
    kept = int((out != 0).sum())
    torch.testing.assert_close(out[out != 0], torch.full((kept,), 1 / (1 - p)), rtol=2e-4, atol=0)
    assert abs(kept - (1 - p) * n) < 5 * math.sqrt(n * p * (1 - p))
    # one 64-bit draw decides a row of four
    rows = FastDropout(p)(torch.ones(40_000, 4))
    rates = (rows != 0).float().mean(0)
    assert (rates - (1 - p)).abs().max() < 5 * math.sqrt(p * (1 - p) / 40_000)
