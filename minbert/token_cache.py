"""Data files, tokenised once: token ids, labels and texts in memory-mapped files.

On a cache hit, no data file is parsed or tokenised again. The key is made of the hashes of the data files, the
reader's name and the tokenizer. Rows are processed in chunks, so the data may be larger than memory.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minbert.files import cached_folder, present, sha256_of
from minbert.tokenizer import Tokenizer

_CHUNK = 4096
_VERSION = 3
_ARRAYS = {"labels": np.float64, "ids": np.int32, "ends": np.int64, "text": np.uint8, "text_ends": np.int64}


@dataclass(frozen=True)
class Row:
    """One row of a data file: its id, its 1 to 3 texts, and its label (NaN without one)."""

    id: str
    texts: tuple[str, ...]
    label: float = math.nan
    line: int = field(default=0, compare=False)
    note: str = ""  # warning for a kept row, reported with its line number


@dataclass(frozen=True)
class Skipped:
    """A line number and a reason: a row that was skipped, or a warning for a kept row."""

    line: int
    why: str


Facts = dict[str, Any]
"""What a reader reports about the whole file, such as counts; stored in the cache's metadata."""


@dataclass(frozen=True)
class TokenCache:
    """The rows of one data file, with `columns` texts per row; row i, column c is text number i * columns + c."""

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
    facts: Facts = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict, repr=False)  # hex SHA-256 of each array

    def __len__(self) -> int:
        return len(self.labels)

    def ids(self, row: int, column: int = 0) -> np.ndarray:
        """Token ids of one text, not truncated and without special tokens."""
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

    def rows(self) -> Iterator[Row]:
        """The kept rows, without line numbers and warnings."""
        for number, label in enumerate(self.labels):
            texts = tuple(self.text(number, column) for column in range(self.columns))
            yield Row(self.row_id(number), texts, float(label))

    def _string(self, number: int) -> str:
        return bytes(self._text[self._text_ends[number] : self._text_ends[number + 1]]).decode("utf-8")

    def account(self) -> dict[str, Any]:
        """Numbers of rows read, kept and labelled, and the skipped rows and warnings, for the manifest."""
        return {
            "file": str(self.source),
            "sha256": self.sha256,
            "read": len(self) + len(self.skipped),
            "kept": len(self),
            "labelled": int(np.isfinite(self.labels).sum()),
            "skipped": [{"line": row.line, "why": row.why} for row in self.skipped],
            "noted": [{"line": row.line, "why": row.why} for row in self.noted],
        }


Reader = Callable[[Path], Iterable[Row | Skipped | Facts]]


def digest(source: Path, also: Sequence[Path] = ()) -> str:
    """Hex SHA-256 of a data file; with further files in `also`, the SHA-256 of all their hashes.

    Raises `UserError` if a file is missing.
    """
    own, *others = (sha256_of(present(path)) for path in (source, *also))
    return hashlib.sha256(" ".join([own, *others]).encode()).hexdigest() if also else own


def load(
    source: Path,
    reader: Reader,
    reader_name: str,
    columns: int,
    tokenizer: Tokenizer,
    *,
    sha256: str = "",
) -> TokenCache:
    """The token cache of a data file, built on a cache miss. Raises `UserError` if the reader finds an invalid row.

    `sha256` is the `digest` of all files that the reader opens, such as one with the labels, if there are others.
    """
    content = sha256 or digest(source)
    folder, record = cached_folder(
        "tokens",
        (_VERSION, content, reader_name, columns, tokenizer.fingerprint),
        lambda folder: _build(folder, reader(source), columns, tokenizer),
    )
    skipped, noted = (tuple(Skipped(*row) for row in record[name]) for name in ("skipped", "noted"))
    hashes = {name: record["files"][f"{name}.bin"][1] for name in _ARRAYS}
    labels, ids, ends, text, text_ends = (_map(folder / f"{name}.bin", kind) for name, kind in _ARRAYS.items())
    return TokenCache(
        source, content, columns, skipped, noted, labels, ids, ends, text, text_ends, record["facts"], hashes
    )


def retokenised(cache: TokenCache, tokenizer: Tokenizer) -> TokenCache:
    """The same rows, tokenised with another tokenizer."""
    rule = " ".join(["rows of", cache.hashes["text"], cache.hashes["text_ends"], cache.hashes["labels"]])
    return load(cache.source, lambda _: cache.rows(), rule, cache.columns, tokenizer, sha256=cache.sha256)


def _build(folder: Path, rows: Iterable[Row | Skipped | Facts], columns: int, tokenizer: Tokenizer) -> dict[str, Any]:
    skipped: list[tuple[int, str]] = []
    noted: list[tuple[int, str]] = []
    facts: Facts = {}
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / f"{name}.bin", "wb")) for name in _ARRAYS}
        offsets = {"ends": 0, "text_ends": 0}
        for name in offsets:
            files[name].write(np.zeros(1, dtype=np.int64).tobytes())
        stream = iter(rows)
        while chunk := list(islice(stream, _CHUNK)):
            kept = [row for row in chunk if isinstance(row, Row)]
            assert all(len(row.texts) == columns for row in kept), f"a row without {columns} texts"
            skipped += [(row.line, row.why) for row in chunk if isinstance(row, Skipped)]
            noted += [(row.line, row.note) for row in kept if row.note]
            for said in (row for row in chunk if isinstance(row, dict)):
                facts |= said
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
    return {"skipped": skipped, "noted": noted, "facts": facts}


def _map(path: Path, kind: type) -> np.ndarray:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")
