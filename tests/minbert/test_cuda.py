"""Guards, where there is a CUDA device: its attention paths equal the formula, its model the CPU's, its runs resume.

python -m pytest --import-mode=importlib tests/minbert/test_cuda.py
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from minbert import BertModel, Ragged, attention
from minbert.precision import DTYPES, autocast
from minbert.training import checkpoint

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


def paths(precision: str) -> list[str]:
    """The paths that a number format has on this device."""
    half = precision != "fp32"
    recent = torch.cuda.get_device_capability() >= (8, 0)
    return [
        *(["flash"] if half and recent else []),
        *(["efficient"] if recent or precision != "bf16" else []),
        "nested",
    ]


@pytest.mark.parametrize("kind", ["tokens", "cls"])
@pytest.mark.parametrize("precision", DTYPES)
def test_every_path_equals_the_formula(ragged: Ragged, kind: str, precision: str) -> None:
    qkv = inputs(ragged, kind, DTYPES[precision])
    exact = [x.detach().double().requires_grad_() for x in qkv]
    wanted = attention.reference(*exact, ragged)
    direction = torch.randn_like(wanted)
    gradients = torch.autograd.grad((wanted * direction).sum(), exact)
    for name in paths(precision):
        out = attention.GPU_PATHS[name](*qkv, ragged, 0.0)
        torch.testing.assert_close(out.double(), wanted, atol=TOLERANCE[precision], rtol=0, msg=name)
        mine = torch.autograd.grad((out.double() * direction).sum(), qkv)
        for gradient, expected in zip(mine, gradients, strict=True):
            torch.testing.assert_close(gradient.double(), expected, atol=3 * TOLERANCE[precision], rtol=3e-2, msg=name)


@pytest.mark.parametrize("kind", ["tokens", "cls"])
@pytest.mark.parametrize("precision", DTYPES)
def test_the_gradient_has_the_dropout_mask_of_the_output(ragged: Ragged, kind: str, precision: str) -> None:
    """For one seed the output is linear in the values: out(v + e) - out(v) is the derivative along e."""
    q, k, v = inputs(ragged, kind, DTYPES[precision])
    change = torch.randn_like(v)
    for name in paths(precision):
        outputs = []
        for values in (v, v + change, v):
            torch.manual_seed(11)
            outputs.append(attention.GPU_PATHS[name](q, k, values, ragged, 0.3))
        assert torch.equal(outputs[0], outputs[2]), f"{name}: one seed, two masks"
        direction = torch.randn_like(outputs[0])
        (gradient,) = torch.autograd.grad((outputs[0] * direction).sum(), v)
        difference = ((outputs[1] - outputs[0]).double() * direction.double()).sum()
        slope = (gradient.double() * change.double()).sum()
        scale = (gradient.double() * change.double()).abs().sum()
        assert abs(difference - slope) <= 3 * TOLERANCE[precision] * scale, name
        assert not torch.equal(outputs[0], attention.GPU_PATHS[name](q, k, v, ragged, 0.0)), f"{name}: no dropout"


@pytest.mark.parametrize("precision", DTYPES)
def test_the_model_gives_the_vectors_of_the_cpu(tiny: Path, precision: str) -> None:
    ragged = Ragged.from_lists([[2, *range(5, 5 + n), 3] for n in (4, 1, 30, 4, 9)])
    model = BertModel.from_pretrained(tiny)
    wanted = model.pooled(ragged)
    there = torch.device("cuda")
    model.to(there)
    with autocast(precision, there):
        found = model.pooled(ragged.to(there))
    torch.testing.assert_close(found.float().cpu(), wanted, atol=3 * TOLERANCE[precision], rtol=0)


def train(folder: Path, tiny: Path, *more: str, ranks: int = 1) -> None:
    """A short run of stage two on the sample data."""
    command = (
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        if ranks > 1
        else [sys.executable]
    )
    words = ["--weights", str(tiny), "--limit", "24", "--batch-size", "4", "--epochs", "2", "--use-gpu"]
    run = [*command, str(ROOT / "multitask_train.py"), *words, "--run-dir", str(folder), *more]
    done = subprocess.run(run, cwd=folder.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("precision", ["fp32", "auto", "fp16"])
def test_a_stopped_run_resumes_with_the_same_losses(tiny: Path, tmp_path: Path, precision: str) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, tiny, "--precision", precision, "--keep-checkpoints")
    train(parts, tiny, "--precision", precision, "--max-steps", "5", "--keep-checkpoints")
    assert checkpoint.steps(whole / "checkpoints")
    train(parts, tiny, "--precision", precision, "--resume", "--keep-checkpoints")
    a, b = ((folder / "encoder" / "model.safetensors").read_bytes() for folder in (whole, parts))
    assert a == b


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_processes_train_with_nccl(tiny: Path, tmp_path: Path) -> None:
    train(tmp_path / "two", tiny, ranks=2)
    assert (tmp_path / "two" / "scores.json").exists()
