"""Guards: an accelerated model is the plain one: names, values, gradients; dropout, products, packed weights; on other
devices it is plain.

python -m pytest --import-mode=importlib tests/minbert/test_cpu.py
"""

import copy
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from minbert import BertConfig, BertModel, Encoder, Ragged, fast
from minbert.fast import FAST, accelerate, attention, dropout, linear
from minbert.fast.dropout import FastDropout
from minbert.fast.linear import Packed, blocked_linear, can_pack, heights
from minbert.precision import autocast, supports_bf16

ROWS = [[2, 9, 8, 7, 3], [2, 5, 3], [2, *range(5, 40), 3], [2, 3], [2, 6, 3]]


@pytest.fixture
def pair(tiny: Path) -> tuple[BertModel, BertModel]:
    """A plain model, and an accelerated one with the same weights."""
    model = BertModel.with_weights(tiny, BertConfig.read(tiny)).eval()
    return model, accelerate(copy.deepcopy(model))


def kinds(model: torch.nn.Module) -> list[type]:
    return [type(module) for module in model.modules()]


def outputs(model: BertModel) -> list[Tensor]:
    ragged = Ragged.from_lists(ROWS)
    return [*model.encode(model.embed(ragged), ragged), model.pooled(ragged)]


def gradients(model: BertModel) -> dict[str, Tensor]:
    model.zero_grad()
    sum(x.float().pow(3).mean() for x in outputs(model)).backward()  # type: ignore[union-attr]
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_every_plain_part_is_swapped(pair: tuple[BertModel, BertModel]) -> None:
    model, fast = pair
    assert not set(kinds(model)) & set(FAST.values())
    assert not set(kinds(fast)) & set(FAST)
    assert set(kinds(fast)) >= set(FAST.values())


def test_values_and_gradients_equal_the_plain_ones(pair: tuple[BertModel, BertModel]) -> None:
    model, fast = pair
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            for mine, wanted in zip(outputs(fast), outputs(model), strict=True):
                torch.testing.assert_close(mine, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients(fast), gradients(model), atol=1e-5, rtol=1e-4)


def test_in_bf16_it_is_as_close_to_fp32_as_the_plain_one(pair: tuple[BertModel, BertModel]) -> None:
    exact, exact_gradients = outputs(pair[0]), gradients(pair[0])
    errors, turns = [], []
    for model in pair:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            errors.append(sum((x.float() - y).norm() for x, y in zip(outputs(model), exact, strict=True)))
            found = gradients(model)
        assert found.keys() == exact_gradients.keys()
        flat = (torch.cat([of[name].flatten() for name in found]) for of in (found, exact_gradients))
        turns.append(1 - torch.nn.functional.cosine_similarity(*flat, dim=0))
    assert 0 < errors[1] < 1.2 * errors[0]
    assert turns[1] < 1.5 * turns[0] < 0.01


def test_on_another_device_every_part_is_plain(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device stands for all others: it has shapes and no numbers."""

    def never(*_: object) -> None:
        raise AssertionError("a fast part runs on another device")

    model = BertModel.from_pretrained(tiny).to("meta").train()
    monkeypatch.setattr(dropout, "keep_factors", never)
    monkeypatch.setattr(attention.GroupedAttention, "apply", never)
    monkeypatch.setattr(linear._BlockedLinear, "apply", never)
    ragged = Ragged.from_lists(ROWS).to(torch.device("meta"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = model.pooled(ragged)
    vectors.float().sum().backward()
    assert vectors.device.type == "meta" and vectors.shape == (5, 32)


RATES = [0.1, 0.5, 0.9]


@pytest.mark.parametrize("p", RATES)
def test_keep_rate_is_binomial(p: float) -> None:
    n = 200_003
    x = torch.ones(n, requires_grad=True)
    out = FastDropout(p)(x)
    out.sum().backward()
    assert torch.equal(out, x.grad)
    kept = int((out != 0).sum())
    torch.testing.assert_close(out[out != 0], torch.full((kept,), 1 / (1 - p)), rtol=2e-4, atol=0)
    assert abs(kept - (1 - p) * n) < 5 * math.sqrt(n * p * (1 - p))
    places = (FastDropout(p)(torch.ones(40_000, 4)) != 0).float().mean(0)  # each place of a 64-bit draw
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


HEIGHTS = [1, 31, 33, 64, 2047, 2048, 2049, 2080, 5001]


def product(kind: str, rows: int, half: bool) -> list[Tensor]:
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
    for rows in HEIGHTS:
        assert sum(heights(rows)) == rows and min(heights(rows)) > 0
    assert len({height for rows in range(1, 8000) for height in heights(rows)}) <= 2048 // 32 + 32


@pytest.mark.parametrize("rows", HEIGHTS)
def test_values_and_gradients_are_as_close_to_exact_as_torch(rows: int) -> None:
    exact, mine, theirs = product("torch", rows, False), product("ours", rows, True), product("torch", rows, True)
    for wanted, value, reference in zip(exact, mine, theirs, strict=True):
        size = wanted.norm()
        assert value.shape == wanted.shape
        assert (value.float() - wanted).norm() <= 0.006 * size
        assert (value.float() - wanted).norm() <= 1.1 * (reference.float() - wanted).norm() + 1e-3 * size


def test_without_autocast_it_is_torchs() -> None:
    assert all(torch.equal(a, b) for a, b in zip(product("ours", 70, False), product("torch", 70, False), strict=True))


CPU = torch.device("cpu")
PRECISIONS = [
    "fp32",
    pytest.param("bf16", marks=pytest.mark.skipif(not supports_bf16(CPU), reason="no fast bf16 products here")),
]
MANY = 1 << 20

needs_packing = pytest.mark.skipif(not can_pack(CPU, "fp32"), reason="no oneDNN products with packed weights here")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of rows of every packed product."""
    seen: list[int] = []
    product = Packed.__call__

    def counted(self: Packed, x: torch.Tensor, activation: str = "none") -> torch.Tensor:
        seen.append(len(x))
        return product(self, x, activation)

    monkeypatch.setattr(Packed, "__call__", counted)
    yield seen


@needs_packing
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("lengths", [(8, 24), (1,), (3, 3, 31)])
def test_hidden_states_stay_the_same(tiny: Path, calls: list[int], precision: str, lengths: tuple[int, ...]) -> None:
    model = BertModel.from_pretrained(tiny)
    ragged = Ragged.from_lists([[1 + n % 40 for n in range(length)] for length in lengths])
    with torch.inference_mode():
        exact = model.encode(model.embed(ragged), ragged)
        pooled = model.pooled(ragged)
        with fast.packed_weights(model, precision, MANY), autocast(precision, CPU):
            states = model.encode(model.embed(ragged), ragged)
            assert calls == [sum(lengths)] * 4 * len(model.bert_layers)
            pools = model.pooled(ragged)
    tolerance = 1e-5 if precision == "fp32" else 5e-2
    for mine, wanted in zip([*states, pools], [*exact, pooled], strict=True):
        torch.testing.assert_close(mine.float(), wanted, atol=tolerance, rtol=tolerance)


@needs_packing
def test_nothing_stays_packed_and_new_weights_are_used(
    tiny: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "_WORTHWHILE", 1)
    encoder = Encoder.load(tiny, precision="fp32")
    rows = [[2, *range(5, 19), 3]] * 4
    before = encoder.encode_ids(rows)
    assert calls
    with torch.no_grad():
        encoder.model.bert_layers[0].interm_dense.weight.mul_(2)
    after = encoder.encode_ids(rows)
    assert np.abs(after - before).max() > 1e-3
    monkeypatch.setattr(fast, "_WORTHWHILE", MANY)
    np.testing.assert_allclose(after, encoder.encode_ids(rows), atol=1e-5)
