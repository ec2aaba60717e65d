"""Guards: under torchrun a run of several processes ends with exit code 0, and leaves all that a run leaves.

python -m pytest --import-mode=importlib tests/training/test_torchrun.py

A rank that ends before the first has saved, or that is still in its process group, makes torchrun end all of them.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
FLAGS = ["--data", "data/sample", "--max-length", "24", "--precision", "fp32", "--max-steps", "2", "--batch-size", "8"]
FLAGS += ["--tasks", "sst", "--limit", "16"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone"]
SLOW_TO_SAVE = """
import sys, time
from pathlib import Path
import torch
from minbert.training import ranks, start
from minbert.training.settings import parse
from tasks.settings import PRESETS, MultitaskSettings
saved = Path(sys.argv[2], "saved")
with start.open_run(parse(MultitaskSettings, PRESETS, sys.argv[1:], program="", description="", default="default")):
    if ranks.rank() == 0:
        time.sleep(2)
        saved.touch()
assert saved.exists(), "a rank has left before the first one has saved"
assert not torch.distributed.is_initialized(), "a rank ends inside the process group"
"""


def launch(tiny: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, *TORCHRUN, "multitask_train.py", *FLAGS, "--weights", tiny, "--run-dir", folder]
    variables = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("count", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_every_launch_ends_well(tiny: Path, tmp_path: Path, count: int) -> None:
    for number in range(count):
        done = launch(tiny, tmp_path / f"run{number}")
        assert done.returncode == 0, done.stderr
        left = {path.name for path in (tmp_path / f"run{number}").iterdir()}
        assert {"encoder", "scores.json", "predictions", "report.html"} <= left
        assert "terminate called" not in done.stderr


def test_no_rank_leaves_before_the_first_has_saved_or_ends_inside_the_group(
    script: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_TO_SAVE)
    done = script("", argv=[str(tmp_path / "slow.py"), "--run-dir", str(tmp_path / "run")], ranks=2)
    assert done.codes == [0, 0], [path.read_text() for path in tmp_path.glob("*.err*")]
