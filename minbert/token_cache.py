"""Data files, tokenised once: token ids, labels and texts in one file of the cache.

A cache hit parses and tokenises nothing. The key covers the hashes of the data files, the reader's name and the
tokenizer.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from minbert.files import cached, key_hash
from minbert.ragged import ramp
from minbert.tokenizer import Tokenizer

_CHUNK = 4096  # rows that the tokenizer takes at once
_VERSION = 7  # raised when an entry gets another form, so that older ones are built anew
_END = "\0"  # after each string in the cache; readers refuse texts that hold it


@dataclass(frozen=True)
class Row:
    """One row of a data file: its id, its 1 to 3 texts, and its label (NaN without one)."""

    id: str
    texts: tuple[str, ...]
    label: float = math.nan
    line: int = field(default=0, compare=False)
    note: str = ""  # warning for a kept row, reported with its line number


@dataclass(frozen=True)
class Issue:
    """The line of a row and what is wrong with it: a row that was skipped, or a warning for a kept one."""

    line: int
    reason: str

    def manifest_entry(self) -> dict[str, Any]:
        """For the manifest."""
        return {"line": self.line, "why": self.reason}


ReaderReport = dict[str, Any]
"""What a reader reports about the whole file, such as counts; stored in the cache's metadata."""


class StoredStrings(Sequence[str]):
    """Strings as one array of UTF-8 bytes, each with `_END` behind it; a start that needs no texts decodes none.

    The first access by index decodes and keeps all; iterating decodes without keeping.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @staticmethod
    def to_array(strings: Sequence[str]) -> np.ndarray:
        """The array of these strings."""
        # behind each string and not between them, so that no strings and one empty string differ
        joined = "".join([f"{string}{_END}" for string in strings])
        return np.frombuffer(joined.encode(), dtype=np.uint8)

    def _decode(self) -> list[str]:
        return self.array.tobytes().decode().split(_END)[:-1]

    @cached_property
    def _strings(self) -> list[str]:
        return self._decode()

    def __len__(self) -> int:
        return len(self._strings)

    def __iter__(self) -> Iterator[str]:
        return iter(self._decode())

    def __getitem__(self, index: Any) -> Any:
        return self._strings[index]


@dataclass(frozen=True)
class TokenCache:
    """The rows of one or several data files, with `num_texts` texts each.

    Text c of row i has the index i * num_texts + c. `source` is the first file, `sha256` the hash given to `load`.
    """

    source: Path
    sha256: str
    num_texts: int
    row_ids: Sequence[str] = field(repr=False)
    texts: Sequence[str] = field(repr=False)  # as they were tokenised
    labels: np.ndarray = field(repr=False)
    token_ids: np.ndarray = field(repr=False)  # of all texts, joined
    ends: np.ndarray = field(repr=False)  # 0, then where each text's token ids end
    skipped: tuple[Issue, ...] = ()
    warnings: tuple[Issue, ...] = ()
    report: ReaderReport = field(default_factory=dict)
    key: str = ""  # differs where any row, text or token id may differ
    left_out: int = 0  # rows that `subset` dropped, and rows of other splits

    def __len__(self) -> int:
        return len(self.labels)

    def ids(self, row: int, column: int = 0) -> np.ndarray:
        """Token ids of one text, not truncated and without special tokens."""
        index = row * self.num_texts + column
        return self.token_ids[self.ends[index] : self.ends[index + 1]]

    def token_counts(self) -> np.ndarray:
        """Number of tokens of every text: [rows, num_texts]."""
        return np.diff(self.ends).reshape(-1, self.num_texts)

    def text(self, row: int, column: int = 0) -> str:
        """One text, as it was tokenised."""
        return self.texts[row * self.num_texts + column]

    def rows(self) -> Iterator[Row]:
        """The kept rows, without line numbers and warnings."""
        for index, (row_id, label) in enumerate(zip(self.row_ids, self.labels.tolist(), strict=True)):
            start = index * self.num_texts
            yield Row(row_id, tuple(self.texts[start : start + self.num_texts]), label)

    def subset(self, rows: np.ndarray) -> "TokenCache":
        """Some rows, by their ascending indices int64 [n]; itself if they are all."""
        if len(rows) == len(self):
            return self
        index = (rows[:, None] * self.num_texts + np.arange(self.num_texts)).flatten()  # of the rows' texts
        lengths = np.diff(self.ends)[index]
        tokens = np.repeat(self.ends[index], lengths) + ramp(lengths)
        return replace(
            self,
            row_ids=[self.row_ids[row] for row in rows.tolist()],
            texts=[self.texts[text] for text in index.tolist()],
            labels=self.labels[rows],
            token_ids=self.token_ids[tokens],
            ends=np.cumsum([0, *lengths], dtype=np.int64),
            key=f"{self.key}, rows {key_hash(rows.tolist())}",
            left_out=self.left_out + len(self) - len(rows),
        )

    @property
    def read(self) -> int:
        """The number of rows of the file: kept, left out and skipped."""
        return len(self) + self.left_out + len(self.skipped)

    def manifest_entry(self) -> dict[str, Any]:
        """Numbers of rows read, kept and labelled, and the skipped rows and warnings, for the manifest."""
        entry = {"file": str(self.source), "sha256": self.sha256, "read": self.read, "kept": len(self)}
        if self.left_out:
            entry["left_out"] = self.left_out
        return entry | {
            "labelled": int(np.isfinite(self.labels).sum()),
            "skipped": [issue.manifest_entry() for issue in self.skipped],
            "warnings": [issue.manifest_entry() for issue in self.warnings],
        }


def load(
    source: Path,
    rows: Iterable[Row | Issue | ReaderReport],
    reader_name: str,
    tokenizer: Tokenizer,
    *,
    sha256: str,
) -> TokenCache:
    """The token cache of a data file, built on a cache miss; a hit reads nothing from `rows`, a lazy reader.

    `sha256` is a digest of all files that the reader opens. An `other_splits` of the reader's report counts as left
    out. Raises `UserError` if the reader finds an invalid row.
    """
    key = (_VERSION, sha256, reader_name, tokenizer.fingerprint)

    def build() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        cache = in_memory(rows, tokenizer)
        arrays = {
            "row_ids": StoredStrings.to_array(cache.row_ids),
            "texts": StoredStrings.to_array(cache.texts),
            "labels": cache.labels,
            "token_ids": cache.token_ids,
            "ends": cache.ends,
        }
        record = {
            "num_texts": cache.num_texts,
            "skipped": [(issue.line, issue.reason) for issue in cache.skipped],
            "warnings": [(issue.line, issue.reason) for issue in cache.warnings],
            "report": cache.report,
        }
        return arrays, record

    arrays, record = cached("tokens", key, build)
    return TokenCache(
        source=source,
        sha256=sha256,
        num_texts=record["num_texts"],
        row_ids=StoredStrings(arrays["row_ids"]),
        texts=StoredStrings(arrays["texts"]),
        labels=arrays["labels"],
        token_ids=arrays["token_ids"],
        ends=arrays["ends"],
        skipped=tuple(Issue(*row) for row in record["skipped"]),
        warnings=tuple(Issue(*row) for row in record["warnings"]),
        report=record["report"],
        key=key_hash(key),
        left_out=record["report"].get("other_splits", 0),
    )


def in_memory(rows: Iterable[Row | Issue | ReaderReport], tokenizer: Tokenizer) -> TokenCache:
    """Tokenise rows to a token cache that names no file; nothing is written to disk."""
    skipped: list[Issue] = []
    warnings: list[Issue] = []
    report: ReaderReport = {}
    row_ids: list[str] = []
    texts: list[str] = []
    labels: list[float] = []
    token_ids = [np.zeros(0, dtype=np.int32)]
    lengths: list[int] = []
    num_texts = 0
    # in chunks: the tokenizer takes many texts at once, and its ids are kept as arrays, not as lists of integers
    stream = iter(rows)
    while chunk := list(islice(stream, _CHUNK)):
        new_texts: list[str] = []
        for row in chunk:
            if isinstance(row, Issue):
                skipped.append(row)
            elif isinstance(row, dict):
                report |= row
            else:
                num_texts = num_texts or len(row.texts)
                assert len(row.texts) == num_texts, f"{len(row.texts)} texts after a row with {num_texts}"
                row_ids.append(row.id)
                labels.append(row.label)
                new_texts += row.texts
                if row.note:
                    warnings.append(Issue(row.line, row.note))
        encoded = tokenizer.encode(new_texts)
        lengths += map(len, encoded)
        token_ids.append(np.fromiter(chain.from_iterable(encoded), dtype=np.int32))
        texts += new_texts
    return TokenCache(
        source=Path("-"),
        sha256="",
        num_texts=num_texts or 1,
        row_ids=row_ids,
        texts=texts,
        labels=np.array(labels, dtype=np.float64),
        token_ids=np.concatenate(token_ids),
        ends=np.cumsum([0, *lengths], dtype=np.int64),
        skipped=tuple(skipped),
        warnings=tuple(warnings),
        report=report,
    )
