"""Guards: a power loss at any moment leaves a run that resumes to the same bits, from its newest finished checkpoint.

python -m pytest --import-mode=importlib -m slow tests/e2e/test_power_loss.py

A killed process loses nothing that it has written, as the kernel still holds it; a power loss does. `Disk` is a layer
over the calls that change files. At each of them it can write what a disk might hold if the power failed there: of a
file what was last synced, of a folder the entries that were last synced, or, for each of them, any newer state that the
kernel may have written by itself.
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minbert.train import checkpoint

CALLS = ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "open")
SETTINGS: dict[str, Any] = {"epochs": 2, "keep": "last"}
State = bytes | dict[str, tuple[int, bool]]
"""A file's content; or a folder's entries: name -> (inode, whether it is a folder)."""


class Disk:
    """What is known to be on the disk below a folder; `at_call` is called before every change of a file there."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, at_call: Callable[["Disk"], None]) -> None:
        self.root, self.at_call = root, at_call
        self.synced: dict[int, State] = {}  # by inode: the state when it was last synced
        self._held: list[int] = []  # descriptors, so that no inode is used twice
        self._calls = {name: getattr(os, name) for name in CALLS}
        self._sync(self._calls["open"](root, os.O_RDONLY))
        for name in CALLS:
            patch.setattr(os, name, self._layer(name))

    def _layer(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            writes = name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR)
            if writes:
                self.at_call(self)
            if name == "fsync":
                self._sync(arguments[0])
            return self._calls[name](*arguments, **options)

        return call

    def _sync(self, descriptor: int) -> None:
        self._held.append(os.dup(descriptor))
        self.synced[os.fstat(descriptor).st_ino] = self._state(Path(f"/proc/self/fd/{descriptor}").resolve())

    def _state(self, path: Path) -> State:
        if not path.is_dir():
            return path.read_bytes()
        entries = [*path.iterdir()]
        self._held += [self._calls["open"](entry, os.O_RDONLY) for entry in entries]
        return {entry.name: (entry.stat().st_ino, entry.is_dir()) for entry in entries}

    def after_power_loss(self, target: Path, share: float, chance: random.Random) -> None:
        """Write to `target` what may be left: of this share of all files and folders the unsynced state."""
        now = {path.stat().st_ino: self._state(path) for path in (self.root, *self.root.rglob("*"))}

        def write(inode: int, folder: bool, path: Path) -> None:
            synced = self.synced.get(inode, {} if folder else b"")
            state = now.get(inode, synced) if chance.random() < share else synced
            if isinstance(state, bytes):
                path.write_bytes(state)
                return
            path.mkdir()
            for name, entry in state.items():
                write(*entry, path / name)

        write(self.root.stat().st_ino, True, target)

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc, as Linux has it")
def test_power_loss_resumes_bit_equal(tmp_path: Path, toy: Any) -> None:
    losses: list[tuple[Path, int]] = []  # what is left of the run, and the newest step whose checkpoint was written
    chance = random.Random(5)
    written = -1
    copying = False
    save = checkpoint.save

    def saved(parent: Path, step: int, *rest: Any) -> None:
        nonlocal written
        save(parent, step, *rest)
        written = step

    def lose(disk: Disk) -> None:
        nonlocal copying
        if copying or written < 0:
            return
        copying = True  # the copies are written by the same calls
        for share in (0, 0.5, 1):
            target = tmp_path / f"loss-{len(losses):04}-{share}"
            disk.after_power_loss(target, share, chance)
            losses.append((target / "run", written))
        copying = False

    (tmp_path / "disk").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(tmp_path / "disk", patch, lose)
        patch.setattr(checkpoint, "save", saved)
        run = toy.begin(tmp_path / "disk" / "run")
        whole, *_ = toy.fit(run, **SETTINGS)
    disk.close()
    assert len(losses) > 50
    for folder, step in losses:
        assert (folder / "manifest.json").is_file(), folder
        resumed = toy.begin(folder)
        newest = checkpoint.steps(resumed.checkpoints)[-1:]
        assert newest and newest[0] >= step, f"{folder}: the checkpoint of step {step} is lost"
        model, state, _ = toy.fit(resumed, **SETTINGS, resume=True)
        assert state.finished
        assert torch.equal(model.weight, whole.weight) and torch.equal(model.bias, whole.bias)
        steps = [(row["kind"], row["step"]) for row in resumed.metrics()]
        assert steps == [(row["kind"], row["step"]) for row in run.metrics()], f"{folder}: rows of the metrics are lost"
        shutil.rmtree(folder.parent)
