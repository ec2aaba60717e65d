"""The splitter: tables, JSON lines and plain lines as a stream of records with line numbers.

A record is (number of its first line, the cells of the named columns). Lines count from 1 and end at a line feed. Byte
order marks before the header's cells and before the cells of the first record are removed: some files have two.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from minbert.errors import UserError, listed
from minbert.files import demand_text

# A sentence may be longer than csv's default limit of 131,072 characters for a field.
csv.field_size_limit(1 << 30)

Record = tuple[int, tuple[str, ...]]
BOM = "\ufeff"


@contextmanager
def open_text(path: Path, encoding: str = "utf-8-sig", errors: str = "strict") -> Iterator[IO[str]]:
    """Open a text file for streaming; lines end only at line feeds. `errors` is as for `open`.

    Raises `UserError` if it cannot be opened or is no text, or with the line number if it does not decode.
    """
    try:
        demand_text(path, encoding)
        with open(path, encoding=encoding, errors=errors, newline="\n") as file:
            yield file
    except UnicodeDecodeError as error:
        known = {"utf-8-sig": "UTF-8"}.get(encoding, encoding)
        raise UserError(f"{path}:{_undecodable(path, encoding)}: not {known}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def _undecodable(path: Path, encoding: str) -> int:
    """The first line that does not decode: text files are decoded in blocks, so the error has no line number."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return number
    return 1


def first_line(path: Path) -> str:
    """The first line that is not blank, without line end and byte order marks.

    Invalid UTF-8 is replaced: the line is used to recognise a file whose encoding is not yet known. Raises `UserError`
    if there is no such line, or if the file is no text.
    """
    with open_text(path, errors="replace") as file:
        for text in file:
            line = text.rstrip("\r\n").lstrip(BOM)
            if line.strip():
                return line
    raise UserError(f"{path}: the file is empty")


@dataclass(frozen=True)
class Head:
    """The first line of a file, from which its layout is recognised."""

    path: Path
    line: str

    @classmethod
    def of(cls, path: Path) -> "Head":
        """The head of a file; raises `UserError` if it is empty or cannot be read."""
        return cls(path, first_line(path))

    @property
    def delimiter(self) -> str:
        """The column delimiter: a tab, a comma, or `json` for JSON lines."""
        if self.line.lstrip().startswith("{"):
            return "json"
        return "\t" if "\t" in self.line else ","

    @cached_property
    def keys(self) -> list[str]:
        """The column names, if the first line is a header or a JSON object."""
        if self.delimiter == "json":
            return list(_json_object(self.path, 1, self.line))
        if self.delimiter == "\t":
            cells = [_unquoted(cell) for cell in self.line.split("\t")]
        else:
            cells = next(csv.reader([self.line.replace("\r", " ")]))
        return [cell.strip(BOM) for cell in cells]


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
    """Records of a delimited file, with the columns named in `columns`, in that order; blank lines are skipped.

    `quotes` is `csv` (a quoted cell may hold delimiters and line ends), `cell` (a correctly quoted cell is unquoted,
    any other keeps its quotes) or `none`. `names` are the columns of a file without a header. If `wider`, rows may
    have more cells than the header; the column `final` is then the last cell of its row.
    Raises `UserError` if the file is empty, does not decode or lacks a column, if a row has a wrong number of cells,
    or if csv's quoting is malformed.
    """
    with open_text(path) as file:
        numbered = _cells(path, file, delimiter, quotes)
        header = None if names else next(numbered, None)
        if not names and header is None:
            raise UserError(f"{path}: the file is empty")
        head = [cell.lstrip(BOM) for cell in header[1]] if header else names
        missing = [name for name in columns if name not in head]
        if missing:
            raise UserError(f"{path}:1: no column {missing[0]!r}; the header has {listed(head)}")
        first = next((found for found in numbered if found[1] not in ([], [""])), None)
        if first is None:
            raise UserError(f"{path}: no row after the header" if not names else f"{path}: the file is empty")
        places = [-1 if name == final else head.index(name) for name in columns]
        pick = itemgetter(*places) if len(places) > 1 else lambda cells: (cells[places[0]],)
        width = len(head)
        for line, cells in chain([(first[0], [cell.lstrip(BOM) for cell in first[1]])], numbered):
            if len(cells) != width and not (wider and len(cells) > width):
                if cells in ([], [""]):
                    continue
                whose = f"{', '.join(names)} are" if names else "the header has"
                raise UserError(f"{path}:{line}: {len(cells)} column{'s' * (len(cells) > 1)}, {whose} {width}")
            yield line, pick(cells)


def json_records(path: Path, columns: Sequence[str], absent: dict[str, str] | None = None) -> Iterator[Record]:
    """Records of a file with one JSON object per line; numbers become text.

    `absent` gives default values (column -> text). Raises `UserError` if a line is not a JSON object, or lacks a column
    without a default.
    """
    with open_text(path) as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            found = {**(absent or {}), **_json_object(path, line, text)}
            yield line, tuple(_json_cell(path, line, name, found) for name in columns)


def line_records(path: Path, encoding: str = "utf-8-sig") -> Iterator[Record]:
    """Every line, blank ones too, as a record of one cell, without surrounding white space and byte order marks."""
    with open_text(path, encoding) as file:
        for line, text in enumerate(file, 1):
            yield line, (text.strip().strip(BOM),)


def side_by_side(*widths: tuple[Path, int]) -> Iterator[Record]:
    """Records joined line by line from several files, each given with its number of tab-separated cells per line.

    Lines that are blank in all files are skipped. Raises `UserError` if the files have different numbers of lines, or
    if a line has a wrong number of cells.
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
        there = listed(found) or "no key"
        why = "neither text nor a number" if name in found else f"missing; the line has {there}"
        raise UserError(f"{path}:{line}: {name}: {why}")
    text = str(value)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{path}:{line}: {name}: an unpaired surrogate")
    return text


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
    """Cells by a strict csv reader: otherwise a stray quote would join all lines up to the next quote in one cell."""
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
    """Raise `UserError` if a quoted cell seems to contain whole rows: it has as many tabs per line end as a row has."""
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
