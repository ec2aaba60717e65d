"""Atomic writes: a file or folder is written under a temporary name, synced, then renamed."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minbert.errors import UserError


def present(path: Path, flag: str = "") -> Path:
    """Return `path` if it is a file. Raises `UserError` otherwise; the message begins with `flag`."""
    if not path.is_file():
        why = "is a folder, not a file" if path.is_dir() else "no such file"
        raise UserError(f"{flag} {path}: {why}".lstrip())
    return path


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` atomically: a reader sees the old file or the new one, never a partial one."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. Raises `ValueError` for NaN and infinity."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises `UserError`, with line and column, if it is not valid JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a JSON file: {error}") from error


@contextmanager
def new_folder(path: Path, *, first_wins: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; it replaces `path` if the block raises nothing, and is deleted otherwise.

    With `first_wins`, a folder that another process has created at `path` in the meantime is kept, and this one is
    deleted. This is for caches, where both have the same content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        yield beside
        for inner in beside.rglob("*"):
            sync(inner)
        sync(beside)
        if first_wins:
            _rename_unless_there(beside, path)
        elif path.exists():
            retired = path.with_name(f".{path.name}.{os.getpid()}.old")
            os.rename(path, retired)
            try:
                os.rename(beside, path)
            except BaseException:
                os.rename(retired, path)
                raise
            shutil.rmtree(retired)
        else:
            os.rename(beside, path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync(path.parent)


def _rename_unless_there(beside: Path, path: Path) -> None:
    try:
        os.rename(beside, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(beside)


def distinct_names(folders: list[Path]) -> list[str]:
    """A short unique name for each folder: the fewest last parts of its path that tell all of them apart.

    Raises `UserError` if a folder is given twice.
    """
    parts = [folder.resolve().parts for folder in folders]
    deepest = max(map(len, parts))
    for depth in range(1, deepest + 1):
        found = [str(Path(*part[-depth:])) for part in parts]
        if len(set(found)) == len(found):
            return found
    raise UserError("the same folder is named twice")
