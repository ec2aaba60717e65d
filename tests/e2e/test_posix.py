"""Guards: both scripts run on any POSIX system: without what only Linux or glibc has.

python -m pytest --import-mode=importlib tests/e2e/test_posix.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, SAMPLE

WITHOUT_LINUX = """
import ctypes, os, runpy, sys

vars(os).pop("sched_getaffinity", None)  # macOS has none

def audit(event, arguments):
    if event == "open" and str(arguments[0]).startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

sys.addaudithook(audit)

get_function = ctypes.CDLL.__getattr__

def get(library, name):
    if name == "mallopt":
        raise AttributeError(name)
    return get_function(library, name)

ctypes.CDLL.__getattr__ = get

from minbert.train import cli
cli.run_module = lambda *_: None  # the page takes seconds, and is another process
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("script", ["multitask_train.py", "pretrain_cbcl.py"])
def test_script_runs_without_linux(script: str, tiny: Path, tmp_path: Path) -> None:
    flags = ["--weights", tiny, "--data", SAMPLE, "--run-dir", tmp_path / "run", "--max-steps", 2, "--limit", 32]
    command = [sys.executable, "-c", WITHOUT_LINUX, ROOT / script, *flags, "--batch-size", 8, "--max-length", 24]
    result = subprocess.run(
        [*map(str, command)],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run" / "scores.json").is_file()
