"""Guards: several ranks have loss, gradient and scores of one process, resume bit by bit, and end well under torchrun.

python -m pytest --import-mode=importlib tests/e2e/test_ranks.py

A rank that ends before the first has saved, or that is still in its process group, makes torchrun end all of them.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from minbert.train import checkpoint
from minbert.train.run import RunFolder
from tests.e2e.conftest import ROOT, SAMPLE
from tests.tasks.contrastive import ranks


def torchrun(script: str, tiny: Path, folder: Path, *flags: Any, restarts: int = 0) -> "subprocess.Popen[str]":
    """A script on two ranks under torchrun."""
    usual = ("--run-dir", folder, "--precision", "fp32", "--max-length", 24, "--weights", tiny, "--data", SAMPLE)
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", 2, "--max-restarts", restarts]
    launch += ["--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"]
    command = [sys.executable, "-m", *launch, ROOT / script, *usual, *flags]
    variables = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=variables)


@pytest.mark.slow
def test_every_launch_ends_well(tiny: Path, tmp_path: Path) -> None:
    for number in range(10):
        folder = tmp_path / f"run{number}"
        flags = ("--max-steps", 2, "--batch-size", 8, "--tasks", "sst", "--limit", 16)
        with torchrun("multitask_train.py", tiny, folder, *flags) as process:
            _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
        assert {"encoder", "scores.json", "predictions", "report.html"} <= {path.name for path in folder.iterdir()}
        assert "terminate called" not in stderr


@pytest.mark.parametrize(
    ("world", "rows"),
    [
        pytest.param(2, 5, id="uneven shares"),
        pytest.param(3, 2, id="a rank without rows", marks=pytest.mark.slow),
    ],
)
def test_gradients_equal_one_process(
    script: Callable[..., Any], tiny: Path, tmp_path: Path, world: int, rows: int
) -> None:
    ranks.main(str(tiny), rows, tmp_path / "alone")
    alone = load_file(tmp_path / "alone")
    run = script("", argv=[ranks.__file__, str(tiny), str(rows), str(tmp_path / "rank-")], ranks=world)
    assert run.codes == [0] * world, run.err
    several = [load_file(tmp_path / f"rank-{rank}") for rank in range(world)]
    for tensors in several:
        assert tensors["differing rank"] == world - 1
        assert torch.equal(tensors["scores"], alone["scores"]), "those of the first rank"
        torch.testing.assert_close(tensors["vectors"], alone["vectors"], atol=1e-5, rtol=0)
    assert "softmax: classifier.weight" in alone
    for name in ranks.VARIANTS:
        parts = [key for key in alone if key.startswith(f"{name}: ") and not key.endswith((": loss", ": hash"))]
        assert len(parts) > 30
        for rank, tensors in enumerate(several):
            assert tensors.keys() == alone.keys()
            assert torch.equal(tensors[f"{name}: hash"], several[0][f"{name}: hash"]), f"{name}: rank {rank} drifts"
            torch.testing.assert_close(tensors[f"{name}: loss"], alone[f"{name}: loss"], atol=0, rtol=1e-6)
            ours = torch.cat([tensors[key].double().ravel() for key in parts])
            theirs = torch.cat([alone[key].double().ravel() for key in parts])
            difference = (ours - theirs).norm() / theirs.norm()
            # fp32 sums in another order: up to 1.3e-6, with AVX2
            assert difference <= 4e-6, f"{name}: {difference}"


def gradients(folder: Path) -> dict[str, torch.Tensor]:
    """The gradients of a run's one step: after it Adam's first moments are (1 - b1) times them."""
    moments = load_file(folder / "checkpoints" / "step-00000001" / "optimizer.safetensors")
    return {name: tensor / 0.1 for name, tensor in moments.items() if name.startswith("exp_avg/")}


def test_accumulating_ranks_equal_one_pass(script: Callable[..., Any]) -> None:
    # Bi-encoder pairs, so that a share of the batch also has to keep both sides of a pair together.
    still = ("--clip", 0.1, "--encoder-dropout", 0, "--hidden-dropout-prob", 0)
    flags = ("--batch-size", 150, *still, "--tasks", "quora", "--pairs", "bi", "--evaluate-every", 9)
    stop = (signal.SIGUSR1, 0)  # in the first step, as a finished run keeps no optimizer
    alone = script("multitask_train.py", *flags, run_dir="alone", signal=stop)
    both = script("multitask_train.py", *flags, "--accumulate", 2, run_dir="both", ranks=2, signal=stop)
    assert both.codes == [128 + signal.SIGUSR1] * 2, both.err
    expected = gradients(alone.folder)
    actual = gradients(both.folder)
    assert actual.keys() == expected.keys() and len(actual) > 30
    norm = torch.cat([gradient.ravel() for gradient in expected.values()]).norm()
    assert norm == pytest.approx(0.1, rel=1e-3), "the gradients were clipped"
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, atol=1e-6, rtol=1e-4, msg=name)
    assert both.rows()[0]["quora/loss"] == pytest.approx(alone.rows()[0]["quora/loss"], rel=1e-5)
    assert len(both.rows()) == len(alone.rows()) == 1, "one rank alone writes the metrics"


PRETRAIN = "pretrain_cbcl.py"
SHORT = ("--epochs", 2, "--max-steps", 6, "--batch-size", 15, "--lr", 1e-3, "--evaluate-every", 3, "--keep", "best")


def test_killed_ranks_resume_bit_equal(script: Callable[..., Any]) -> None:
    whole = script(PRETRAIN, *SHORT, run_dir="whole", ranks=2)
    assert whole.codes == [0, 0], whole.err
    killed = script(PRETRAIN, *SHORT, run_dir="killed", ranks=2, signal=(signal.SIGKILL, 4))
    assert sorted(killed.codes) == [-signal.SIGKILL, 2], "a rank that is left alone ends too"
    second = killed.errs[1]
    assert second.startswith("error: another process of this run has ended") and second.count("\n") == 1, second
    resumed = script(PRETRAIN, *SHORT, "--resume", run_dir="killed", ranks=2)
    assert resumed.codes == [0, 0], resumed.err
    assert resumed.rows() == whole.rows() and resumed.bits() == whole.bits()


LONG = ("--epochs", 3, "--batch-size", 8, "--lr", 1e-3, "--save-every", 1)


@pytest.mark.slow
def test_torchrun_restart_is_bit_equal(script: Callable[..., Any], tiny: Path, tmp_path: Path) -> None:
    whole = script(PRETRAIN, *LONG, run_dir="whole", ranks=2)
    run = RunFolder(tmp_path / "run")
    with torchrun(PRETRAIN, tiny, run.path, *LONG, "--resume", restarts=1) as process:
        while not checkpoint.steps(run.checkpoints) and process.poll() is None:
            time.sleep(0.01)
        first_rank = (run.path / ".minbert.lock").read_text().split()[1]
        os.kill(int(first_rank), signal.SIGKILL)
        _, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    resumed = replace(whole, folder=run.path)
    sessions = [(session["from_step"], session["to_step"]) for session in resumed.manifest()["sessions"]]
    assert len(sessions) == 2 and 0 < sessions[1][0] < sessions[1][1] == whole.rows()[-1]["step"], sessions
    assert resumed.rows() == whole.rows()
    assert whole.bits().items() <= resumed.bits().items(), "the command that was typed writes a report as well"
