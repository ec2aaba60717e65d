"""Guards: attention of the CPU without gradients is the softmax formula, for scores of any size.

python -m pytest --import-mode=importlib tests/minbert/fast/test_cpu_attention.py
"""

import pytest
import torch

from minbert import Ragged
from minbert.attention import reference
from minbert.fast.cpu_attention import two_products

RAGGED = Ragged.from_lists([[1] * length for length in (6, 2, 6, 1, 3, 3)])


@pytest.mark.parametrize("scale", [1, 20, 200])
@torch.inference_mode()
def test_products_equal_the_formula(scale: int) -> None:
    """A scale of 200 gives scores whose exponentials are too large for a number, and others that are 0."""
    query = torch.randn(len(RAGGED.ids), 3, 8) * scale
    key = torch.randn(len(RAGGED.ids), 3, 8)
    value = torch.randn(len(RAGGED.ids), 3, 8)
    attended = two_products(query, key, value, RAGGED)
    torch.testing.assert_close(attended, reference(query, key, value, RAGGED), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("score", [-100.0, 87.0])
@torch.inference_mode()
def test_equal_scores_give_the_mean(score: float) -> None:
    """exp(-100) is nearly 0 in fp32, and the sum of 128 times exp(87) is infinite."""
    query = torch.full((128, 1, 4), score / 2)
    key = torch.ones(128, 1, 4)
    value = torch.randn(128, 1, 4)
    attended = two_products(query, key, value, Ragged.from_lists([[1] * 128]))
    torch.testing.assert_close(attended, value.mean(0).expand_as(value), atol=1e-5, rtol=1e-4)
