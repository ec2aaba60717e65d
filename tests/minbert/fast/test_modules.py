"""Guards: an accelerated model equals the plain one in names, values and gradients, with packed weights as well.

python -m pytest --import-mode=importlib tests/minbert/fast/test_modules.py
"""

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from minbert import BertModel, Encoder, Ragged
from minbert.fast import accelerate, cpu_attention, dropout, linear, modules, packed_weights
from minbert.fast.linear import can_pack
from minbert.fast.modules import FAST
from minbert.precision import autocast, supports_bf16

ROWS = [[2, 9, 8, 7, 3], [2, 5, 3], [2, *range(5, 40), 3], [2, 3], [2, 6, 3]]


@pytest.fixture
def pair(tiny: Path) -> tuple[BertModel, BertModel]:
    """A plain model, and an accelerated one with the same weights."""
    model = BertModel.from_pretrained(tiny)
    return model, accelerate(copy.deepcopy(model))


def kinds(model: torch.nn.Module) -> list[type]:
    return [type(module) for module in model.modules()]


def outputs(model: BertModel) -> list[Tensor]:
    ragged = Ragged.from_lists(ROWS)
    return [*model.encode(model.embed(ragged), ragged), model.pooled(ragged)]


def gradients(model: BertModel) -> dict[str, Tensor]:
    model.zero_grad()
    torch.stack([x.float().pow(3).mean() for x in outputs(model)]).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_every_plain_module_is_swapped(pair: tuple[BertModel, BertModel]) -> None:
    model, fast = pair
    assert not set(kinds(model)) & set(FAST.values())
    assert not set(kinds(fast)) & set(FAST)
    assert set(kinds(fast)) >= set(FAST.values())


def test_values_and_gradients_equal_plain(pair: tuple[BertModel, BertModel]) -> None:
    model, fast = pair
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(outputs(fast), outputs(model), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients(fast), gradients(model), atol=1e-5, rtol=1e-4)


def test_bf16_is_as_exact_as_plain(pair: tuple[BertModel, BertModel]) -> None:
    exact = outputs(pair[0])
    exact_gradients = gradients(pair[0])
    direction = torch.cat([gradient.flatten() for gradient in exact_gradients.values()])
    errors = []
    turns = []  # of the direction of the gradient
    for model in pair:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = outputs(model)
            half_gradients = gradients(model)
        errors.append(sum((x.float() - y).norm() for x, y in zip(half, exact, strict=True)))
        assert half_gradients.keys() == exact_gradients.keys()
        half_direction = torch.cat([half_gradients[name].flatten() for name in exact_gradients])
        turns.append(1 - torch.nn.functional.cosine_similarity(half_direction, direction, dim=0))
    assert 0 < errors[1] < 1.2 * errors[0]
    assert turns[1] < 1.5 * turns[0] < 0.01


def test_other_devices_avoid_cpu_code(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device stands for all others: it has shapes and no numbers."""

    def never(*_: object) -> None:
        raise AssertionError("a module for the CPU runs on another device")

    # in half precision, as under autocast on a GPU, attention is the GPU's kernel
    model = accelerate(BertModel.from_pretrained(tiny)).to("meta", torch.bfloat16).train()
    monkeypatch.setattr(dropout, "keep_factors", never)
    monkeypatch.setattr(cpu_attention.GroupedAttention, "apply", never)
    monkeypatch.setattr(linear._RoundedLinear, "apply", never)
    ragged = Ragged.from_lists(ROWS).to(torch.device("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        vectors = model.pooled(ragged)
    vectors.float().sum().backward()
    assert vectors.device.type == "meta" and vectors.shape == (5, 32)


CPU = torch.device("cpu")
PRECISIONS = [
    "fp32",
    pytest.param("bf16", marks=pytest.mark.skipif(not supports_bf16(CPU), reason="no fast bf16 products here")),
]
MANY = 1 << 20

needs_packing = pytest.mark.skipif(not can_pack(CPU), reason="no oneDNN products with packed weights here")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Weights are packed even where that is not fast; the number of rows that every packed layer has computed."""
    monkeypatch.setattr(modules, "packing_is_fast", lambda _: True)
    seen: list[int] = []
    layer = modules.PackedLayer.__call__

    def counted(self: modules.PackedLayer, x: torch.Tensor, ragged: Ragged) -> torch.Tensor:
        seen.append(len(x))
        return layer(self, x, ragged)

    monkeypatch.setattr(modules.PackedLayer, "__call__", counted)
    yield seen


@needs_packing
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("lengths", [(8, 24), (1,), (3, 3, 31)])
def test_packed_weights_keep_hidden_states(
    tiny: Path, calls: list[int], precision: str, lengths: tuple[int, ...]
) -> None:
    model = accelerate(BertModel.from_pretrained(tiny))
    ragged = Ragged.from_lists([range(1, 1 + length) for length in lengths])
    with torch.inference_mode():
        exact = model.encode(model.embed(ragged), ragged)
        pooled = model.pooled(ragged)
        with packed_weights(model, precision, MANY), autocast(precision, CPU):
            states = model.encode(model.embed(ragged), ragged)
            assert calls == [sum(lengths)] * len(model.bert_layers)
            pools = model.pooled(ragged)
    tolerance = 1e-5 if precision == "fp32" else 5e-2
    packed = [x.float() for x in (*states, pools)]
    torch.testing.assert_close(packed, [*exact, pooled], atol=tolerance, rtol=tolerance)


@needs_packing
def test_new_weights_are_packed_anew(tiny: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_WORTHWHILE", 1)
    encoder = Encoder.load(tiny, precision="fp32")
    rows = [[2, *range(5, 19), 3]] * 4
    before = encoder.encode_ids(rows)
    assert calls
    with torch.no_grad():
        encoder.model.bert_layers[0].interm_dense.weight.mul_(2)
    after = encoder.encode_ids(rows)
    assert np.abs(after - before).max() > 1e-3
    monkeypatch.setattr(modules, "_WORTHWHILE", MANY)
    np.testing.assert_allclose(after, encoder.encode_ids(rows), atol=1e-5)
