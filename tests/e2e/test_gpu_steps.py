"""Guards: what a training step does on a GPU, seen on the meta device, which has the shapes of tensors but no values.

A step leaves nothing on the CPU, reads no value from the device, calls one attention kernel a layer, and dispatches
hardly more operations than transformers.

python -m pytest --import-mode=importlib tests/e2e/test_gpu_steps.py
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tasks.contrastive.model import ContrastiveModel, ContrastiveTrainStep
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from minbert import AdamW, BertConfig, BertModel, Ragged
from minbert.encoder import vectors
from minbert.fast import accelerate
from minbert.tokenizer import Tokenizer
from minbert.train.loop import StepContext, _clip
from minbert.train.plan import PlannedBatch
from tasks import TASKS
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples, Pair
from tasks.model import MultitaskModel, MultitaskTrainStep

META = torch.device("meta")
COURSE = Path(__file__).parent.parent.parent / "data" / "sample" / "course"
LAYERS = 6
OBJECTIVES = {
    "nt-xent": {},
    "triplet": {},
    "margin": {},
    "softmax": {},
    "cross": {"keep": "last", "phrases": "sst"},
    "views": {"texts": "sts", "views": "feature-cutoff:0.2,shuffle"},
    "joint": {"views": "none,token-cutoff"},
    "adversarial": {"objective": "joint", "views": "adversarial,dropout"},
    "simcse": {"texts": "sts"},
}


class Operations(TorchDispatchMode):
    """Counts all operations, and the calls of fused attention, forward and backward."""

    count = kernels = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        self.kernels += "attention" in str(function)
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device has no autocast, not even one that is switched off."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


@pytest.fixture(scope="module")
def encoder() -> Callable[..., BertModel]:
    """A function that makes an encoder of MiniLM's width, with a small vocabulary, without values."""

    def make(layers: int = 2) -> BertModel:
        shape = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
        with META:
            return accelerate(BertModel(BertConfig(vocab_size=200, num_hidden_layers=layers, **shape))).train()

    return make


@pytest.fixture
def examples(examples_of: Callable[..., Examples]) -> Callable[..., Examples]:
    """A function that makes 32 labelled rows of 1, 2 or 3 texts of different lengths."""

    def make(columns: int, kind: type[Examples] = Examples) -> Examples:
        words = ["the", "cat", "sat", "on", "a", "mat", "and", "a", "dog", "runs"]
        rows = [tuple(" ".join(words[: 1 + (3 * i + side) % 10]) for side in range(columns)) for i in range(32)]
        return examples_of(rows, [i % 3 for i in range(32)], kind=kind)

    return make


def whole_step(model: nn.Module, objective: Any, step: PlannedBatch) -> None:
    """Forward, backward, clipping and update; a value that is read from the device raises."""
    optimizer = AdamW(model.parameters(), lr=1e-3)
    numbers = objective.backward(model, step, StepContext(1, 0, "fp32", META))
    _clip([*model.parameters()], 1.0)
    optimizer.step()
    assert {x.device for x in numbers.values()} == {META}
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients and {x.device for x in gradients} == {META}


@pytest.mark.parametrize(
    ("name", "chunk"), [*((name, 0) for name in OBJECTIVES), ("nt-xent", 16), ("joint", 16), ("adversarial", 16)]
)
def test_a_step_of_every_objective_stays_on_the_device(
    encoder: Callable[[], BertModel], examples: Callable[..., Examples], name: str, chunk: int
) -> None:
    more = {"objective": name, "pooler": "mean", **OBJECTIVES[name]}
    settings = ContrastiveSettings.of(**more)
    columns = {"nt-xent": 3, "triplet": 3, "margin": 3, "views": 1, "simcse": 1}.get(more["objective"], 2)
    with META:
        model = ContrastiveModel(settings, encoder()).train()
    step = ContrastiveTrainStep(
        settings.objective, examples(columns, Pair if name == "cross" else Examples), chunk=chunk
    )
    whole_step(model, step, PlannedBatch("nli", np.arange(32), 0, 0))


@pytest.mark.parametrize(("pairs", "r_drop"), [("cross", 0.0), ("bi", 0.0), ("joint", 0.0), ("joint", 1.0)])
@pytest.mark.parametrize("task", ["sst", "quora", "sts"])
def test_a_step_of_every_task_stays_on_the_device(
    encoder: Callable[[], BertModel], tiny: Path, task: str, pairs: str, r_drop: float
) -> None:
    kind = TASKS[task](pairs)
    files = {"sst": "ids-sst-dev.csv", "quora": "quora-dev.csv", "sts": "sts-dev.csv"}
    rows = kind.open(COURSE / files[task], "dev", Tokenizer.load(tiny), 48)
    with META:
        model = MultitaskModel(encoder(), [kind], 0.1, pooler="mean").train()
    whole_step(model, MultitaskTrainStep({task: rows}, r_drop=r_drop), PlannedBatch(task, np.arange(16), 0, 0))


def of_transformers(sentences: int, length: int, dtype: torch.dtype) -> Operations:
    """The operations of forward and backward of transformers' model with dropout, given the mask that it would build.

    Its attention is one call of the memory-efficient kernel, as on a GPU.
    """
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=384, num_hidden_layers=LAYERS, num_attention_heads=12, intermediate_size=1536
    )

    def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor, dropout_p: float, **_: Any) -> Tensor:
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        output: Tensor = kernel(query, key, value, attn_mask.expand(-1, 12, -1, -1), True, dropout_p)[0]
        return output

    with META:
        model = transformers.BertModel(config).train().to(dtype)
        ids, mask = torch.ones(sentences, length, dtype=torch.int64), torch.ones(sentences, 1, length, length)
    with pytest.MonkeyPatch.context() as patch, Operations() as counted:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
        model(input_ids=ids, attention_mask=mask.to(dtype)).pooler_output.sum().backward()
    assert counted.kernels == 2 * LAYERS
    return counted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("pooler", "columns"), [("pooler", 1), ("mean", 3)])
def test_forward_and_backward_dispatch_no_more_than_transformers(
    encoder: Callable[[], BertModel], examples: Callable[..., Examples], dtype: torch.dtype, pooler: str, columns: int
) -> None:
    """32 sentences for the pooling layer, as in stage two, and the 96 of 32 triplets, as in stage one."""
    rows = examples(3)
    ragged = Ragged.from_lists([rows.sentence(row, side) for side in range(columns) for row in range(32)])
    model = encoder(LAYERS).to(dtype)
    with Operations() as ours:
        vectors(model, ragged.to(META), pooler).sum().backward()
    assert ours.kernels == 2 * LAYERS, "one call a layer forward, and one backward"
    theirs = of_transformers(32 * columns, max(ragged.lengths), dtype)
    assert ours.count <= 1.15 * theirs.count
