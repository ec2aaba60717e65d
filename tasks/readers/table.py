"""Data files as tables: the form of a file by its first line, then its rows as names and cells.

Lines count from 1 and end at a line feed, or at a carriage return and a line feed. All text is UTF-8, but for some of
SentEval's sets, which are Latin-1.
"""

import csv
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from minbert.errors import UserError, format_list
from minbert.files import require_file

# A sentence may be longer than csv's default limit of 131,072 characters for a field.
csv.field_size_limit(1 << 30)

Record = Mapping[str, Any]
"""A row: the name of a column -> its cell, which is text except in JSON."""
BOM = "\ufeff"
_BINARY = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a ZIP archive or an Excel file",
    b"\x1f\x8b": "a gzip archive, which must be named .gz",
}
"""First bytes -> what such a file is."""


@dataclass(frozen=True)
class Table:
    """How a file is cut into rows and cells, as its first line shows it.

    `names` are the columns' names: the header's, a JSON object's keys, or those of a layout without a header. If
    `quoted`, csv's rules hold: a quoted cell may hold delimiters and line feeds. Else quotes are text, except around a
    cell with doubled ones, which csv has quoted because of a quote inside.
    """

    path: Path
    line: str  # the first line that is not blank
    delimiter: str  # a tab, a comma or ||; `json` for JSON lines; "" for plain text
    names: Sequence[str]
    quoted: bool = False
    has_header: bool = True
    may_be_wider: bool = False  # rows may have more cells than names
    is_course: bool = False  # a file of the course's, whose texts are preprocessed

    def records(self) -> Iterator[tuple[int, Record]]:
        """The first line of each row, and the row; blank lines and the header are no rows.

        Raises `UserError` for a row with a wrong number of cells, and for malformed quoting or JSON.
        """
        if self.delimiter == "json":
            yield from _json_lines(self.path)
            return
        names = list(self.names)
        before_header = self.has_header
        lines = _quoted_lines(self) if self.quoted else _split_lines(self)
        for line, cells in lines:
            is_blank = not "".join(cells).strip()
            if is_blank and (before_header or len(cells) < 2):
                continue
            if before_header:
                before_header = False
                repeated = [name for name, count in Counter(names).items() if name and count > 1]
                if repeated:
                    raise UserError(f"{self.path}:{line}: two columns are named {repeated[0]!r}")
                continue
            if len(cells) < len(names) or (len(cells) > len(names) and not self.may_be_wider):
                expected = f"not {len(names)} ({', '.join(names)})"
                if self.has_header:
                    expected = f"the header has {len(names)}"
                noun = "column" if len(cells) == 1 else "columns"
                raise UserError(f"{self.path}:{line}: {len(cells)} {noun}, {expected}")
            yield line, dict(zip(names, cells, strict=False))


def refuse_binary(path: Path) -> None:
    """Raises `UserError` if a file is missing, or is of a known binary format, with its name."""
    with open_bytes(require_file(path)) as file:
        start = file.read(4)
    for first_bytes, name in _BINARY.items():
        if start.startswith(first_bytes):
            raise UserError(f"{path}: is {name}; write the rows as CSV, TSV or JSON lines")


def ending(path: Path) -> str:
    """The ending of a file's name in lower case, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def open_table(path: Path) -> Table:
    """Read a file's first line that is not blank.

    Raises `UserError` if the file is missing or empty, or is of a format that is not read.
    """
    refuse_binary(path)
    line = next((line for line in read_lines(path) if line.strip()), None)
    if line is None:
        raise UserError(f"{path}: the file is empty")
    # The sentences of plain text have commas: a .txt file is a table only with tabs.
    if ending(path) == ".txt" and "\t" not in line:
        return Table(path, line, "", [])
    if line.strip() in ("[", "{") or line.lstrip().startswith("[{"):
        raise UserError(f"{path}: is a JSON array or JSON over several lines; write one JSON object on each line")
    if line.lstrip().startswith("{"):
        _, record = next(_json_lines(path))
        return Table(path, line, "json", list(record))
    delimiter = "\t" if "\t" in line else ","
    names = next(csv.reader([line], delimiter=delimiter))
    return Table(path, line, delimiter, names, quoted=delimiter == "," or line.startswith('"'))


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read its bytes; one whose name ends in .gz is unpacked. Raises `UserError` if that is damaged."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: is named .gz, but is not a whole gzip archive ({error})") from error


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, each without its line end and byte order marks before it.

    Raises `UserError` with the line's number if a line does not decode, or holds a carriage return that does not end
    it: a file of old Macintosh line ends would be read as one row.
    """
    with open_bytes(path) as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode(encoding).removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError:
                raise UserError(f"{path}:{number}: not UTF-8 text") from None
            if "\r" in line:
                raise UserError(f"{path}:{number}: a carriage return inside the line; end lines with \\n or \\r\\n")
            yield line.lstrip(BOM)


def _split_lines(table: Table) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, quotes being text."""
    for line, text in enumerate(read_lines(table.path), 1):
        cells = text.split(table.delimiter)
        # the marks of csv's quoting; another quote is the author's
        if '""' in text:
            cells = [_unquoted(cell) for cell in cells]
        yield line, cells


def _unquoted(cell: str) -> str:
    """The content of a cell that csv has quoted because of a quote inside; any other cell as it is."""
    inner = cell[1:-1]
    is_quoted = len(cell) > 1 and cell.startswith('"') and cell.endswith('"')
    has_doubled_quotes_only = '""' in inner and '"' not in inner.replace('""', "")
    if is_quoted and has_doubled_quotes_only:
        return inner.replace('""', '"')
    return cell


def _quoted_lines(table: Table) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, by csv's rules."""
    path = table.path
    texts = (f"{text}\n" for text in read_lines(path))
    # strict: else a stray quote joins all lines up to the next one in one cell
    reader = csv.reader(texts, delimiter=table.delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        end = max(line, reader.line_num)
        raise UserError(
            f"{path}:{line}: malformed quotes ({error}; read to line {end}); a cell that begins with a quote must end "
            "with one, quotes inside doubled"
        ) from error


def _json_lines(path: Path) -> Iterator[tuple[int, Record]]:
    """Line numbers, and the object of each line."""
    for line, text in enumerate(read_lines(path), 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except ValueError as error:
            raise UserError(f"{path}:{line}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{path}:{line}: not a JSON object")
        yield line, record


def text_of(path: Path, line: int, record: Record, name: str) -> str:
    """A row's cell as text: numbers become text, JSON's null and NaN are empty.

    Raises `UserError` for a list, an object, true or false, and for a row without this column.
    """
    value = record.get(name)
    # NaN, which pandas writes and json reads, differs from itself
    if name in record and (value is None or value != value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    reason = "neither text nor a number" if name in record else f"missing; the line has {format_list(record)}"
    raise UserError(f"{path}:{line}: {name}: {reason}")
