"""Guards: a file or folder is whole or as it was before, whatever goes wrong while it is written.

python -m pytest --import-mode=importlib tests/minbert/test_files.py
"""

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert import UserError
from minbert.files import (
    cache_folder,
    cached,
    new_folder,
    read_json,
    read_toml,
    replacing,
    sha256_of,
    write_atomic,
    write_json,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_failed_write_keeps_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_failed_sync_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's sentence needs the name, which the system call does not know."""

    def fail(*_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"Invalid argument: '.*file.*'"):
        write_atomic(tmp_path / "file", "new")


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("existing", [True, False])
def test_new_folder_replaces_after_success(tmp_path: Path, existing: bool, error: type[BaseException] | None) -> None:
    path = tmp_path / "parent" / "folder"
    if existing:
        (path / "old").mkdir(parents=True)
    with pytest.raises(error) if error else nullcontext(), new_folder(path) as temporary:
        (temporary / "new").write_text("x")
        assert not (path / "new").exists()
        if error:
            raise error
    left = ["old"] * existing if error else ["new"]
    assert names(path.parent) == ["folder"] * bool(left) and (not left or names(path) == left)


def test_pipes_and_links_stay(tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # it waits for no writer
    write_atomic(pipe, "new")
    assert os.read(reader, 9) == b"new" and pipe.is_fifo()
    os.close(reader)
    with pytest.raises(UserError, match="pipe: is not a regular file"), replacing(pipe):
        pass
    assert pipe.is_fifo()
    target.write_text("old")
    link.symlink_to(target)
    write_atomic(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    (to_folder := tmp_path / "to-folder").symlink_to(tmp_path / "folder")
    for name in ("first", "second"):
        with new_folder(to_folder) as temporary:
            (temporary / name).touch()
    assert to_folder.is_symlink() and names(tmp_path / "folder") == ["second"]


def write_file(path: Path) -> None:
    write_atomic(path, "new")


def write_folder(path: Path) -> None:
    with new_folder(path) as temporary:
        (temporary / "new").touch()


@pytest.mark.parametrize("ending", ["tmp", "old"])
@pytest.mark.parametrize(("write", "target"), [(write_file, "precious/thesis"), (write_folder, "precious")])
def test_temporary_names_follow_no_link(
    tmp_path: Path, write: Callable[[Path], None], target: str, ending: str
) -> None:
    """They can be predicted, so in a folder of several users another may have put a link there."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("mine")
    (tmp_path / f".file.minbert-{os.getpid()}.{ending}").symlink_to(tmp_path / target)
    for _ in range(2):  # the second time the first result is replaced
        write(tmp_path / "file")
    assert names(precious) == ["thesis"] and (precious / "thesis").read_text() == "mine"
    assert not (tmp_path / "file").is_symlink()


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_json, read_toml, sha256_of):
        with pytest.raises(UserError, match="pipe: is not a regular file"):
            read(tmp_path / "pipe")


def cut(content: bytes) -> bytes:
    return content[:-1]


def flip_bit_of_array(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def flip_bit_of_record(content: bytes) -> bytes:
    assert content.count(b'count\\": 1') == 1
    return content.replace(b'count\\": 1', b'count\\": 3')


@pytest.mark.parametrize("damage", [None, cut, flip_bit_of_array, flip_bit_of_record])
def test_concurrent_misses_build_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes] | None
) -> None:
    monkeypatch.setenv("MINBERT_CACHE", str(tmp_path))
    calls: list[str] = []

    def build() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        calls.append("built")
        time.sleep(0.1)
        return {"x": np.arange(5), "none": np.zeros((0, 3), dtype=np.float32)}, {"count": 1}

    if damage:
        cached("room", ["key"], build)
        (entry,) = (tmp_path / "room").glob("[!.]*")
        entry.write_bytes(damage(entry.read_bytes()))
    with ThreadPoolExecutor(2) as both:
        results = list(both.map(lambda _: cached("room", ["key"], build), range(2)))
    for arrays, record in results:
        assert record == {"count": 1} and arrays["x"].tolist() == [0, 1, 2, 3, 4] and arrays["none"].shape == (0, 3)
    assert len(calls) == (2 if damage else 1)
    assert [path.suffix for path in (tmp_path / "room").glob("[!.]*")] == [".safetensors"]


def test_cache_variable_expands_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MINBERT_CACHE", "~/cache")
    assert cache_folder() == tmp_path / "cache"


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


def test_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "deep"
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(UserError, match="deep: not a TOML file"):
        read_toml(path)
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match="deep: not a JSON file"):
        read_json(path)
