"""A data file, tokenised once: ids, labels and texts on disk, memory-mapped, so that a second start reads no text.

A cache is a folder, keyed by the hash of the data file, its reader and the vocabulary. It is written in a stream,
so its size is bounded by the disk alone, and its `meta.json` comes last: without it the folder does not count.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import UserError
from minbert.files import new_folder, present, read_json, sha256_of, write_json
from minbert.tokenizer import Tokenizer

_CHUNK = 4096
_VERSION = 2


@dataclass(frozen=True)
class Row:
    """One row of a data file: its id, its texts (1, 2 or 3), and its label, NaN where it has none."""

    id: str
    texts: tuple[str, ...]
    label: float = float("nan")
    line: int = 0
    note: str = ""  # what is wanting in a row that is kept all the same; said with its line


@dataclass(frozen=True)
class Skipped:
    """A row that was read and not kept."""

    line: int
    why: str


@dataclass(frozen=True)
class TokenCache:
    """The rows of one data file. `columns` texts a row; row i, column c is text number i * columns + c."""

    source: Path
    sha256: str
    columns: int
    skipped: tuple[Skipped, ...]
    noted: tuple[Skipped, ...]
    labels: np.ndarray = field(repr=False)
    _ids: np.ndarray = field(repr=False)
    _ends: np.ndarray = field(repr=False)
    _text: np.ndarray = field(repr=False)
    _text_ends: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def ids(self, row: int, column: int = 0) -> np.ndarray:
        """Token ids of one text, whole and without special tokens."""
        number = row * self.columns + column
        return self._ids[self._ends[number] : self._ends[number + 1]]

    def token_counts(self) -> np.ndarray:
        """Number of tokens of every text: [rows, columns]."""
        return np.diff(self._ends).reshape(-1, self.columns)

    def text(self, row: int, column: int = 0) -> str:
        """One text, as it was tokenised."""
        return self._string(row * (self.columns + 1) + 1 + column)

    def row_id(self, row: int) -> str:
        """The id of a row."""
        return self._string(row * (self.columns + 1))

    def _string(self, number: int) -> str:
        return bytes(self._text[self._text_ends[number] : self._text_ends[number + 1]]).decode("utf-8")

    def account(self) -> dict[str, Any]:
        """What was read, kept and skipped, for the manifest."""
        return {
            "file": str(self.source),
            "sha256": self.sha256,
            "read": len(self) + len(self.skipped),
            "kept": len(self),
            "labelled": int(np.isfinite(self.labels).sum()),
            "skipped": [{"line": row.line, "why": row.why} for row in self.skipped],
            "noted": [{"line": row.line, "why": row.why} for row in self.noted],
        }


Reader = Callable[[Path], Iterator[Row | Skipped]]


def default_folder() -> Path:
    """Where caches lie: `$MINBERT_CACHE`, else `minbert` in the user's cache folder."""
    own = os.environ.get("MINBERT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minbert"


def digest(source: Path, also: Sequence[Path] = ()) -> str:
    """Hex SHA-256 of a data file, or of its hash and those of files that are read along; `UserError` without one."""
    own, *others = (sha256_of(present(path)) for path in (source, *also))
    return hashlib.sha256(" ".join([own, *others]).encode()).hexdigest() if also else own


def load(
    source: Path, reader: Reader, reader_name: str, columns: int, tokenizer: Tokenizer, *, also: Sequence[Path] = ()
) -> TokenCache:
    """The cache of a data file, built now if it is not there; `UserError` where the reader finds a bad row.

    `also` are further files that the reader looks into, such as one with the labels.
    """
    content = digest(source, also)
    key = hashlib.sha256(f"{_VERSION} {content} {reader_name} {columns} {tokenizer.fingerprint}".encode()).hexdigest()
    folder = default_folder() / "tokens" / key[:32]
    if not (folder / "meta.json").is_file():
        try:
            if folder.exists():
                shutil.rmtree(folder)  # somebody has taken its meta.json
            with new_folder(folder, first_wins=True) as beside:
                _build(beside, reader(source), columns, tokenizer)
        except OSError as error:
            raise UserError(f"{folder}: the token cache cannot be written: {error.strerror or error}") from error
    return _open(folder, source, content, columns)


def _build(folder: Path, rows: Iterator[Row | Skipped], columns: int, tokenizer: Tokenizer) -> None:
    skipped: list[dict[str, Any]] = []
    noted: list[dict[str, Any]] = []
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(open(folder / f"{name}.bin", "wb"))
            for name in ("ids", "ends", "text", "text_ends", "labels")
        }
        offsets = {"ends": 0, "text_ends": 0}
        for name in offsets:
            files[name].write(np.zeros(1, dtype=np.int64).tobytes())
        while chunk := list(islice(rows, _CHUNK)):
            kept = [row for row in chunk if isinstance(row, Row)]
            assert all(len(row.texts) == columns for row in kept), f"a row without {columns} texts"
            skipped += [{"line": row.line, "why": row.why} for row in chunk if isinstance(row, Skipped)]
            noted += [{"line": row.line, "why": row.note} for row in kept if row.note]
            ids = tokenizer.encode([text for row in kept for text in row.texts])
            strings = [text.encode("utf-8") for row in kept for text in (row.id, *row.texts)]
            if ids:
                files["ids"].write(np.concatenate([np.asarray(row, dtype=np.int32) for row in ids]).tobytes())
            files["text"].write(b"".join(strings))
            files["labels"].write(np.array([row.label for row in kept], dtype=np.float64).tobytes())
            for name, pieces in (("ends", ids), ("text_ends", strings)):
                ends = offsets[name] + np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
                files[name].write(ends.tobytes())
                offsets[name] = int(ends[-1]) if len(ends) else offsets[name]
    write_json(folder / "meta.json", {"columns": columns, "skipped": skipped, "noted": noted})


def _open(folder: Path, source: Path, digest: str, columns: int) -> TokenCache:
    meta = read_json(folder / "meta.json")
    skipped, noted = (tuple(Skipped(**row) for row in meta[name]) for name in ("skipped", "noted"))
    kinds: Sequence[tuple[str, type]] = (
        ("labels", np.float64),
        ("ids", np.int32),
        ("ends", np.int64),
        ("text", np.uint8),
        ("text_ends", np.int64),
    )
    arrays = [_map(folder / f"{name}.bin", kind) for name, kind in kinds]
    return TokenCache(source, digest, columns, skipped, noted, *arrays)


def _map(path: Path, kind: type) -> np.ndarray:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")
