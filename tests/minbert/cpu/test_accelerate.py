"""Guards: an accelerated model is the plain one: parameters, names, values, gradients; on other devices it is plain;
and freed memory is kept.

python -m pytest --import-mode=importlib tests/minbert/cpu/test_accelerate.py
"""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from minbert import BertConfig, BertModel, Ragged
from minbert.cpu import FAST, accelerate, attention, dropout, linear

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
