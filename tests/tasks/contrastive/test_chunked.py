"""Guards: a backward pass in parts repeats its dropout masks, has their gradients, and keeps one part's graph.

Without dropout its gradients are those of one pass: test_unsupervised.py.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_chunked.py
"""

import weakref

import numpy as np
import pytest
import torch
from tasks.contrastive.model import ContrastiveModel, ContrastiveTrainStep
from tasks.contrastive.objective import Inputs
from torch import Tensor

from minbert import BertModel
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples

ROWS = PlannedBatch("nli", np.array([4, 0, 3, 1, 5, 2]), 1, 8)
CPU = torch.device("cpu")


class Watched(ContrastiveTrainStep):
    """A step that notes the vectors of each encoding, and that no graph of an earlier one is left then."""

    def __init__(self, *given: object, chunk: int) -> None:
        super().__init__(*given, chunk=chunk)  # type: ignore[arg-type]
        object.__setattr__(self, "passes", {})
        object.__setattr__(self, "marks", [])

    def encode(self, model: ContrastiveModel, inputs: Inputs, context: StepContext, part: int = 0) -> Tensor:
        assert all(mark() is None for mark in self.marks)
        encoded, mark = super().encode(model, inputs, context, part), set()
        encoded.grad_fn.metadata["mark"] = mark  # it lives as long as the graph
        self.marks.append(weakref.ref(mark))
        self.passes.setdefault(part, []).append(encoded.detach().clone())
        return encoded


@pytest.mark.parametrize("chunk", [4, 7, 18])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pooler", ["mean", "pooler", "avg-static-last"])
def test_the_second_forward_is_bit_equal_and_the_gradients_are_of_these_masks(
    bert: BertModel, triplets: Examples, pooler: str, precision: str, chunk: int
) -> None:
    settings = ContrastiveSettings.of(pooler=pooler, temperature=0.1, chunk=chunk)
    model, context = ContrastiveModel(settings, bert).train(), StepContext(3, 8, precision, CPU)
    step = Watched(settings.objective, triplets, chunk=chunk)
    numbers = step.backward(model, ROWS, context)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert len(step.passes) == -(-18 // chunk)
    assert all(len(passes) == (1 if chunk == 18 else 2) for passes in step.passes.values()), "a single part once"
    assert all(torch.equal(passes[0], passes[-1]) for passes in step.passes.values())

    model.zero_grad()
    plain = ContrastiveTrainStep(settings.objective, triplets)
    inputs = plain.inputs(model, ROWS, context)
    parts = [inputs.part(slice(start, start + chunk)) for start in range(0, 18, chunk)]
    vectors = torch.cat([plain.encode(model, part, context, number) for number, part in enumerate(parts)])
    whole = settings.objective.loss(model, vectors, triplets, ROWS)
    whole["loss"].backward()
    for name, value in whole.items():
        assert torch.equal(numbers[name], value) and not numbers[name].requires_grad
    tolerance = 1e-5 if precision == "fp32" else 1e-2
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(gradients.pop(name), p.grad, atol=tolerance, rtol=tolerance, msg=name)
    assert not gradients
