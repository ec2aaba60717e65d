"""Files: atomic writes, JSON, safetensors, and a cache of results computed from files.

A file or folder is written under a temporary name, synced, then renamed. The cache has one safetensors file per key:
arrays, the key itself, a JSON record and a checksum.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from minbert.errors import UserError, reason

Entry = tuple[dict[str, np.ndarray], dict[str, Any]]
"""The arrays of a cache entry and its JSON record."""
TEMPORARY = re.compile(r"\.(?P<original>.+)\.minbert-\d+\.(?P<ending>tmp|old)")
"""The names of unfinished (`tmp`) and replaced (`old`) files and folders, which a killed process leaves."""


def expand_user(path: str | Path) -> Path:
    """The path with `~` replaced by a home folder; unchanged if there is no such user."""
    # Path.expanduser raises an error if there is no such user
    return Path(os.path.expanduser(path))  # noqa: PTH111


def data_path(folder: str) -> Path:
    """`--data`, else `$DATA_DIR`, else `data`, with `~` expanded; it need not exist."""
    return expand_user(folder or os.environ.get("DATA_DIR") or "data")


def require_file(path: Path, flag: str = "") -> Path:
    """Return `path` if it is a regular file. Raises `UserError` otherwise; the message begins with `flag`."""
    if path.is_file():
        return path
    problem = "no such file"
    if path.is_dir():
        problem = "is a folder, not a file"
    elif path.exists():  # such as a pipe, whose reader would wait for a writer
        problem = "is not a regular file"
    raise UserError(f"{flag} {path}: {problem}".lstrip())


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises `UserError` if it is not one."""
    require_file(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{path}: not a TOML file: {error}") from error


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes. Raises `UserError` if it is not a regular file."""
    with open(require_file(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries if its file system can do that, to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # some network file systems cannot sync a folder; an I/O error means lost data
        if error.errno == errno.EIO or not path.is_dir():
            error.filename = str(path)  # for the message: the call knows a descriptor only
            raise
    finally:
        os.close(descriptor)


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises `UserError` if it is not one, `OSError` if it cannot be opened."""
    with open(path, "rb"):  # safetensors reports every failure to open as a missing file
        pass
    try:
        return safetensors.torch.load_file(path)
    except (SafetensorError, ValueError, LookupError) as error:  # the last two for an unknown type
        raise UserError(f"{path}: not a readable safetensors file: {reason(error)}") from error


def save_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device as safetensors, readable by others as the umask allows.

    Raises `UserError` if the file cannot be written, such as on a full disk.
    """
    path.touch()
    mode = path.stat().st_mode  # safetensors replaces the file by one that only its owner can read
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        safetensors.torch.save_file(on_cpu, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise UserError(f"{path}: cannot be written: {reason(error)}") from error
    path.chmod(mode)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, synced so that they survive a power loss."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def _temporary(path: Path, ending: str = "tmp") -> Path:
    """A free name that matches `TEMPORARY`, in the folder of `path`: only within a file system is a rename atomic.

    A link of this name is deleted, so that what it points to is not written.
    """
    temporary = path.with_name(f".{path.name}.minbert-{os.getpid()}.{ending}")
    remove(temporary)  # what a killed process with the same PID has left
    return temporary


def remove(path: Path) -> None:
    """Delete a file, a folder or a link, but not what a link points to; nothing happens if there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` atomically: a reader sees the old file or the new one, never a partial one.

    Follows a link. Writes directly to anything but a regular file, such as `/dev/null` or a pipe.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = path.resolve()
    temporary = _temporary(path)
    try:
        temporary.write_bytes(data)
        # before the rename: after a power loss the name could otherwise point to an empty file
        sync(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a failed write does not name its file
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. Raises `ValueError` for NaN and infinity."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises `UserError`, with line and column if known, if it is not valid JSON."""
    require_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: not a JSON file: {error}") from error


def read_optional_json(path: Path) -> dict[str, Any]:
    """As `read_json`, of an object; empty if there is no such file."""
    return read_json(path) if path.is_file() else {}


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it replaces `path` if the block raises nothing, and is deleted otherwise.

    Follows a link. A file at `path` stays, with an `OSError`.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    retired = _temporary(path, "old")
    temporary.mkdir()
    try:
        yield temporary
        for inner in temporary.rglob("*"):
            sync(inner)
        sync(temporary)
        # the old folder is set aside first, as a rename can replace only an empty one
        if path.is_dir():
            os.rename(path, retired)
        os.rename(temporary, path)
    except BaseException:
        if retired.exists() and not path.exists():
            os.rename(retired, path)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(path.parent)
    remove(retired)


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """A short unique name for each file or folder: as many last parts of its path as distinguish all of them.

    Raises `UserError` if one is given twice.
    """
    parts = [path.resolve().parts for path in paths]
    deepest = max(len(part) for part in parts)
    for depth in range(1, deepest + 1):
        names = [str(Path(*part[-depth:])) for part in parts]
        if len(set(names)) == len(names):
            return names
    twice = next(path for path, name in zip(paths, names, strict=True) if names.count(name) > 1)
    raise UserError(f"{twice}: is named twice")


def cache_folder() -> Path:
    """`$MINBERT_CACHE`, else `minbert` in the user's cache folder."""
    named = os.environ.get("MINBERT_CACHE")
    if named:
        return expand_user(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minbert"


def key_hash(key: Iterable[object]) -> str:
    """Hex SHA-256 of the parts of a key."""
    # joined by a separator that no part holds, else ("ab", "c") and ("a", "bc") would be one key
    text = "\x1f".join(str(part) for part in key)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def cache_entry(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder of the cache while it is built; other processes wait."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock")).acquire()
    except OSError as error:
        raise UserError(f"{path.parent}: {error.strerror}; $MINBERT_CACHE names another folder for the cache") from None
    with lock:
        for unfinished in path.parent.glob(f".{path.name}.minbert-*"):
            remove(unfinished)  # what a killed process has left
        yield


def cached(subfolder: str, key: Iterable[object], build: Callable[[], Entry]) -> Entry:
    """The arrays and the JSON record that `build` returns for a key, from the cache if they are there.

    `subfolder` is in the cache. The arrays are memory maps of the entry's file. One process builds an entry that
    is missing, damaged or of another key, while others wait. Raises `UserError` if the cache has no folder that can be
    locked, and `OSError` if the entry cannot be written.
    """
    hashed_key = key_hash(key)
    path = cache_folder() / subfolder / f"{hashed_key}.safetensors"
    entry = _read_entry(path, hashed_key)
    if entry is not None:
        return entry
    with cache_entry(path):
        entry = _read_entry(path, hashed_key)  # another process may have built it meanwhile
        if entry is not None:
            return entry
        arrays, record = build()
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        text = json.dumps(record)
        metadata = {"key": hashed_key, "record": text, "crc32": _checksum(text, contiguous)}
        write_atomic(path, save(contiguous, metadata))
        entry = _read_entry(path, hashed_key)
    assert entry is not None
    return entry


def _read_entry(path: Path, hashed_key: str) -> Entry | None:
    """The arrays and the record of an entry; None if it is missing, damaged or of another key."""
    try:
        with safe_open(path, framework="pt") as file:  # NumPy's own reader would copy the file instead of mapping it
            metadata = file.metadata() or {}
            if metadata.get("key") != hashed_key:
                return None
            arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
            if metadata["crc32"] != _checksum(metadata["record"], arrays):
                return None
            return arrays, json.loads(metadata["record"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _checksum(record: str, arrays: dict[str, np.ndarray]) -> str:
    """The CRC-32 of an entry's content.

    It guards against a damaged disk, not against people. Every start reads all bytes for it, so it has to be fast.
    """
    checksum = zlib.crc32(record.encode())
    for name in sorted(arrays):
        array = arrays[name]
        checksum = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data, checksum)
    return f"{checksum:08x}"
