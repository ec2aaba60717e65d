"""The splitter: tables, JSON lines and lines as a stream of records that know their file and line.

A record is (line number, the cells of the named columns). It begins on its line; lines count from 1 and end at a line
feed. Byte order marks before the first cell of a file, before the header's cells and before the cells of the first
record are taken off: some files have two.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from minbert.errors import UserError

# A sentence may be longer than csv's default limit of 131,072 characters for a field.
csv.field_size_limit(1 << 30)

Record = tuple[int, tuple[str, ...]]
BOM = "\ufeff"


@contextmanager
def open_text(path: Path, encoding: str = "utf-8-sig") -> Iterator[IO[str]]:
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


@dataclass(frozen=True)
class Head:
    """What the first line says of a file: enough to recognise its layout."""

    path: Path
    line: str

    @classmethod
    def of(cls, path: Path) -> "Head":
        """The head of a file; `UserError` where it is empty or cannot be read."""
        return cls(path, first_line(path))

    @property
    def delimiter(self) -> str:
        """What divides the columns: a tab, a comma, or `json` for JSON lines."""
        if self.line.lstrip().startswith("{"):
            return "json"
        return "\t" if "\t" in self.line else ","

    @cached_property
    def keys(self) -> list[str]:
        """The names of the columns, if the first line is a header or a JSON object."""
        if self.delimiter == "json":
            return list(_json_object(self.path, 1, self.line))
        if self.delimiter == "\t":
            cells = [_unquoted(cell) for cell in self.line.split("\t")]
        else:
            cells = next(csv.reader([self.line.replace("\r", " ")]))
        return [cell.strip(BOM) for cell in cells]

    def has(self, *names: str) -> bool:
        """Whether the first line is a header with all these names."""
        return set(names) <= set(self.keys)


def quoting_of(delimiter: str) -> str:
    """csv's quoting where commas divide; where tabs do, a quote inside a cell is a character."""
    return "csv" if delimiter == "," else "cell"


def split_records(
    path: Path,
    columns: Sequence[str],
    *,
    delimiter: str = "\t",
    quotes: str = "csv",
    names: Sequence[str] = (),
    wider: bool = False,
    final: str = "",
) -> Iterator[Record]:
    """Records of a delimited file, columns by name, in the order of `columns`; blank lines are none.

    `quotes` is `csv` (a quoted cell may hold delimiters and line ends), `cell` (a cell that is quoted as csv writes it
    is unquoted, any other keeps its stray quotes) or `none`. `names` are the columns of a file without a header.
    Where `wider`, rows may have more cells than the header; `final` is a column that ends its row all the same.
    Raises `UserError` where the file is empty, wrongly encoded, lacks a column, where a row's width is not the
    header's, or where csv's quoting is broken.
    """
    with open_text(path) as file:
        numbered = _cells(path, file, delimiter, quotes)
        head = names or _header(path, next(numbered, None))
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
                whose = f"{', '.join(names)} are" if names else "the header has"
                raise UserError(f"{path}:{line}: {len(cells)} column{'s' * (len(cells) > 1)}, {whose} {width}")
            yield line, pick(cells)


def json_records(path: Path, columns: Sequence[str], absent: dict[str, str] | None = None) -> Iterator[Record]:
    """Records of a file with one JSON object a line: strings as they are, numbers as text.

    Raises `UserError` where a line is no object, or lacks a column that is not in `absent` (column -> what stands for
    it).
    """
    with open_text(path) as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            found = {**(absent or {}), **_json_object(path, line, text)}
            yield line, tuple(_json_cell(path, line, name, found) for name in columns)


def line_records(path: Path, encoding: str = "utf-8-sig") -> Iterator[Record]:
    """Every line as a record of one cell, without white space and byte order marks at its ends; blank lines too."""
    with open_text(path, encoding) as file:
        for line, text in enumerate(file, 1):
            yield line, (text.strip().strip(BOM),)


def side_by_side(*widths: tuple[Path, int]) -> Iterator[Record]:
    """Records of several files, each with so many tab-separated cells a line; lines blank in all of them are none.

    Raises `UserError` where one file ends before another, or a line has another number of cells.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(open_text(path)) for path, _ in widths]
        for line, texts in enumerate(zip_longest(*files), 1):
            if not any(text and text.strip() for text in texts):
                continue
            cells: list[str] = []
            for (path, width), text in zip(widths, texts, strict=True):
                if text is None:
                    other = next(path for (path, _), there in zip(widths, texts, strict=True) if there is not None)
                    raise UserError(f"{path}: ends before line {line}, which {other.name} has")
                own = text.rstrip("\r\n").split("\t") if width > 1 else [text.strip()]
                if len(own) != width:
                    raise UserError(f"{path}:{line}: {len(own)} columns, not {width}")
                cells += own
            yield line, tuple(cells)


def _json_object(path: Path, line: int, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{line}: not JSON: {error.msg} at character {error.pos + 1}") from error
    except (RecursionError, ValueError) as error:  # nested too deep, or a number of thousands of digits
        raise UserError(f"{path}:{line}: JSON that cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}:{line}: not a JSON object")
    return found


def _json_cell(path: Path, line: int, name: str, found: dict[str, Any]) -> str:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        there = ", ".join(map(repr, found)) or "no key"
        why = "neither text nor a number" if name in found else f"missing; the line has {there}"
        raise UserError(f"{path}:{line}: {name}: {why}")
    text = str(value)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{path}:{line}: {name}: half of a surrogate pair, which is no character")
    return text


def _header(path: Path, found: tuple[int, list[str]] | None) -> list[str]:
    if found is None:
        raise UserError(f"{path}: the file is empty")
    return [cell.lstrip(BOM) for cell in found[1]]


def _picker(places: list[int]) -> Callable[[list[str]], tuple[str, ...]]:
    if len(places) == 1:
        only = places[0]
        return lambda cells: (cells[only],)
    return itemgetter(*places)


def _cells(path: Path, file: Iterable[str], delimiter: str, quotes: str) -> Iterator[tuple[int, list[str]]]:
    if quotes == "csv":
        return _csv_cells(path, file, delimiter)
    lines = enumerate((line.rstrip("\r\n") for line in file), 1)
    if quotes == "none":
        return ((line, text.split(delimiter)) for line, text in lines)
    return (
        (line, [_unquoted(cell) for cell in text.split(delimiter)] if '"' in text else text.split(delimiter))
        for line, text in lines
    )


def _csv_cells(path: Path, file: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """csv's strict reading: a stray quote at the start of a cell would else swallow all lines to the next quote."""
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            if reader.line_num > line and delimiter == "\t":
                _demand_no_swallowed_rows(path, line, cells)
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        why = "a cell that begins with a quote does not end with one" if "expected" in str(error) else str(error)
        end = max(line, reader.line_num)
        raise UserError(
            f"{path}:{line}: {why} (read to line {end}); quote whole cells, quotes inside doubled"
        ) from error


def _demand_no_swallowed_rows(path: Path, line: int, cells: list[str]) -> None:
    """`UserError` where a quoted cell holds as many tabs for each of its line ends as rows of the table would."""
    for cell in cells:
        ends = cell.count("\n")
        if ends and len(cells) > 2 and cell.count("\t") == ends * (len(cells) - 1):
            raise UserError(
                f"{path}:{line}: a cell that begins with a quote runs over the rows to line {line + ends}; quote whole "
                f"cells, quotes inside doubled"
            )


def _unquoted(cell: str) -> str:
    inner = cell[1:-1]
    if len(cell) < 2 or not (cell[0] == cell[-1] == '"') or '"' in inner.replace('""', ""):
        return cell
    return inner.replace('""', '"')
