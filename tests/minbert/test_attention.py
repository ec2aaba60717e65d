"""Guards: every attention equals the softmax formula, values and gradients; dropout is unbiased.

The groups, the padded batch and the CPU's attention by hand are held against the same formula by the same tests.

python -m pytest --import-mode=importlib tests/minbert/test_attention.py
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from minbert import Ragged, attention
from minbert.attention import reference
from minbert.fast import cpu_attention

H, d = 3, 8
LENGTHS = {"one token": (1, 1), "groups": (1, 1, 3, 3, 7), "unsorted": (6, 2, 6, 1, 3, 3)}
KINDS = ["tokens", "cls"]
Attend = Callable[..., Tensor]
ATTEND = {"grouped": attention.attend, "by hand": cpu_attention.attend, "padded": attention.padded}


@pytest.fixture(params=ATTEND)
def attend(request: pytest.FixtureRequest) -> Attend:
    return ATTEND[request.param]


@pytest.fixture(params=LENGTHS)
def ragged(request: pytest.FixtureRequest) -> Ragged:
    return Ragged.from_lists([[1] * n for n in LENGTHS[request.param]])


def draw(ragged: Ragged, kind: str, scale: float = 2.0) -> list[Tensor]:
    """Query, key and value; one query for each token, or for each sentence."""
    queries = len(ragged.ids) if kind == "tokens" else len(ragged)
    sizes = (queries, len(ragged.ids), len(ragged.ids))
    return [(torch.randn(n, H, d) * scale).requires_grad_() for n in sizes]


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_equal_reference(attend: Attend, ragged: Ragged, kind: str) -> None:
    qkv = draw(ragged, kind)
    out = attend(*qkv, ragged)
    wanted = reference(*qkv, ragged)
    direction = torch.randn_like(wanted)
    with torch.no_grad():
        torch.testing.assert_close(attend(*qkv, ragged), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)
    gradients = torch.autograd.grad((out * direction).sum(), qkv)
    wanted_gradients = torch.autograd.grad((wanted * direction).sum(), qkv)
    torch.testing.assert_close(gradients, wanted_gradients, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_stays_half(attend: Attend, ragged: Ragged, kind: str) -> None:
    qkv = [x.detach().bfloat16().requires_grad_() for x in draw(ragged, kind, 1.0)]
    out = attend(*qkv, ragged)
    assert out.dtype == torch.bfloat16
    wanted = reference(*[x.detach().double() for x in qkv], ragged)
    torch.testing.assert_close(out.double(), wanted, atol=2e-2, rtol=0)
    with torch.no_grad():
        # without gradients accelerated attention takes another path, which rounds once more
        torch.testing.assert_close(attend(*qkv, ragged).double(), wanted, atol=4e-2, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_rate_and_scale(attend: Attend, kind: str) -> None:
    """Values that are unit vectors make the output the dropped probabilities themselves."""
    ragged = Ragged.from_lists([[1] * d] * 60)
    q, k, _ = draw(ragged, kind)
    v = torch.eye(d)[:, None, :].expand(d, H, d).repeat(60, 1, 1)
    with torch.no_grad():
        dropped = attend(q, k, v, ragged, 0.3)
        kept = reference(q, k, v, ragged)
    zero = dropped == 0
    n = zero.numel()
    assert abs(zero.sum().item() - 0.3 * n) < 5 * math.sqrt(0.3 * 0.7 * n)
    torch.testing.assert_close(dropped[~zero], kept[~zero] / 0.7, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_gradient_uses_the_mask(attend: Attend, kind: str) -> None:
    """The mask is read off a forward pass with unit values, then autograd differentiates the formula with it."""
    ragged = Ragged.from_lists([[1] * d] * 3)
    q, k, v = draw(ragged, kind, 1.0)
    unit = torch.eye(d)[:, None, :].expand(d, H, d).repeat(3, 1, 1)
    torch.manual_seed(11)
    with torch.no_grad():
        mask = (attend(q, k, unit, ragged, 0.5) != 0).float() * 2  # [T or B, H, L]
    torch.manual_seed(11)
    out = attend(q, k, v, ragged, 0.5)
    queries = q.unflatten(0, (3, -1))  # [B, Q, H, d]
    scores = torch.einsum("bqhd,blhd->bqhl", queries, k.unflatten(0, (3, d))) / math.sqrt(d)
    dropped = scores.softmax(-1) * mask.unflatten(0, (3, -1))
    wanted = torch.einsum("bqhl,blhd->bqhd", dropped, v.unflatten(0, (3, d))).flatten(0, 1)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)
    direction = torch.randn_like(out)
    gradients = torch.autograd.grad((out * direction).sum(), [q, k, v])
    wanted_gradients = torch.autograd.grad((wanted * direction).sum(), [q, k, v])
    torch.testing.assert_close(gradients, wanted_gradients, atol=1e-5, rtol=1e-5)
