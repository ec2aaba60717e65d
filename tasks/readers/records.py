"""Files as streams of records: tables, JSON lines and plain lines, with line numbers.

A record is (number of its first line, cells). Lines count from 1 and end at a line feed, or at a carriage return and a
line feed. All text is UTF-8, but for some sets of SentEval's, which are Latin-1. Byte order marks before the first line
and before the cells of the first record are removed: some files have both.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from minbert.errors import UserError, format_list

# A sentence may be longer than csv's default limit of 131,072 characters for a field.
csv.field_size_limit(1 << 30)

Record = tuple[int, tuple[str, ...]]
BOM = "\ufeff"


def text_lines(path: Path, encoding: str = "utf-8", errors: str = "strict") -> Iterator[str]:
    """The lines of a text file, each without its line end; `errors` is as for `open`.

    Raises `UserError` if the file cannot be read, or with the line's number if a line does not decode, holds a NUL, or
    holds a carriage return that does not end it: such a file would be read as too few rows.
    """
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    line = raw.decode(encoding, errors).removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError:
                    raise UserError(f"{path}:{number}: not UTF-8 text") from None
                if "\r" in line:
                    raise UserError(f"{path}:{number}: a carriage return inside the line; end lines with \\n or \\r\\n")
                if "\0" in line:
                    raise UserError(f"{path}:{number}: not text: a NUL byte")
                yield line.lstrip(BOM) if number == 1 else line
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


class FirstLine(NamedTuple):
    """The first line of a file that is not blank, from which its layout is recognised.

    `delimiter` is a tab, a comma, or `json` for JSON lines; `names` are the header's cells, or the JSON object's keys.
    """

    line: str
    delimiter: str
    names: list[str]


def first_line_of(path: Path) -> FirstLine:
    """The first line of a file that is not blank; raises `UserError` if it is empty or cannot be read.

    Invalid UTF-8 is replaced: the encoding is that of the layout, which is not yet known.
    """
    line = next((line for line in text_lines(path, errors="replace") if line.strip()), None)
    if line is None:
        raise UserError(f"{path}: the file is empty")
    try:
        return FirstLine(line, "json", list(_json_object(path, 1, line)))
    except UserError:
        pass  # not JSON lines
    delimiter = "\t" if "\t" in line else ","
    return FirstLine(line, delimiter, next(csv.reader([line], delimiter=delimiter)))


def table_records(
    path: Path,
    columns: Sequence[str],
    names: Sequence[str],
    delimiter: str,
    *,
    header: bool = False,
    quoted: bool = False,
    wider: bool = False,
) -> Iterator[Record]:
    """Records of a table, with the cells of the named `columns` in that order; blank lines are skipped.

    `names` are all columns, and `header` says whether the first row holds them. If `quoted`, csv's rules hold: a quoted
    cell may hold delimiters and line feeds. Else quotes are text, except around a cell with doubled ones, which csv has
    quoted because of a quote inside. If `wider`, rows may have more cells than there are columns. Raises `UserError` if
    there is no row, if a row has a wrong number of cells, or if csv's quoting is malformed.
    """
    rows, first = _rows(path, delimiter, quoted), True
    indices, width = [names.index(name) for name in columns], len(names)
    if header:  # blank lines may come before it, as in `first_line_of`
        next(cells for _, cells in rows if any(cell.strip() for cell in cells))
    for line, cells in rows:
        if len(cells) < width or (len(cells) > width and not wider):
            if cells in ([], [""]):
                continue
            expected = f"the header has {width}" if header else f"{', '.join(names)} are {width}"
            raise UserError(f"{path}:{line}: {len(cells)} column{'s' * (len(cells) > 1)}, {expected}")
        if first:
            cells, first = [cell.lstrip(BOM) for cell in cells], False
        yield line, tuple([cells[index] for index in indices])
    if first:
        raise UserError(f"{path}: no row after the header")


def json_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """Records of a file with one JSON object per line; numbers become text.

    Raises `UserError` if a line is not a JSON object, or if a column is missing or neither text nor a number.
    """
    for line, text in enumerate(text_lines(path), 1):
        if text.strip():
            row = _json_object(path, line, text)
            yield line, tuple(_json_cell(path, line, name, row) for name in columns)


def line_records(path: Path, encoding: str = "utf-8") -> Iterator[Record]:
    """Every line, blank ones too, as a record of one cell, without surrounding white space and byte order marks."""
    for line, text in enumerate(text_lines(path, encoding), 1):
        yield line, (text.strip().strip(BOM),)


def scored_records(texts: Path, scores: Path) -> Iterator[Record]:
    """Two texts with a tab between them, and the score in the same line of another file; blank lines are skipped.

    Raises `UserError` if the files have different numbers of lines, or if a line has not two texts.
    """
    for line, (pair, score) in enumerate(zip_longest(text_lines(texts), text_lines(scores)), 1):
        if not any(text and text.strip() for text in (pair, score)):
            continue
        if pair is None or score is None:
            ended, longer = (texts, scores) if pair is None else (scores, texts)
            raise UserError(f"{ended}: ends before line {line}, which {longer.name} has")
        cells = pair.split("\t")
        if len(cells) != 2:
            raise UserError(f"{texts}:{line}: {len(cells)} columns, not 2")
        yield line, (*cells, score.strip())


def _rows(path: Path, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and all cells. csv reads strictly: else a stray quote joins all lines up to the next in one cell."""
    if not quoted:
        for line, text in enumerate(text_lines(path), 1):
            cells = text.split(delimiter)
            yield line, [_unquoted(cell) for cell in cells] if '""' in text else cells
        return
    reader, line = csv.reader((f"{text}\n" for text in text_lines(path)), delimiter=delimiter, strict=True), 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        reason = "a cell that begins with a quote does not end with one" if "expected" in str(error) else str(error)
        end = max(line, reader.line_num)
        raise UserError(
            f"{path}:{line}: {reason} (read to line {end}); quote whole cells, quotes inside doubled"
        ) from error


def _unquoted(cell: str) -> str:
    """The content of a cell that csv has quoted because of a quote inside; any other cell as it is."""
    inner = cell[1:-1]
    if not (cell[:1] == cell[-1:] == '"' and '""' in inner) or '"' in inner.replace('""', ""):
        return cell
    return inner.replace('""', '"')


def _json_object(path: Path, line: int, text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:  # also nested too deep
        raise UserError(f"{path}:{line}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise UserError(f"{path}:{line}: not a JSON object")
    return row


def _json_cell(path: Path, line: int, name: str, row: dict[str, Any]) -> str:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        reason = "neither text nor a number" if name in row else f"missing; the line has {format_list(row) or 'no key'}"
        raise UserError(f"{path}:{line}: {name}: {reason}")
    text = str(value)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{path}:{line}: {name}: an unpaired surrogate")
    return text
