"""Readers of data files: rows in file order, columns by name, every row kept or listed as skipped.

A row that cannot be used ends the reading with `file:line: column: why`, except the known gaps of the Quora files
(no label, or no sentence), which are skipped and counted, as the course's files are meant to be read.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped

# A sentence may be longer than csv's default limit of 131,072 characters for a field.
csv.field_size_limit(1 << 30)

Line = tuple[int, dict[str, str]]


def table(path: Path, columns: Sequence[str], *, delimiter: str) -> Iterator[Line]:
    """Rows of a delimited file with a header, as (line number, the named columns).

    Raises `UserError` where the file is empty, not UTF-8, lacks a column, or where a row's width is not the header's.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            header = next(reader, None)
            if header is None:
                raise UserError(f"{path}: the file is empty")
            missing = [name for name in columns if name not in header]
            if missing:
                raise UserError(f"{path}:1: no column {missing[0]!r}; the header has {', '.join(map(repr, header))}")
            places = {name: header.index(name) for name in columns}
            rows = 0
            while True:
                line = reader.line_num + 1
                cells = next(reader, None)
                if cells is None:
                    break
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise UserError(f"{path}:{line}: {len(cells)} columns, the header has {len(header)}")
                rows += 1
                yield line, {name: cells[place] for name, place in places.items()}
            if not rows:
                raise UserError(f"{path}: no row after the header")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start} of a block cannot be read)") from error
    except csv.Error as error:
        raise UserError(f"{path}: not a table: {error}") from error


def clean_sentence(text: str) -> str:
    """The course's preprocessing of a single sentence: lower case, no blanks at the ends."""
    return text.lower().strip()


def clean_pair(text: str) -> str:
    """The course's preprocessing of a sentence of a pair: lower case, a space before . ? , ' and white space folded."""
    return " ".join(re.sub(r"([.?,'])", r" \1", text.lower()).split())


def sst(path: Path, split: str) -> Iterator[Row | Skipped]:
    """Sentences with a class from 0 to 4."""
    seen: dict[str, int] = {}
    for line, row in _labelled(path, ["id", "sentence"], "sentiment", split):
        name, text = _id(path, line, row, seen), clean_sentence(row["sentence"])
        if not text:
            raise UserError(f"{path}:{line}: sentence: empty")
        yield Row(name, (text,), _label(path, line, "sentiment", row, _SENTIMENT))


def quora(path: Path, split: str) -> Iterator[Row | Skipped]:
    """Question pairs with label 0.0 or 1.0. The files have gaps, as published.

    Without a sentence, a row of train or dev is skipped, one of test is kept: every id needs a prediction. Without a
    label, a row of train is skipped, one of dev is kept, to be predicted and not scored.
    """
    yield from _pairs(path, "is_duplicate", _DUPLICATE, split, gaps=True)


def sts(path: Path, split: str) -> Iterator[Row | Skipped]:
    """Sentence pairs with a similarity from 0 to 5."""
    yield from _pairs(path, "similarity", _SIMILARITY, split, gaps=False)


def triplets(path: Path, split: str = "train") -> Iterator[Row | Skipped]:
    """(anchor, positive, hard negative) from a file of SimCSE's form: comma-separated sent0, sent1, hard_neg."""
    columns = ("sent0", "sent1", "hard_neg")
    for line, row in table(path, columns, delimiter=","):
        texts = tuple(row[name].strip() for name in columns)
        empty = [name for name, text in zip(columns, texts, strict=True) if not text]
        if empty:
            yield Skipped(line, f"{empty[0]}: empty")
        else:
            yield Row(str(line), texts)


Rule = tuple[Callable[[float], bool], str]
_SENTIMENT: Rule = (lambda value: value in (0, 1, 2, 3, 4), "is not one of 0, 1, 2, 3, 4")
_DUPLICATE: Rule = (lambda value: value in (0, 1), "is neither 0.0 nor 1.0")
_SIMILARITY: Rule = (lambda value: 0 <= value <= 5, "is not between 0 and 5")


def _pairs(path: Path, column: str, rule: Rule, split: str, *, gaps: bool) -> Iterator[Row | Skipped]:
    seen: dict[str, int] = {}
    for line, row in _labelled(path, ["id", "sentence1", "sentence2"], column, split):
        name = _id(path, line, row, seen)
        texts = (clean_pair(row["sentence1"]), clean_pair(row["sentence2"]))
        empty = next((f"sentence{i}: empty" for i, text in enumerate(texts, start=1) if not text), "")
        unlabelled = gaps and column in row and not row[column].strip()
        if not gaps and empty:
            raise UserError(f"{path}:{line}: {empty}")
        if empty and split != "test":
            yield Skipped(line, empty)
        elif unlabelled and split == "train":
            yield Skipped(line, f"{column}: empty")
        elif unlabelled:
            yield Row(name, texts, line=line, note=f"{column}: empty; predicted, not scored")
        else:
            yield Row(name, texts, _label(path, line, column, row, rule))


def _labelled(path: Path, columns: list[str], label: str, split: str) -> Iterator[Line]:
    """Rows with their label column, which a test file may lack."""
    if split == "test" and label not in _header(path):
        return table(path, columns, delimiter="\t")
    return table(path, [*columns, label], delimiter="\t")


def _label(path: Path, line: int, column: str, row: dict[str, str], rule: Rule) -> float:
    if column not in row:
        return math.nan
    accepts, complaint = rule
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not accepts(value):
        raise UserError(f"{path}:{line}: {column}: {row[column]!r} {complaint}")
    return value


def _id(path: Path, line: int, row: dict[str, str], seen: dict[str, int]) -> str:
    name = row["id"].strip().lower()
    if not name:
        raise UserError(f"{path}:{line}: id: empty")
    if name in seen:
        raise UserError(f"{path}:{line}: id: {name!r} stands on line {seen[name]} already")
    seen[name] = line
    return name


def _header(path: Path) -> list[str]:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        return next(csv.reader(file, delimiter="\t"), [])


def find(data: Path, folder: str, names: Sequence[str]) -> Path:
    """A data file by its usual names, in `data/folder` or in `data` itself; `UserError` says how to get it."""
    for parent in (data / folder, data):
        for name in names:
            if (parent / name).is_file():
                return parent / name
    raise UserError(
        f"{data}: neither {folder}/{names[0]} nor {names[0]} is there; give the folder that holds it with --data DIR "
        f"or $DATA_DIR (--data data/sample is the small corpus that comes with the project)"
    )
