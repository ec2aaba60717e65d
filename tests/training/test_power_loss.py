"""Guards: a power loss at any moment leaves a run that resumes to the same bits, from its newest finished checkpoint.

python -m pytest --import-mode=importlib tests/training/test_power_loss.py

A killed process loses nothing that it has written, as the kernel still holds it; a power loss does. `Disk` is a layer
over the calls that change files. At each of them it can write what a disk might hold if the power failed there: of a
file what was last synced, of a folder the entries that were last synced, or, for each of them, any newer state that the
kernel may have written by itself.
"""

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from minbert.training import checkpoint

CALLS = ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "open")
SETTINGS: dict[str, Any] = {"epochs": 2, "keep": "last"}


class Disk:
    """What is known to be on the disk below a folder; `at_call` is called before every change of a file there."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, at_call: Callable[["Disk"], None]) -> None:
        self.root, self.at_call = root, at_call
        self.files: dict[int, bytes] = {}  # by inode: the content when it was last synced
        self.folders: dict[int, dict[str, int]] = {}  # by inode: the entries when it was last synced
        self._kinds: dict[int, bool] = {}  # by inode: whether it is a folder
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
        inode = os.fstat(descriptor).st_ino
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self.folders[inode] = self._entries(path)
        else:
            self.files[inode] = path.read_bytes()

    def _entries(self, folder: Path) -> dict[str, int]:
        entries = {}
        for path in folder.iterdir():
            entries[path.name] = path.stat().st_ino
            self._kinds[path.stat().st_ino] = path.is_dir()
            self._held.append(self._calls["open"](path, os.O_RDONLY))
        return entries

    def after_power_loss(self, target: Path, newer: Callable[[], bool]) -> None:
        """Write to `target` what may be left; `newer` says for a file or folder whether its unsynced state is."""
        now_files: dict[int, bytes] = {}
        now_folders = {self.root.stat().st_ino: self._entries(self.root)}
        for path in self.root.rglob("*"):
            if path.is_dir():
                now_folders[path.stat().st_ino] = self._entries(path)
            else:
                now_files[path.stat().st_ino] = path.read_bytes()

        def write(inode: int, path: Path) -> None:
            if inode in now_folders or inode in self.folders:
                path.mkdir()
                synced = self.folders.get(inode, {})
                entries = now_folders.get(inode, synced) if newer() else synced
                for name, child in entries.items():
                    write(child, path / name)
            elif self._kinds.get(inode):  # deleted, and never synced
                path.mkdir()
            else:
                synced_content = self.files.get(inode, b"")
                path.write_bytes(now_files.get(inode, synced_content) if newer() else synced_content)

        write(self.root.stat().st_ino, target)

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)


@pytest.fixture
def losses(tmp_path: Path, toy: Any) -> Iterator[list[tuple[Path, int]]]:
    """Folders, each with what a power loss has left of a run, and the step whose checkpoint had been written."""
    places: list[tuple[Path, int]] = []
    chance = random.Random(5)
    choices = {"synced": lambda: False, "all": lambda: True, "some": lambda: chance.random() < 0.5}
    written = [-1]
    save, taken = checkpoint.save, [False]

    def saved(parent: Path, step: int, *rest: Any) -> None:
        save(parent, step, *rest)
        written[0] = step

    def lose(disk: Disk) -> None:
        if taken[0] or written[0] < 0:
            return
        taken[0] = True  # the copies are written by the same calls
        for name, newer in choices.items():
            target = tmp_path / f"loss-{len(places):04}-{name}"
            disk.after_power_loss(target, newer)
            places.append((target / "run", written[0]))
        taken[0] = False

    (tmp_path / "disk").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(tmp_path / "disk", patch, lose)
        patch.setattr(checkpoint, "save", saved)
        toy.fit(toy.begin(tmp_path / "disk" / "run"), **SETTINGS)
    disk.close()
    yield places


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_resumes_to_the_same_bits_after_a_power_loss_at_any_call(
    losses: list[tuple[Path, int]], tmp_path: Path, toy: Any, every: int
) -> None:
    whole, _, _ = toy.fit(toy.begin(tmp_path / "whole"), **SETTINGS)
    assert len(losses) > 50
    for folder, step in losses[::every]:
        assert (folder / "manifest.json").is_file(), folder
        run = toy.begin(folder)
        newest = checkpoint.steps(run.checkpoints)[-1:]
        assert newest and newest[0] >= step, f"{folder}: the checkpoint of step {step} is lost"
        model, state, _ = toy.fit(run, **SETTINGS, resume=True)
        assert state.finished and torch.equal(model.weight, whole.weight) and torch.equal(model.bias, whole.bias)
        shutil.rmtree(folder.parent)
