"""Guards, where there is a CUDA device: its attention paths equal the formula, its model the CPU's, its runs resume.

python -m pytest --import-mode=importlib tests/minbert/test_cuda.py
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from minbert import BertModel, Encoder, Ragged, attention, pooling
from minbert.fast import accelerate, gpu_attention
from minbert.fast.graphs import GraphedVectors
from minbert.precision import DTYPES, autocast
from tests.minbert.fast.test_graphs import batches, step, steps_agree

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
H, d = 4, 32
LENGTHS = {"one": (5,), "groups": (1, 1, 3, 3, 70), "unsorted": (6, 2, 60, 1, 3, 3)}
ROOT = Path(__file__).parent.parent.parent
TOLERANCE = {"fp32": 1e-5, "bf16": 3e-2, "fp16": 4e-3}


@pytest.fixture(params=LENGTHS)
def ragged(request: pytest.FixtureRequest) -> Ragged:
    return Ragged.from_lists([[1] * n for n in LENGTHS[request.param]]).to(torch.device("cuda"))


def inputs(ragged: Ragged, kind: str, dtype: torch.dtype) -> list[Tensor]:
    """Query, key and value, all tokens asking or one of a sentence."""
    queries = len(ragged.ids) if kind == "tokens" else len(ragged)
    sizes = (queries, len(ragged.ids), len(ragged.ids))
    return [torch.randn(n, H, d, device="cuda", dtype=dtype).requires_grad_() for n in sizes]


def paths(precision: str) -> list[Callable[..., Tensor]]:
    """The paths that a number format has on this device."""
    recent = torch.cuda.get_device_capability() >= (8, 0)
    kernels: list[Callable[..., Tensor]] = [attention.padded]
    if precision != "fp32" and recent:
        kernels.append(gpu_attention.flash)
    return kernels


@pytest.mark.parametrize("kind", ["tokens", "cls"])
@pytest.mark.parametrize("precision", DTYPES)
def test_every_path_equals_the_formula(ragged: Ragged, kind: str, precision: str) -> None:
    qkv = inputs(ragged, kind, DTYPES[precision])
    exact = [x.detach().double().requires_grad_() for x in qkv]
    wanted = attention.reference(*exact, ragged)
    direction = torch.randn_like(wanted)
    gradients = torch.autograd.grad((wanted * direction).sum(), exact)
    for path in paths(precision):
        out = path(*qkv, ragged)
        torch.testing.assert_close(out.double(), wanted, atol=TOLERANCE[precision], rtol=0, msg=path.__name__)
        mine = [x.double() for x in torch.autograd.grad((out.double() * direction).sum(), qkv)]
        atol = 3 * TOLERANCE[precision]
        torch.testing.assert_close(mine, gradients, atol=atol, rtol=3e-2, msg=path.__name__)


@pytest.mark.parametrize("kind", ["tokens", "cls"])
@pytest.mark.parametrize("precision", DTYPES)
def test_dropout_gradient_uses_the_mask(ragged: Ragged, kind: str, precision: str) -> None:
    """For one seed the output is linear in the values: out(v + e) - out(v) is the derivative along e.

    Its square, summed, is the derivative of <out, itself> along e; of two masks with p = 0.3 it is 0.7 times as much.
    """
    q, k, v = inputs(ragged, kind, DTYPES[precision])
    change = torch.randn_like(v)
    for path in paths(precision):
        outputs = []
        for values in (v, v + change, v):
            torch.manual_seed(11)
            outputs.append(path(q, k, values, ragged, 0.3))
        assert torch.equal(outputs[0], outputs[2]), f"{path.__name__}: one seed, two masks"
        difference = (outputs[1].double() - outputs[0].double()).detach()
        (gradient,) = torch.autograd.grad((outputs[0].double() * difference).sum(), v)
        slope = float((gradient.double() * change.double()).sum())
        assert slope == pytest.approx(float(difference.square().sum()), rel=TOLERANCE[precision] + 1e-5), path.__name__
        assert not torch.equal(outputs[0], path(q, k, v, ragged, 0.0)), f"{path.__name__}: no dropout"


@pytest.mark.parametrize("precision", DTYPES)
def test_vectors_equal_the_cpu(tiny: Path, precision: str) -> None:
    texts = ["the cat " * count for count in (4, 1, 30, 4, 9)]
    wanted = Encoder.load(tiny, pooler="pooler", device="cpu", precision="fp32").encode(texts)
    encoder = Encoder.load(tiny, pooler="pooler", device="cuda", precision=precision)
    np.testing.assert_allclose(encoder.encode(texts), wanted, atol=3 * TOLERANCE[precision], rtol=0)


@pytest.mark.parametrize("pooler", pooling.NAMES)
@pytest.mark.parametrize("precision", DTYPES)
def test_graphs_equal_the_encoder(tiny: Path, precision: str, pooler: str) -> None:
    """See `steps_agree`."""
    model = accelerate(BertModel.from_pretrained(tiny)).to(torch.device("cuda")).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, attention.SelfAttention):
            module.dropout = 0.0
    steps_agree(model, pooler, precision, TOLERANCE[precision])


@pytest.mark.parametrize("precision", DTYPES)
def test_graphs_seed_their_dropout(tiny: Path, precision: str) -> None:
    model = accelerate(BertModel.from_pretrained(tiny)).to(torch.device("cuda")).train()
    read = GraphedVectors(model, "mean")
    read.active = True
    batch = batches(model.device)[0]
    recorded = step(read, model, [batch], precision)
    replayed = step(read, model, [batch], precision)
    torch.testing.assert_close(replayed, recorded, atol=0, rtol=0)
    with autocast(precision, torch.device("cuda")):
        other = read(batch)
    assert not torch.equal(other.float(), recorded[0]), "a seed later, another mask"


def command(folder: Path, tiny: Path, *more: str) -> list[str]:
    """A short run of stage two on the sample data."""
    words = ["--weights", str(tiny), "--data", str(ROOT / "data" / "sample"), "--limit", "24", "--max-length", "48"]
    words += ["--batch-size", "4", "--epochs", "10", "--log-every", "1", "--save-every", "1", "--run-dir", str(folder)]
    return [str(ROOT / "multitask_train.py"), *words, "--use-gpu", *more]


def run(*words: str) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def losses(folder: Path) -> dict[int, dict[str, float]]:
    """Step -> the losses that the run has logged."""
    losses_of_steps = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["kind"] == "train":
            losses_of_steps[row["step"]] = {key: value for key, value in row.items() if key.endswith("/loss")}
    return losses_of_steps


@pytest.mark.parametrize("precision", ["fp32", "auto", "fp16"])
def test_stopped_run_resumes_with_equal_losses(tiny: Path, tmp_path: Path, precision: str) -> None:
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    run(*command(whole, tiny, "--precision", precision))
    words = command(parts, tiny, "--precision", precision)
    process = subprocess.Popen([sys.executable, *words])
    metrics = parts / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM, "it has ended before it could be stopped"
    run(*words, "--resume")
    expected = losses(whole)
    resumed = losses(parts)
    assert expected.keys() == resumed.keys()
    for number, values in expected.items():
        assert resumed[number] == pytest.approx(values, rel=1e-3), number


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_ranks_train_with_nccl(tiny: Path, tmp_path: Path) -> None:
    run("-m", "torch.distributed.run", "--nproc-per-node", "2", *command(tmp_path / "two", tiny))
    assert (tmp_path / "two" / "scores.json").exists()
