"""Guards: a run's folder: its lock, sessions, metrics and what a kill leaves; nothing is lost or mixed.

python -m pytest --import-mode=importlib tests/minbert/train/test_run.py
"""

import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from minbert import UserError
from minbert.train import checkpoint
from minbert.train.run import RunFolder, environment
from tests.toy import MANIFEST


def test_locked_folder_names_its_holder(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", resume=False, identity={}):
        with (
            pytest.raises(UserError, match=f"is in use by process {os.getpid()} on"),
            RunFolder.open(tmp_path / "run", resume=True, identity={}),
        ):
            pass
        assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run").exists(), "nothing was written into it"


def test_resuming_works_without_locks(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some network folders have none; a killed run has left its lock file there."""

    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = toy.begin(tmp_path / "run").path
    (folder / ".minbert.lock").write_text("process 1 on node")
    with RunFolder.open(folder, resume=True, identity={}) as run:
        _, state, _ = toy.fit(run, resume=True)
    assert state.finished
    assert "has no locks" in capsys.readouterr().err


@pytest.mark.parametrize("again", [False, True], ids=["gone", "begun again"])
def test_removed_folder_stays_removed(toy: Any, tmp_path: Path, again: bool) -> None:
    """Also if another run has begun in its place."""

    def remove(*_: Any) -> None:
        shutil.rmtree(tmp_path / "run")
        if again:
            toy.begin(tmp_path / "run")
            (tmp_path / "run" / ".minbert.lock").write_text("process 1")

    with (
        pytest.raises(UserError, match="was removed while the run was training"),
        RunFolder.open(tmp_path / "run", resume=False, identity={}) as run,
    ):
        run.start_session(MANIFEST)
        toy.fit(run, objective=toy.Objective(after={5: remove}), save_every=1)
    assert (tmp_path / "run").exists() == again
    assert checkpoint.steps(run.checkpoints) == []


def test_kill_between_renames_loses_nothing(run: RunFolder) -> None:
    """A folder is replaced by two renames: before the second one it has its old content under a hidden name."""
    (run.path / ".encoder.minbert-1.old").mkdir()
    (run.path / ".scores.json.minbert-1.tmp").touch()
    run.start_session(MANIFEST)
    assert (run.path / "encoder").is_dir()
    assert not [*run.path.rglob(".*.minbert-*")]


def test_repeated_rows_are_forgotten(toy: Any, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="step 10"):
        toy.fit(run, save_every=6, log_every=1, objective=toy.Objective(scalars={9: {"loss": float("nan")}}))
    assert checkpoint.steps(run.checkpoints) == [4, 8]
    path = run.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    assert json.loads(lines[-1])["step"] == 9
    path.write_bytes(b"\n".join([lines[0], b"\0" * 40, *lines[1:], b'{"kind": "tra']))
    run.start_session(MANIFEST)
    rows = [(row["kind"], row["step"]) for row in run.metrics()]
    evaluation = rows.index(("evaluation", 4))
    assert rows[evaluation + 1 :] == [("train", 5), ("train", 6), ("train", 7), ("train", 8)]
    assert f"note: {path}: 1 unreadable line dropped" in capsys.readouterr().err


def test_sessions_record_steps_and_changes(toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    changes = []
    for instructions in ("AVX512_CORE_BF16", "AVX512_CORE_BF16", "AVX2"):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", instructions)
        manifest = {"settings": {}, "command": instructions, "environment": environment(torch.device("cpu"))}
        changes.append(run.start_session(manifest))
        if len(changes) == 1:
            with pytest.raises(UserError):
                toy.fit(run, objective=toy.Objective(scalars={9: {"loss": float("nan")}}))
    assert changes == [[], [], ["instructions AVX2 (was AVX512_CORE_BF16)"]], "the bits may differ then"
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["command"] == "AVX512_CORE_BF16"
    assert [(session["from_step"], session["to_step"]) for session in manifest["sessions"]] == [(0, 8), (8, 8), (8, 8)]
    assert manifest["sessions"][2]["command"] == "AVX2"
    assert manifest["sessions"][0]["seconds"] > 0
