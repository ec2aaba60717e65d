"""Guards: a backward pass in parts gives the gradients of one pass, repeats its masks, and keeps one part's graph.

python -m pytest --import-mode=importlib tests/contrastive/test_chunked.py
"""

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from minbert import BertModel, Ragged
from minbert.encode import vectors
from minbert.precision import autocast
from minbert.training.loop import Context
from tasks.contrastive.losses import nt_xent
from tasks.contrastive.model import Share, backward_in_parts

CPU = torch.device("cpu")
Ids = list[list[int]]


def sentences(count: int) -> Ids:
    rng = np.random.default_rng(5)
    return [rng.integers(5, 30, size=rng.integers(2, 12)).tolist() for _ in range(count)]


def encoding(bert: BertModel, pooler: str = "mean", precision: str = "fp32") -> Callable[[int, Ids], Tensor]:
    """An encode function with masks of its own for every part."""
    context = Context(3, 8, precision, CPU)

    def encode(number: int, part: Ids) -> Tensor:
        context.seed_dropout("encoder", number)
        with autocast(precision, CPU):
            return vectors(bert, Ragged.from_lists(part), pooler)

    return encode


def triplet_loss(encoded: Tensor) -> dict[str, Tensor]:
    anchor, positive, negative = encoded.chunk(3)
    return {"loss": nt_xent(anchor, positive, negative, 0.1), "rows": torch.tensor(float(len(anchor)))}


def backward(
    bert: BertModel, encode: Callable[[int, Ids], Tensor], parts: list[Ids], loss: Callable[[Tensor], Any]
) -> dict[str, Tensor]:
    """The backward pass of one process, whose share is the whole batch."""
    total = sum(map(len, parts))
    return backward_in_parts(
        encode, parts, loss, lambda x: x, Share(torch.arange(total), total, bert.config.hidden_size)
    )


def parts_of(rows: Ids, *sizes: int) -> list[Ids]:
    ends = np.cumsum([0, *sizes])
    assert ends[-1] == len(rows)
    return [rows[start:end] for start, end in itertools.pairwise(ends)]


def gradients(*modules: nn.Module) -> list[Tensor]:
    """The gradients, which are taken off the modules."""
    found = [p.grad for module in modules for p in module.parameters() if p.grad is not None]
    for module in modules:
        module.zero_grad(set_to_none=True)
    return found


def close(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-5) -> None:
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("sizes", [(12, 12), (1, 7, 16), (5, 5, 5, 5, 4), (1,) * 24])
@pytest.mark.parametrize("pooler", ["mean", "pooler"])
def test_without_dropout_the_gradients_are_those_of_one_pass(bert: BertModel, pooler: str, sizes: tuple) -> None:
    rows = sentences(24)
    whole = triplet_loss(vectors(bert, Ragged.from_lists(rows), pooler))
    whole["loss"].backward()
    expected = gradients(bert)
    numbers = backward(bert, encoding(bert, pooler), parts_of(rows, *sizes), triplet_loss)
    close(gradients(bert), expected)
    assert float(numbers["loss"]) == pytest.approx(float(whole["loss"].detach()), abs=1e-5)
    assert float(numbers["rows"]) == 8 and not any(value.requires_grad for value in numbers.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pooler", ["mean", "pooler", "avg-static-last"])
def test_with_dropout_the_second_forward_is_bit_equal_and_the_gradients_are_of_these_masks(
    bert: BertModel, pooler: str, precision: str
) -> None:
    bert.train()
    encode, parts, passes = encoding(bert, pooler, precision), parts_of(sentences(18), 4, 10, 4), {}

    def noted(number: int, part: Ids) -> Tensor:
        found = encode(number, part)
        passes.setdefault(number, []).append(found.detach().clone())
        return found

    numbers = backward(bert, noted, parts, triplet_loss)
    assert len(passes) == 3 and all(torch.equal(first, second) for first, second in passes.values())
    found = gradients(bert)
    whole = triplet_loss(torch.cat([encode(number, part) for number, part in enumerate(parts)]))
    whole["loss"].backward()
    assert float(numbers["loss"]) == float(whole["loss"].detach())
    close(found, gradients(bert), 1e-5 if precision == "fp32" else 1e-2)


def test_no_more_than_one_part_is_kept_for_the_backward_pass(bert: BertModel) -> None:
    """The graph of a part is gone when the next one is encoded."""
    encode, marks = encoding(bert), []

    def watched(number: int, part: Ids) -> Tensor:
        assert all(mark() is None for mark in marks)
        encoded, mark = encode(number, part), set()
        encoded.grad_fn.metadata["mark"] = mark  # it lives as long as the graph
        marks.append(weakref.ref(mark))
        return encoded

    backward(bert, watched, parts_of(sentences(24), 9, 8, 7), triplet_loss)
    assert len(marks) == 6
    marks.clear()
    backward(bert, watched, [sentences(24)], triplet_loss)
    assert len(marks) == 1, "a single part is encoded once"
