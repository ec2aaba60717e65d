"""Guards: what surrounds CUDA graphs, without a GPU; `test_cuda.py` has the graphs themselves.

python -m pytest --import-mode=importlib tests/minbert/fast/test_graphs.py
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from minbert import BertModel, Ragged, attention, pooling, weights
from minbert.config import BertConfig
from minbert.encoder import vectors
from minbert.fast import graphs
from minbert.fast.graphs import GraphedVectors, filled, sizes
from minbert.precision import autocast
from minbert.tokenizer import Tokenizer
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from tasks import TASKS
from tasks.model import MultitaskModel, MultitaskTrainStep

SAMPLE = Path(__file__).parents[3] / "data" / "sample"


@given(st.lists(st.integers(1, 510), min_size=1, max_size=300), st.integers(4, 512))
def test_a_size_holds_its_batch(lengths: list[int], positions: int) -> None:
    lengths = [min(length, positions) for length in lengths]
    tokens, sentences, bound = sizes(lengths, positions)
    all_lengths = filled(lengths, tokens, sentences)
    assert all_lengths[: len(lengths)] == lengths
    assert (len(all_lengths), sum(all_lengths)) == (sentences, tokens)
    assert min(all_lengths) >= 1 and max(all_lengths) <= bound <= positions
    assert tokens - bound >= sentences - 1, "no token for one of the others"
    assert tokens - sum(lengths) <= 64 + 256 + sum(lengths) // 8


@pytest.fixture
def replayed_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Functions are called again in place of replaying them; attention pads, as the lengths are not the real ones."""
    captured = []

    def capture(function: Callable[[], None], pool: object) -> Callable[[], None]:
        captured.append(torch.enable_grad()(function))
        return captured[-1]

    monkeypatch.setattr(graphs, "GPU", "cpu")
    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(graphs, "preparation", lambda device: nullcontext())
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(attention, "works_by_groups", lambda device: False)
    return captured


def batches(device: torch.device) -> list[Ragged]:
    """Batches of four sizes; the first size occurs twice."""
    several = []
    for lengths in [(4, 1, 30, 4, 9), (3, 3), (40, 2, 7, 7, 25), (2, 2, 29, 5, 9), (60,) * 40]:
        rows = [[2, *range(5, 5 + n), 3] for n in lengths]
        several.append(Ragged.from_lists(rows).to(device))
    return several


def step(read: Callable[[Ragged], Tensor], model: BertModel, parts: list[Ragged], precision: str) -> list[Tensor]:
    """The vectors of the parts of a batch, then the gradients of a weighted sum over all."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(11)
    with autocast(precision, model.device):
        out = [read(part).float() for part in parts]
    summands = torch.cat(out)[:, 0]
    (summands * torch.arange(len(summands), device=model.device)).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [*out, *gradients]


def steps_agree(model: BertModel, pooler: str, precision: str, tolerance: float) -> None:
    """Replayed steps equal others without dropout: of one forward pass, and of two, which add gradients."""
    read = GraphedVectors(model, pooler)
    read.active = True
    several = batches(model.device)
    for parts in [[batch] for batch in several] + [several[:2]]:
        wanted = step(lambda part: vectors(model, part, pooler), model, parts, precision)
        # one tolerance for all tensors: keys' biases have gradients of rounding errors
        largest = max(float(x.detach().abs().max()) for x in wanted)
        replayed = step(read, model, parts, precision)
        torch.testing.assert_close(replayed, wanted, atol=tolerance * largest, rtol=0)
    assert len(read._recordings) == 4, "a recording for every size"


@pytest.mark.parametrize("pooler", pooling.NAMES)
@pytest.mark.usefixtures("replayed_on_the_cpu")
def test_replays_equal_the_encoder(tiny: Path, pooler: str) -> None:
    model = BertModel.with_weights(weights.resolve(str(tiny)), BertConfig.read(tiny)).eval()
    steps_agree(model, pooler, "fp32", 1e-6)


@pytest.mark.usefixtures("replayed_on_the_cpu")
def test_parameters_may_be_frozen_later(tiny: Path) -> None:
    model = BertModel.with_weights(weights.resolve(str(tiny)), BertConfig.read(tiny)).eval()
    read = GraphedVectors(model, "mean")
    read.active = True
    batch = batches(model.device)[:1]
    step(read, model, batch, "fp32")
    model.bert_layers[0].requires_grad_(False)
    wanted = step(lambda part: vectors(model, part, "mean"), model, batch, "fp32")
    torch.testing.assert_close(step(read, model, batch, "fp32"), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("accumulate", "recorded"), [(1, 3), (2, 2)])
def test_replayed_stage_two_step_is_equal(
    tiny: Path, replayed_on_the_cpu: list[Callable[[], None]], accumulate: int, recorded: int
) -> None:
    """Joint pairs, which a second encoder reads by themselves, and R-Drop. Of parts only that encoder is replayed."""
    task = TASKS["quora"]("joint")
    rows = task.open(SAMPLE / "course" / "quora-dev.csv", "dev", Tokenizer.load(tiny), 64)
    config = replace(BertConfig.read(tiny), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    results = []
    for replayed_device in ("cuda", "cpu"):  # without replays, then with them
        encoder = BertModel.with_weights(weights.resolve(str(tiny)), config)
        torch.manual_seed(0)
        model = MultitaskModel(encoder, [task], 0.0, pooler="mean").train()
        objective = MultitaskTrainStep({"quora": rows}, accumulate=accumulate, r_drop=1.0)
        graphs.GPU = replayed_device
        batch = PlannedBatch("quora", np.arange(8), 0, 0)
        numbers = objective.backward(model, batch, StepContext(1, 0, "fp32", torch.device("cpu")))
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append([numbers["loss"], *gradients])
    plain, replayed = results
    torch.testing.assert_close(replayed, plain, atol=1e-6, rtol=1e-4)
    assert len(replayed_on_the_cpu) == recorded, "forward, backward and the other encoder's"
