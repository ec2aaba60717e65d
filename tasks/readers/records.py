"""Delimited tables and JSON lines as a stream of records: (line number, the cells of the named columns).

A record begins on its line; lines count from 1 and end at a line feed. Byte order marks before the first cell of a
file, before the header's cells and before the cells of the first record are taken off: some files have two.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from minbert.errors import UserError

# A sentence may be longer than csv's default limit of 131,072 characters for a field.
csv.field_size_limit(1 << 30)

Line = tuple[int, dict[str, str]]
Record = tuple[int, tuple[str, ...]]
Cells = Iterator[tuple[int, list[str]]]
BOM = "\ufeff"


@contextmanager
def opened(path: Path, encoding: str = "utf-8-sig") -> Iterator[IO[str]]:
    """A text file to stream, lines ending at line feeds alone.

    Raises `UserError` where it cannot be opened, with the line where a byte does not fit the encoding.
    """
    try:
        with open(path, encoding=encoding, newline="\n") as file:
            yield file
    except UnicodeDecodeError as error:
        known = {"utf-8-sig": "UTF-8"}.get(encoding, encoding)
        raise UserError(f"{path}:{_undecodable(path, encoding)}: not {known}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def _undecodable(path: Path, encoding: str) -> int:
    """The first line that does not decode: the file is read in blocks, so the error knows no line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return number
    return 1


def first_line(path: Path) -> str:
    """The first line that is not blank, without its end and byte order marks; `UserError` where there is none.

    Bytes that are not UTF-8 are replaced: the line serves to recognise a file whose encoding is not known yet.
    """
    try:
        with open(path, "rb") as file:
            for raw in file:
                line = raw.decode("utf-8", errors="replace").rstrip("\r\n").lstrip(BOM)
                if line.strip():
                    return line
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    raise UserError(f"{path}: the file is empty")


def head(path: Path) -> tuple[list[str], str]:
    """The names of a file's columns, and what divides them: a tab, a comma, or `json` for JSON lines."""
    line = first_line(path)
    if line.lstrip().startswith("{"):
        return list(_object(path, 1, line)), "json"
    delimiter = "\t" if "\t" in line else ","
    return header(path, delimiter, quotes_of(delimiter)), delimiter


def quotes_of(delimiter: str) -> str:
    """csv's quoting where commas divide; where tabs do, a quote inside a cell is a character."""
    return "csv" if delimiter == "," else "cell"


def header(path: Path, delimiter: str, quotes: str = "csv") -> list[str]:
    """The cells of the first line that is not blank, which serve as names if it is a header."""
    _, cells = next(_cells(path, [first_line(path)], delimiter, quotes))
    return [cell.strip(BOM) for cell in cells]


def records(
    path: Path,
    columns: Sequence[str],
    *,
    delimiter: str = "\t",
    quotes: str = "csv",
    names: Sequence[str] = (),
    encoding: str = "utf-8-sig",
    wider: bool = False,
    final: str = "",
) -> Iterator[Record]:
    """Records of a delimited file, columns by name, in the order of `columns`; blank lines are none.

    `quotes` is `csv` (a quoted cell may hold delimiters and line ends), `cell` (a cell that is quoted as csv writes it
    is unquoted, any other keeps its stray quotes) or `none`. `names` are the columns of a file without a header.
    Where `wider`, rows may have more cells than the header; `final` is a column that ends its row all the same.
    Raises `UserError` where the file is empty, wrongly encoded, lacks a column, or where a row's width is not the
    header's.
    """
    with opened(path, encoding) as file:
        numbered = _cells(path, file, delimiter, quotes)
        head = names or _head(path, next(numbered, None))
        missing = [name for name in columns if name not in head]
        if missing:
            raise UserError(f"{path}:1: no column {missing[0]!r}; the header has {', '.join(map(repr, head))}")
        first = next((found for found in numbered if found[1] not in ([], [""])), None)
        if first is None:
            raise UserError(f"{path}: no row after the header" if not names else f"{path}: the file is empty")
        pick = _picker([-1 if name == final else head.index(name) for name in columns])
        width = len(head)
        for line, cells in chain([(first[0], [cell.lstrip(BOM) for cell in first[1]])], numbered):
            if len(cells) != width and not (wider and len(cells) > width):
                if cells in ([], [""]):
                    continue
                raise UserError(f"{path}:{line}: {len(cells)} column{'s' * (len(cells) > 1)}, {_whose(names)} {width}")
            yield line, pick(cells)


def table(path: Path, columns: Sequence[str], *, delimiter: str) -> Iterator[Line]:
    """Rows of a delimited file with a header and csv's quoting, as (line number, the named columns)."""
    for line, cells in records(path, columns, delimiter=delimiter):
        yield line, dict(zip(columns, cells, strict=True))


def json_records(path: Path, columns: Sequence[str], absent: Mapping[str, str] | None = None) -> Iterator[Record]:
    """Records of a file with one JSON object a line: strings as they are, numbers as text.

    Raises `UserError` where a line is no object, or lacks a column that is not in `absent` (column -> what stands for
    it).
    """
    with opened(path) as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            found = _object(path, line, text)
            cells = []
            for name in columns:
                value = found.get(name, (absent or {}).get(name))
                if isinstance(value, str):
                    cells.append(value)
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    cells.append(str(value))
                else:
                    why = "neither text nor a number" if name in found else f"missing; the line has {_keys(found)}"
                    raise UserError(f"{path}:{line}: {name}: {why}")
            yield line, tuple(cells)


def _object(path: Path, line: int, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{line}: not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}:{line}: not a JSON object")
    return found


def _keys(found: dict[str, Any]) -> str:
    return ", ".join(map(repr, found)) or "no key"


def _head(path: Path, found: tuple[int, list[str]] | None) -> list[str]:
    if found is None:
        raise UserError(f"{path}: the file is empty")
    return [cell.lstrip(BOM) for cell in found[1]]


def _whose(names: Sequence[str]) -> str:
    return f"{', '.join(names)} are" if names else "the header has"


def _picker(places: list[int]) -> Callable[[list[str]], tuple[str, ...]]:
    if len(places) == 1:
        only = places[0]
        return lambda cells: (cells[only],)
    return itemgetter(*places)


def _cells(path: Path, file: Iterable[str], delimiter: str, quotes: str) -> Cells:
    if quotes == "csv":
        return _csv(path, file, delimiter)
    if quotes == "cell":
        return _unquoted_cells(file, delimiter)
    return enumerate((line.rstrip("\r\n").split(delimiter) for line in file), 1)


def _csv(path: Path, file: Iterable[str], delimiter: str) -> Cells:
    reader = csv.reader(file, delimiter=delimiter)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}:{line}: not a row of a table: {error}") from error


def _unquoted_cells(file: Iterable[str], delimiter: str) -> Cells:
    for line, text in enumerate(file, 1):
        cells = text.rstrip("\r\n").split(delimiter)
        yield line, [_unquoted(cell) for cell in cells] if '"' in text else cells


def _unquoted(cell: str) -> str:
    inner = cell[1:-1]
    if len(cell) < 2 or not (cell[0] == cell[-1] == '"') or '"' in inner.replace('""', ""):
        return cell
    return inner.replace('""', '"')
