"""Guards: a step in chunks has the gradients of one pass, repeats its dropout masks and keeps one chunk's graph.

Several ranks: tests/e2e/test_ranks.py.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_step.py
"""

import math
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from minbert.bert import BertModel
from minbert.encoder import Encoder
from minbert.fast import accelerate
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from minbert.weights import save
from pretrain_cbcl import LossSettings, TripletTrainStep
from tasks.contrastive.step import ContrastiveModel, Inputs
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import ANCHORS

BATCH = PlannedBatch("nli", np.array([4, 0, 3, 1, 5, 2]), 1, 8)
CPU = torch.device("cpu")
OPTIONS = LossSettings(temperature=0.1)


class WatchedStep(TripletTrainStep):
    """Records the vectors of each pass, and asserts that the graph of the pass before it is gone."""

    def __init__(self, examples: Examples, *, chunk: int) -> None:
        super().__init__(examples, chunk=chunk, loss_settings=OPTIONS)
        object.__setattr__(self, "passes", {})
        object.__setattr__(self, "graphs", [])

    def encode(self, model: ContrastiveModel, inputs: Inputs, context: StepContext, part: int = 0) -> Tensor:
        assert all(graph() is None for graph in self.graphs)
        vectors = super().encode(model, inputs, context, part)
        lives_with_graph = set()
        vectors.grad_fn.metadata["mark"] = lives_with_graph
        self.graphs.append(weakref.ref(lives_with_graph))
        self.passes.setdefault(part, []).append(vectors.detach().clone())
        return vectors


@pytest.mark.parametrize(
    ("pooler", "precision", "chunk"),
    [
        ("mean", "fp32", 4),
        ("mean", "fp32", 18),
        ("mean", "bf16", 7),
        ("pooler", "bf16", 4),
        ("avg-static-last", "fp32", 7),
    ],
)
def test_second_pass_repeats_dropout(
    bert: BertModel, triplets: Examples, pooler: str, precision: str, chunk: int
) -> None:
    """The second pass is equal to the bit, and the gradients are those of the same masks in one graph."""
    model = ContrastiveModel(accelerate(bert), pooler, seed=3).train()
    context = StepContext(3, 8, precision, CPU)
    step = WatchedStep(triplets, chunk=chunk)
    metrics = step.backward(model, BATCH, context)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert len(step.passes) == math.ceil(18 / chunk)
    for passes in step.passes.values():
        assert len(passes) == (1 if chunk == 18 else 2), "a single part is encoded once"
        assert torch.equal(passes[0], passes[-1])

    model.zero_grad()
    plain = TripletTrainStep(triplets, loss_settings=OPTIONS)
    inputs = plain.inputs(model, triplets, BATCH, context)
    vectors = []
    for number, start in enumerate(range(0, 18, chunk)):
        part = inputs.part(slice(start, start + chunk))
        vectors.append(plain.encode(model, part, context, number))
    expected = plain.loss(model, torch.cat(vectors), BATCH)
    expected["loss"].backward()
    for name, value in expected.items():
        assert torch.equal(metrics[name], value) and not metrics[name].requires_grad
    tolerance = 1e-5 if precision == "fp32" else 1e-2
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(gradients.pop(name), p.grad, atol=tolerance, rtol=tolerance, msg=name)
    assert not gradients


@pytest.mark.parametrize("chunk", [0, 4])
def test_fp16_scales_gradients_alone(bert: BertModel, triplets: Examples, chunk: int) -> None:
    model = ContrastiveModel(bert, "mean", seed=3).eval()
    step = TripletTrainStep(triplets, chunk=chunk, loss_settings=OPTIONS)
    plain = step.backward(model, BATCH, StepContext(3, 8, "fp32", CPU))
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaled = step.backward(model, BATCH, StepContext(3, 8, "fp32", CPU, scaler))
    assert torch.equal(scaled["loss"], plain["loss"])
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(p.grad, 8 * gradients[name], atol=1e-6, rtol=1e-5, msg=name)


def test_bf16_changes_the_loss_little(bert: BertModel, triplets: Examples) -> None:
    model = ContrastiveModel(bert, "mean", seed=3).eval()
    losses = []
    for precision in ("fp32", "bf16"):
        step = TripletTrainStep(triplets, loss_settings=OPTIONS)
        losses.append(float(step.backward(model, BATCH, StepContext(3, 8, precision, CPU))["loss"]))
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], abs=5e-2)


@pytest.mark.parametrize("projection", ["training", "kept"])
@pytest.mark.parametrize("with_layer", [True, False])
def test_projection_is_tanh_of_cls(
    bert: BertModel, tiny: Path, tmp_path: Path, projection: str, with_layer: bool
) -> None:
    """tanh(W [CLS] + b) of random weights. One that is kept is the pooling layer of the saved encoder."""
    tokenizer = Tokenizer.load(tiny)
    cls = Encoder(bert, tokenizer, "cls", precision="fp32").encode(ANCHORS).astype(np.float64)
    before = bert.pooler_dense.weight.detach().clone()
    if not with_layer:
        bert.pooler_dense = None
    model = ContrastiveModel(bert, "cls", seed=9, projection=projection).eval()
    layer = bert.pooler_dense if projection == "kept" else model.projection
    assert not torch.equal(layer.weight, before)
    weight = layer.weight.detach().double().numpy()
    expected = np.tanh(cls @ weight.T + layer.bias.detach().double().numpy())
    ragged = Ragged.from_lists([[tokenizer.cls, *ids, tokenizer.sep] for ids in tokenizer.encode(ANCHORS)])
    states = bert.encode(bert.embed(ragged), ragged)
    for vectors in (model.vectors(ragged), model.pool(states, ragged)):
        np.testing.assert_allclose(vectors.detach().numpy(), expected, atol=1e-5)
    if projection == "kept":
        save(tmp_path / "encoder", bert.state_dict(), bert.config, tokenizer, model.pooler)
        saved = Encoder.load(tmp_path / "encoder", precision="fp32")
        np.testing.assert_allclose(saved.encode(ANCHORS), expected, atol=1e-5)
