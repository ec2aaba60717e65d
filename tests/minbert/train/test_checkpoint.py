"""Guards: the newest whole checkpoint is used, and a crash between any two file operations leaves one.

python -m pytest --import-mode=importlib tests/minbert/train/test_checkpoint.py
"""

import errno
import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from minbert import AdamW, UserError
from minbert.train import checkpoint
from minbert.train.run import RunFolder
from tests.minbert.conftest import cut
from tests.toy import MANIFEST


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = [("state.json", flip), ("state.json", cut), ("model.safetensors", flip), ("optimizer.safetensors", cut)]


@pytest.fixture
def stopped(toy: Any, tmp_path: Path) -> RunFolder:
    """A run that ended in step 10: step 4 is its best checkpoint, 9 its newest."""
    run = toy.begin(tmp_path / "run")
    with pytest.raises(UserError, match="step 10"):
        broken = toy.Objective(scalars={9: {"loss": float("nan")}})
        toy.fit(run, baseline=0.5, scores=[0.9, 0.1], save_every=9, objective=broken)
    assert checkpoint.steps(run.checkpoints) == [4, 9]
    return run


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_newest_whole_checkpoint_is_used(
    toy: Any, stopped: RunFolder, name: str, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    *_, whole = toy.fit(toy.begin(stopped.path.parent / "whole"), baseline=0.5, scores=[0.9, 0.1, 0.2])
    path = stopped.checkpoints / "step-00000009" / name
    path.write_bytes(damage(path.read_bytes()))
    _, state, seen = toy.fit(stopped, baseline=0.5, scores=[0.9, 0.1, 0.2], resume=True)
    assert capsys.readouterr().err.startswith(f"note: {path} is damaged")
    assert torch.equal(seen[-1], whole[-1])
    assert state.kept_step == 4


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux lists the files that a process has mapped")
def test_resumed_run_maps_no_checkpoint(toy: Any, stopped: RunFolder) -> None:
    """Network file systems cannot delete the folder of a file that is mapped."""
    model = toy.model()
    optimizer = AdamW(model.parameters(), lr=0.1)
    checkpoint.load(stopped.checkpoints, 9, model, optimizer)
    assert optimizer.state[model.weight]["step"] == 9
    assert str(stopped.checkpoints) not in Path("/proc/self/maps").read_text()


def test_deleted_checkpoints_are_missed(stopped: RunFolder) -> None:
    """The run is not started again."""
    shutil.rmtree(stopped.checkpoints)
    with pytest.raises(UserError, match="holds no checkpoint, but the run had reached step 9"):
        stopped.start_session(MANIFEST)


def test_no_whole_checkpoint_is_an_error(stopped: RunFolder) -> None:
    (stopped.checkpoints / "step-00000004" / "model.safetensors").unlink()  # the kept one, which both need
    message = r"step-00000004/model\.safetensors is damaged; no checkpoint is whole; start again in another folder$"
    with pytest.raises(UserError, match=message):
        stopped.start_session(MANIFEST)
    # also if the run was killed between its first checkpoint and the record of that step
    manifest = json.loads((stopped.path / "manifest.json").read_text())
    manifest["sessions"][-1]["to_step"] = 0
    (stopped.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=message):
        stopped.start_session(MANIFEST)
    assert checkpoint.steps(stopped.checkpoints) == [4, 9]
    shutil.rmtree(stopped.checkpoints / "step-00000004")
    with pytest.raises(UserError, match=r"step-00000004/state\.json is damaged; no checkpoint is whole"):
        stopped.start_session(MANIFEST)


def test_unsyncable_folder_stops_nothing(toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems cannot flush a folder; a defect of the disk is no such case."""
    fsync = os.fsync
    number = errno.EINVAL

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    _, state, _ = toy.fit(run)
    assert state.finished
    number = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        toy.fit(toy.begin(run.path.parent / "other"))


def train(toy: Any, folder: Path) -> torch.Tensor:
    run = RunFolder(folder)
    model, *_ = toy.fit(run, baseline=0.5, save_every=3, evaluate_every=6, resume=True)
    return model.weight


def crash(toy: Any, folder: Path, point: int, full: bool) -> int:
    """Train in another process that before its file operation `point` is killed, or finds the disk full once.

    Returns its exit code; if it is 0, the number of operations is in a file beside the folder.
    """
    child = os.fork()
    if child == 0:
        code = 1
        numbers = count()
        fsync = os.fsync
        sys.dont_write_bytecode = True

        def operation(event: str, arguments: tuple[Any, ...]) -> None:
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if not writes and event not in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "fsync"):
                return
            if next(numbers) == point:
                if full:
                    raise OSError(errno.ENOSPC, "No space left on device")
                os.kill(os.getpid(), signal.SIGKILL)

        def audited_fsync(descriptor: int) -> None:
            sys.audit("fsync")
            fsync(descriptor)

        try:
            sys.addaudithook(operation)
            os.fsync = audited_fsync  # type: ignore[assignment]
            train(toy, folder)
            (folder.parent / "operations").write_text(str(next(numbers)))
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("full", [False, True], ids=["kill", "full disk"])
def test_crash_leaves_whole_checkpoints(toy: Any, tmp_path: Path, full: bool, every: int) -> None:
    """Before a file operation of the whole run, saves and the deletion of old checkpoints included."""
    whole = train(toy, tmp_path / "whole")  # first, as the first update of a process makes a folder for torch
    assert crash(toy, tmp_path / "counted", -1, full) == 0
    operations = int((tmp_path / "operations").read_text())
    assert operations > 80
    exit_codes = (errno.ENOSPC, 0) if full else (-signal.SIGKILL,)
    for point in range(0, operations, every):
        folder = tmp_path / f"run{point}"
        assert crash(toy, folder, point, full) in exit_codes, point
        _, damages = checkpoint.newest_whole(folder / "checkpoints")
        assert not damages, point
        assert torch.equal(train(toy, folder), whole), point
        assert checkpoint.steps(folder / "checkpoints") == [12], point
        assert not [*folder.rglob(".*")], point
