"""Data files, tokenised once: token ids, labels and texts in one file of the cache.

A cache hit parses and tokenises nothing. The key covers the hashes of the data files, the reader's name and the
tokenizer.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minbert.files import cached, key_hash, require_file, sha256_of
from minbert.tokenizer import Tokenizer

_CHUNK = 4096  # rows that the tokenizer takes at once
_VERSION = 5
_ARRAYS = ("labels", "ids", "ends", "text", "text_ends")


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


ReaderReport = dict[str, Any]
"""What a reader reports about the whole file, such as counts; stored in the cache's metadata."""


@dataclass(frozen=True)
class TokenCache:
    """The rows of one data file, with `columns` texts per row; row i, column c is text number i * columns + c."""

    source: Path
    sha256: str
    columns: int
    skipped: tuple[Skipped, ...]
    warnings: tuple[Skipped, ...]
    labels: np.ndarray = field(repr=False)
    _ids: np.ndarray = field(repr=False)
    _ends: np.ndarray = field(repr=False)
    _text: np.ndarray = field(repr=False)
    _text_ends: np.ndarray = field(repr=False)
    report: ReaderReport = field(default_factory=dict)
    key: str = ""  # differs where any row, text or token id may differ
    left_out: int = 0  # rows that `first` dropped

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

    def first(self, count: int) -> "TokenCache":
        """The first `count` rows, or all if there are no more."""
        if count >= len(self):
            return self
        return replace(
            self,
            labels=self.labels[:count],
            _ends=self._ends[: count * self.columns + 1],
            _text_ends=self._text_ends[: count * (self.columns + 1) + 1],
            key=f"{self.key}, first {count}",
            left_out=len(self) - count,
        )

    def _string(self, number: int) -> str:
        return bytes(self._text[self._text_ends[number] : self._text_ends[number + 1]]).decode("utf-8")

    @property
    def read(self) -> int:
        """The number of rows of the file: kept, left out and skipped."""
        return len(self) + self.left_out + len(self.skipped)

    def manifest_entry(self) -> dict[str, Any]:
        """Numbers of rows read, kept and labelled, and the skipped rows and warnings, for the manifest."""
        return {
            "file": str(self.source),
            "sha256": self.sha256,
            "read": self.read,
            "kept": len(self),
            **({"left_out": self.left_out} if self.left_out else {}),
            "labelled": int(np.isfinite(self.labels).sum()),
            "skipped": [{"line": row.line, "why": row.why} for row in self.skipped],
            "noted": [{"line": row.line, "why": row.why} for row in self.warnings],
        }


def digest(source: Path, companions: Sequence[Path] = ()) -> str:
    """Hex SHA-256 of a data file; with `companions`, the SHA-256 of all their hashes.

    Raises `UserError` if a file is missing.
    """
    first, *further = (sha256_of(require_file(path)) for path in (source, *companions))
    return hashlib.sha256(" ".join([first, *further]).encode()).hexdigest() if companions else first


def load(
    source: Path,
    rows: Iterable[Row | Skipped | ReaderReport],
    reader_name: str,
    columns: int,
    tokenizer: Tokenizer,
    *,
    sha256: str = "",
) -> TokenCache:
    """The token cache of a data file, built on a cache miss; a hit reads nothing from `rows`, a lazy reader.

    `sha256` is the `digest` of all files that the reader opens, if there are several, such as one with the labels.
    Raises `UserError` if the reader finds an invalid row.
    """
    content = sha256 or digest(source)
    key = (_VERSION, content, reader_name, columns, tokenizer.fingerprint)
    arrays, record = cached("tokens", key, lambda: _tokenised(rows, columns, tokenizer))
    skipped, warnings = (tuple(Skipped(*row) for row in record[name]) for name in ("skipped", "noted"))
    labels, ids, ends, text, text_ends = (arrays[name] for name in _ARRAYS)
    report, name = record["facts"], key_hash(key)
    return TokenCache(source, content, columns, skipped, warnings, labels, ids, ends, text, text_ends, report, name)


def in_memory(rows: Iterable[Row], columns: int, tokenizer: Tokenizer) -> TokenCache:
    """A token cache of rows that come from no file; nothing is written to disk."""
    arrays, _ = _tokenised(rows, columns, tokenizer)
    labels, ids, ends, text, text_ends = (arrays[name] for name in _ARRAYS)
    return TokenCache(Path("-"), "", columns, (), (), labels, ids, ends, text, text_ends)


def _tokenised(
    rows: Iterable[Row | Skipped | ReaderReport], columns: int, tokenizer: Tokenizer
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a `TokenCache`, and what the reader reports besides the rows."""
    skipped: list[tuple[int, str]] = []
    warnings: list[tuple[int, str]] = []
    report: ReaderReport = {}
    labels: list[float] = []
    ids: list[np.ndarray] = []
    texts: list[bytes] = []
    stream = iter(rows)
    while chunk := list(islice(stream, _CHUNK)):
        kept = [row for row in chunk if isinstance(row, Row)]
        assert all(len(row.texts) == columns for row in kept), f"a row without {columns} texts"
        skipped += [(row.line, row.why) for row in chunk if isinstance(row, Skipped)]
        warnings += [(row.line, row.note) for row in kept if row.note]
        for part in (row for row in chunk if isinstance(row, dict)):
            report |= part
        labels += [row.label for row in kept]
        encoded = tokenizer.encode([text for row in kept for text in row.texts])
        ids += [np.asarray(row, dtype=np.int32) for row in encoded]
        texts += [text.encode("utf-8") for row in kept for text in (row.id, *row.texts)]
    arrays = {
        "labels": np.array(labels, dtype=np.float64),
        "ids": np.concatenate([np.zeros(0, dtype=np.int32), *ids]),
        "ends": _ends(ids),
        "text": np.frombuffer(b"".join(texts), dtype=np.uint8),
        "text_ends": _ends(texts),
    }
    return arrays, {"skipped": skipped, "noted": warnings, "facts": report}


def _ends(pieces: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    """0, then the end of each piece in their concatenation."""
    return np.cumsum([0, *map(len, pieces)], dtype=np.int64)
