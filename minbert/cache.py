"""A cache of results computed from files: one folder per key, written atomically and verified when opened.

A folder's `meta.json` is written last, with the size and the SHA-256 of every file and a SHA-256 of its own content.
A folder that fails the verification is rebuilt.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import new_folder, read_json, sha256_of, write_json

_RECORD = "meta.json"


def default_folder() -> Path:
    """The cache's root folder: `$MINBERT_CACHE`, else `minbert` in the user's cache folder."""
    own = os.environ.get("MINBERT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minbert"


def cached_folder(
    room: str, key: Iterable[object], build: Callable[[Path], dict[str, Any]]
) -> tuple[Path, dict[str, Any]]:
    """The cached folder of a key, and the dict that `build` returned for it, with the record of its `files`.

    On a cache miss, or if the folder is damaged, `build` fills a new folder. If two processes build the same key at
    once, the first to finish wins. `room` is the subfolder of the cache. Raises `UserError` if the cache cannot be
    written.
    """
    name = hashlib.sha256("\x1f".join(map(str, key)).encode()).hexdigest()[:32]
    folder = default_folder() / room / name
    record = _sound_record(folder)
    if record is None:
        try:
            if folder.exists():
                shutil.rmtree(folder)
            with new_folder(folder, first_wins=True) as beside:
                said = build(beside)
                files = {path.name: [path.stat().st_size, sha256_of(path)] for path in sorted(beside.iterdir())}
                write_json(beside / _RECORD, {"said": said, "files": files, "sha256": _digest(said, files)})
        except OSError as error:
            raise UserError(f"{folder}: the cache cannot be written: {error.strerror or error}") from error
        record = read_json(folder / _RECORD)
    return folder, {**record["said"], "files": record["files"]}


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _sound_record(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's `meta.json`, or None if it or any file is missing or damaged."""
    try:
        record: dict[str, Any] = read_json(folder / _RECORD)
        sound = record["sha256"] == _digest(record["said"], record["files"]) and all(
            (folder / name).stat().st_size == size and sha256_of(folder / name) == sha256
            for name, (size, sha256) in record["files"].items()
        )
    except (OSError, UserError, KeyError, TypeError, RecursionError):
        return None
    return record if sound else None
