"""Guards: a file or folder is whole or as it was before, whatever goes wrong while it is written.

python -m pytest --import-mode=importlib tests/minbert/test_files.py
"""

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minbert import UserError
from minbert.files import (
    cache_folder,
    cached,
    new_folder,
    read_json,
    read_toml,
    save_safetensors,
    sha256_of,
    write_atomic,
    write_json,
)
from tests.minbert.conftest import cut, flip_last_bit


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_failed_write_keeps_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="disk full") as caught:
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]
    assert "file" in caught.value.filename, "the call knows a descriptor only, the sentence needs a name"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["folder", "other"])
def test_unfinished_folder_replaces_nothing(tmp_path: Path, name: str, error: type[BaseException]) -> None:
    (tmp_path / "folder" / "old").mkdir(parents=True)
    with pytest.raises(error), new_folder(tmp_path / name) as temporary:
        (temporary / "new").write_text("x")
        raise error
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["old"]


def test_failed_rename_keeps_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old folder has been set aside by then."""
    rename = os.rename
    path = tmp_path / "folder"
    (path / "old").mkdir(parents=True)

    def fail(source: Path, target: Path) -> None:
        if (source / "new").exists():
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="Input/output"), new_folder(path) as temporary:
        (temporary / "new").touch()
    assert names(tmp_path) == ["folder"]
    assert names(path) == ["old"]


def test_pipe_is_written_and_never_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # it waits for no writer
    write_atomic(pipe, "new")
    assert os.read(reader, 9) == b"new"
    os.close(reader)
    for read in (read_json, read_toml, sha256_of):  # a reader would wait for a writer
        with pytest.raises(UserError, match="pipe: is not a regular file"):
            read(pipe)
    assert pipe.is_fifo()


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    (tmp_path / "to-folder").symlink_to(tmp_path / "parent" / "folder")
    for name in ("first", "second"):
        with new_folder(tmp_path / "to-folder") as temporary:
            (temporary / name).touch()
    assert (tmp_path / "to-folder").is_symlink()
    assert names(tmp_path / "parent" / "folder") == ["second"]
    assert names(tmp_path / "parent") == ["folder"]
    assert names(tmp_path) == ["link", "parent", "target", "to-folder"]


@pytest.mark.parametrize("ending", ["tmp", "old"])
def test_temporary_names_follow_no_link(tmp_path: Path, ending: str) -> None:
    """They can be predicted, so in a folder of several users another may have put a link there."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("mine")
    (tmp_path / f".file.minbert-{os.getpid()}.{ending}").symlink_to(precious / "thesis")
    (tmp_path / f".folder.minbert-{os.getpid()}.{ending}").symlink_to(precious)
    for _ in range(2):  # the second time the first result is replaced
        write_atomic(tmp_path / "file", "new")
        with new_folder(tmp_path / "folder") as temporary:
            (temporary / "new").touch()
    assert names(precious) == ["thesis"]
    assert (precious / "thesis").read_text() == "mine"


def test_tensors_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_safetensors(tmp_path / "x.safetensors", {"x": torch.zeros(2)})
    finally:
        os.umask(before)
    assert (tmp_path / "x.safetensors").stat().st_mode & 0o777 == 0o640


def change_record(content: bytes) -> bytes:
    assert content.count(b'count\\": 1') == 1
    return content.replace(b'count\\": 1', b'count\\": 3')


@pytest.mark.parametrize("damage", [None, cut, flip_last_bit, change_record])
def test_concurrent_misses_build_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes] | None
) -> None:
    monkeypatch.setenv("MINBERT_CACHE", str(tmp_path))
    calls = []

    def build() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        calls.append("built")
        time.sleep(0.1)
        return {"x": np.arange(5), "none": np.zeros((0, 3), dtype=np.float32)}, {"count": 1}

    if damage:
        cached("room", ["key"], build)
        (entry,) = (tmp_path / "room").glob("[!.]*")
        entry.write_bytes(damage(entry.read_bytes()))
        calls.clear()
    with ThreadPoolExecutor(2) as both:
        results = list(both.map(lambda _: cached("room", ["key"], build), range(2)))
    for arrays, record in results:
        assert record == {"count": 1}
        assert arrays["x"].tolist() == [0, 1, 2, 3, 4]
        assert arrays["none"].shape == (0, 3)
    assert calls == ["built"]
    assert [path.suffix for path in (tmp_path / "room").glob("[!.]*")] == [".safetensors"]


def test_cache_variable_expands_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("MINBERT_CACHE", "~/cache")
    assert cache_folder() == Path("/home/somebody/cache")


def test_unusable_cache_names_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file, or a folder that is read only, or on a network file system without locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "file").touch()
    monkeypatch.setattr("fcntl.flock", refuse)
    for path, reason in ((tmp_path / "file", "Not a directory"), (tmp_path, "No locks available")):
        monkeypatch.setenv("MINBERT_CACHE", str(path))
        with pytest.raises(UserError, match=f"room: {reason}; \\$MINBERT_CACHE names another folder"):
            cached("room", ["key"], lambda: ({}, {}))


def test_json_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": [1, "ü"]})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, float("nan"))
    assert read_json(path) == {"a": [1, "ü"]}
    for content in (b"{", b"\xff\xfe", b""):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"x\.json"):
            read_json(path)
