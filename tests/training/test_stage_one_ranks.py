"""Guards: stage one on two ranks has the scores of one process, and goes on with the same bits after a kill.

python -m pytest --import-mode=importlib tests/training/test_stage_one_ranks.py
"""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PRETRAIN = "pretrain_cbcl.py"
SHORT = ("--epochs", 2, "--max-steps", 6, "--batch-size", 15, "--lr", 1e-3, "--evaluate-every", 3, "--keep", "best")


def test_two_ranks_have_the_metrics_of_one_process(script: Callable[..., Any]) -> None:
    flags = (*SHORT, "--encoder-dropout", 0, "--metric", "loss", "--pooler", "mean", "--precision", "fp32")
    alone = script(PRETRAIN, *flags, run_dir="alone")
    both = script(PRETRAIN, *flags, run_dir="both", ranks=2)
    assert both.codes == [0, 0], both.err
    assert len(both.rows()) == len(alone.rows()) == 4, "one rank alone writes the metrics"
    for ours, theirs in zip(both.rows(), alone.rows(), strict=True):
        assert ours.keys() == theirs.keys() and (ours["kind"], ours["step"]) == (theirs["kind"], theirs["step"])
        numbers = [name for name, value in theirs.items() if isinstance(value, float)]
        assert [ours[name] for name in numbers] == pytest.approx([theirs[name] for name in numbers], rel=1e-4, abs=1e-6)


def test_two_ranks_killed_and_resumed_have_the_bits_of_an_unbroken_run(
    script: Callable[..., Any], tmp_path: Path
) -> None:
    whole = script(PRETRAIN, *SHORT, run_dir="whole", ranks=2)
    assert whole.codes == [0, 0], whole.err
    killed = script(PRETRAIN, *SHORT, run_dir="killed", ranks=2, signal=(signal.SIGKILL, "step", 4))
    assert sorted(killed.codes) == [-signal.SIGKILL, 2], "a rank that is left alone ends too"
    last = max(tmp_path.glob("*.err1"), key=lambda path: path.stat().st_mtime).read_text()
    assert last.startswith("error: another process of this run has ended") and last.count("\n") == 1, last
    resumed = script(PRETRAIN, *SHORT, "--resume", run_dir="killed", ranks=2)
    assert resumed.codes == [0, 0], resumed.err
    assert resumed.rows() == whole.rows() and resumed.bits() == whole.bits()
