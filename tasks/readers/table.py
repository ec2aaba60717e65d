"""Data files as lines, tables and rows: what every reader of a family of data uses.

Lines count from 1 and end at a line feed, or at a carriage return and a line feed. All text is UTF-8, but for some of
SentEval's sets, which are Latin-1. Every row of a file is kept or listed as skipped: read = kept + skipped, plus the
rows of other splits where a column `split` names them.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from minbert.errors import UserError, format_list
from minbert.token_cache import Issue, Row
from tasks.readers.labels import ParseLabel, label_parser, parse_number

# A sentence may be longer than csv's default limit of 131,072 characters for a field.
csv.field_size_limit(1 << 30)

BOM = "\ufeff"
_NAMES_SHOWN = 8  # names of a header in an error message
_PLACEHOLDERS = ("", "-1", "-1.0")  # labels of a test file whose labels are not published
_SPLITS = {"train": ("train",), "dev": ("dev", "valid", "val", "validation"), "test": ("test",)}
_BINARY = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a ZIP archive or an Excel file",
    b"\x1f\x8b": "a gzip archive",
}
"""First bytes -> what such a file is."""


class Columns(NamedTuple):
    """The names that a header may give to the texts, the label and the id of a row."""

    texts: Mapping[str, tuple[str, ...]]
    label: tuple[str, ...] = ()
    id: tuple[str, ...] = ("id", "pair_ID")


_PAIR = {
    "sentence1": ("sentence1", "text_1", "question1", "sentence_A", "#1 String"),
    "sentence2": ("sentence2", "text_2", "question2", "sentence_B", "#2 String"),
}
KINDS = {
    "lines": Columns({"sentence": ()}),
    "single": Columns({"sentence": ("sentence", "text", "review")}, ("sentiment", "label", "class")),
    "pair-class": Columns(_PAIR, ("is_duplicate", "label", "class", "Quality")),
    "pair-score": Columns(_PAIR, ("similarity", "relatedness_score", "score", "label")),
    "pair": Columns(_PAIR),
    "nli": Columns(
        {
            "sentence1": ("sentence1", "premise", "sentence_A"),
            "sentence2": ("sentence2", "hypothesis", "sentence_B"),
        },
        ("gold_label", "label", "entailment_judgment"),
        id=("pair_ID",),
    ),
    "triplet": Columns(
        {"anchor": ("sent0", "anchor"), "positive": ("sent1", "positive"), "negative": ("hard_neg", "negative")},
        id=(),
    ),
}
"""The kinds of rows. `pair` has no label; a file of triplets may lack the negative, and a test file its label."""
HEADER_NAMES: set[str] = set()
for _kind in KINDS.values():
    HEADER_NAMES.update(*_kind.texts.values(), _kind.label)


class Request(NamedTuple):
    """What is asked of a file: rows of one of `KINDS`, and how they are read.

    `split` is train, dev or test, or "" for all rows. Without `labelled` the labels are not read. `original` texts are
    not preprocessed as the course does.
    """

    kind: str
    split: str = ""
    classes: int | None = None
    labelled: bool = True
    original: bool = False

    @property
    def needs_label(self) -> bool:
        """Whether a header must name a label; a test file's need not."""
        return self.labelled and self.split != "test"


@dataclass
class DataFile:
    """The rows that a reader keeps, in file order, and those that it skips.

    `is_course` says that the texts are preprocessed as the course does. `other_splits` counts the rows whose column
    `split` names another split than the one asked for.
    """

    path: Path
    num_texts: int
    rows: list[Row] = field(default_factory=list)
    skipped: list[Issue] = field(default_factory=list)
    is_course: bool = False
    other_splits: int = 0
    _line_of_id: dict[str, int] = field(default_factory=dict, repr=False)

    def rows_and_issues(self) -> list[Row | Issue]:
        """The rows, then the issues: what the token cache takes."""
        return [*self.rows, *self.skipped]

    def skip(self, line: int, reason: str) -> None:
        """List a row as skipped."""
        self.skipped.append(Issue(line, reason))

    def keep(
        self, line: int, texts: tuple[str, ...], label: float = math.nan, row_id: str | None = None, note: str = ""
    ) -> None:
        """Append a row; without an id the line is the id. Raises `UserError` for an empty or a duplicate id."""
        if row_id is None:
            row_id = str(line)
        elif not row_id:
            raise UserError(f"{self.path}:{line}: id: empty")
        elif (first := self._line_of_id.setdefault(row_id, line)) != line:
            raise UserError(f"{self.path}:{line}: id: duplicate, first seen on line {first}")
        self.rows.append(Row(row_id, texts, label, line, note))


@dataclass(frozen=True)
class Table:
    """How a file is cut into rows and cells, as its first line shows it.

    `names` are the columns' names: the header's, a JSON object's keys, or the fixed columns of a published layout
    without a header. If `quoted`, csv's rules hold: a quoted cell may hold delimiters and line feeds. Else quotes are
    text, except around a cell with doubled ones, which csv has quoted because of a quote inside.
    """

    path: Path
    line: str  # the first line that is not blank
    delimiter: str  # a tab, a comma or ||; `json` for JSON lines; "" for plain text
    names: Sequence[str]
    quoted: bool = False
    has_header: bool = True
    may_be_wider: bool = False  # rows may have more cells than names


def read_lines(path: Path, encoding: str = "utf-8", errors: str = "strict") -> Iterator[str]:
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


def open_table(path: Path) -> Table:
    """Read a file's first line that is not blank.

    Raises `UserError` if the file is empty or cannot be read, or is of a format that no reader reads.
    """
    _refuse_binary(path)
    # Invalid UTF-8 is replaced: which encoding a file has is known with its layout, not yet.
    line = next((line for line in read_lines(path, errors="replace") if line.strip()), None)
    if line is None:
        raise UserError(f"{path}: the file is empty")
    # The sentences of plain text have commas: a .txt file is a table only with tabs.
    is_text = path.suffix.lower() == ".txt"
    if "\t" not in line and is_text:
        return Table(path, line, "", [])
    if line.strip() == "[" or line.lstrip().startswith("[{"):
        raise UserError(f"{path}: is a JSON array; write one JSON object on each line (JSON lines)")
    if line.strip() == "{":
        raise UserError(f"{path}: is JSON over several lines; write one JSON object on each line (JSON lines)")
    try:
        return Table(path, line, "json", list(_json_object(path, 1, line)))
    except UserError:
        pass  # not JSON lines
    delimiter = "\t" if "\t" in line else ","
    names = next(csv.reader([line], delimiter=delimiter))
    return Table(path, line, delimiter, names, quoted=delimiter == "," or line.startswith('"'))


def _refuse_binary(path: Path) -> None:
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    for first_bytes, name in _BINARY.items():
        if start.startswith(first_bytes):
            raise UserError(f"{path}: is {name}; write the rows as CSV, TSV or JSON lines")


def is_table(path: Path) -> bool:
    """Whether a file's first line has tabs, is a JSON object, or names columns."""
    table = open_table(path)
    named = path.suffix.lower() == ".csv" or not HEADER_NAMES.isdisjoint(table.names)
    return table.delimiter in ("\t", "json") or named


def fixed_columns(
    table: Table,
    delimiter: str,
    names: Sequence[str],
    *,
    numbers: Sequence[str] = ("label",),
    may_be_wider: bool = False,
) -> Table | None:
    """The table of a layout without a header, if the first line fits it; else None.

    The line fits if it has these columns, and numbers in those named by `numbers`.
    """
    cells = table.line.split(delimiter)
    if len(cells) < len(names) or (len(cells) > len(names) and not may_be_wider):
        return None
    if not HEADER_NAMES.isdisjoint(cells):
        return None
    for name, cell in zip(names, cells, strict=False):
        if name in numbers and math.isnan(parse_number(cell)):
            return None
    return replace(table, delimiter=delimiter, names=names, quoted=False, has_header=False, may_be_wider=may_be_wider)


def find_columns(names: Sequence[str], kind: str) -> dict[str, str]:
    """Text, `label` or `id` -> the name that a header has for it."""
    accepted = {**KINDS[kind].texts, "label": KINDS[kind].label, "id": KINDS[kind].id}
    columns = {}
    for role, candidates in accepted.items():
        name = next((name for name in candidates if name in names), None)
        if name is not None:
            columns[role] = name
    return columns


def missing_column(names: Sequence[str], request: Request) -> str:
    """The first text, or `label`, that a header lacks; "" if it lacks none. A triplet needs no negative."""
    columns = find_columns(names, request.kind)
    needed = [role for role in KINDS[request.kind].texts if role != "negative"]
    if KINDS[request.kind].label and request.needs_label:
        needed.append("label")
    return next((role for role in needed if role not in columns), "")


def unknown_format(table: Table, request: Request) -> UserError:
    """The error for a file that no reader of a kind reads: what it is, or what its header must name."""
    path = table.path
    kind = request.kind
    if kind == "lines":
        return UserError(f"{path}: is a table; a file of texts has one on each line")
    by_semicolon = [cell.strip().strip('"') for cell in table.line.split(";")]
    if len(by_semicolon) > 1 and not HEADER_NAMES.isdisjoint(by_semicolon):
        return UserError(f"{path}:1: the columns are separated by semicolons; separate them by commas or tabs")
    role = missing_column(table.names, request)
    accepted = KINDS[kind].label if role == "label" else KINDS[kind].texts[role]
    wanted = f"{accepted[0]!r} (or {', '.join(accepted[1:])})"
    # no column is named by a number
    if not table.names or any(not math.isnan(parse_number(name)) for name in table.names):
        return UserError(
            f"{path}:1: the file has no header; its first line must name the columns, one of them {wanted}"
        )
    names = format_list(table.names[:_NAMES_SHOWN])
    return UserError(f"{path}:1: no column {wanted}: rename the header's, {names}")


def read_columns(table: Table, request: Request, gaps: Mapping[str, str] | None = None) -> DataFile:
    """The rows of a table with known column names.

    A row with an empty text is skipped, and so is one whose label is in `gaps` (text -> reason). Ids are stripped and
    lower-cased, or where labels are not read only stripped. Raises `UserError` for an invalid row.
    """
    kind = request.kind
    columns = find_columns(table.names, kind)
    texts = [columns[role] for role in KINDS[kind].texts if role in columns]
    label_column = columns.get("label") if request.labelled else None
    parse = label_parser(kind, label_column or "", request.classes)
    needed = list(texts)
    if label_column:
        needed.append(label_column)
    if "id" in columns:
        needed.append(columns["id"])
    data = DataFile(table.path, len(texts))
    for line, cells in table_rows(table, needed, request.split, data):
        row_texts = tuple([text.strip() for text in cells[: len(texts)]])
        if not all(row_texts):
            data.skip(line, f"{texts[row_texts.index('')]}: empty")
            continue
        label = math.nan
        if label_column:
            label_text = cells[len(texts)]
            if gaps and label_text.strip() in gaps:
                data.skip(line, gaps[label_text.strip()])
                continue
            label = read_label(table.path, line, label_column, label_text, parse, request.split)
        row_id = cells[-1].strip() if "id" in columns else None
        if row_id and request.labelled:
            row_id = row_id.lower()
        data.keep(line, row_texts, label, row_id)
    return data


def read_label(path: Path, line: int, column: str, text: str, parse: ParseLabel, split: str = "") -> float:
    """The number of a label; NaN for the placeholder of a test file. Raises `UserError` with the line and column."""
    if split == "test" and text.strip() in _PLACEHOLDERS:
        return math.nan
    try:
        return parse(text)
    except UserError as error:
        raise UserError(f"{path}:{line}: {column}: {error}") from None


def table_rows(table: Table, columns: Sequence[str], split: str, data: DataFile) -> Iterator[tuple[int, list[str]]]:
    """The first line of each row, and its cells in the named columns; blank lines are no rows.

    Rows of another split and lines that repeat the header are counted in `data`. Raises `UserError` if there is no row,
    if a row has a wrong number of cells, or if csv's quoting is malformed.
    """
    if not split or "split" not in table.names:
        yield from _rows(table, columns, data)
        return
    values: dict[str, None] = {}  # a set in order of appearance
    read = 0
    for line, cells in _rows(table, [*columns, "split"], data):
        value = cells.pop().strip()
        if value.lower() in _SPLITS[split]:
            read += 1
            yield line, cells
        else:
            data.other_splits += 1
            values[value] = None
    if not read:
        raise UserError(f"{table.path}: no row of the split {split!r}: the column 'split' has {format_list(values)}")


def _rows(table: Table, columns: Sequence[str], data: DataFile) -> Iterator[tuple[int, list[str]]]:
    if table.delimiter == "json":
        yield from _json_rows(table.path, columns)
        return
    names = list(table.names)
    indices = [names.index(name) for name in columns]
    lines = _split_lines(table)
    header: list[str] = []
    while table.has_header and not "".join(header).strip():
        _, header = next(lines)  # blank lines may come before it
    read = 0
    for line, cells in lines:
        if len(cells) < len(names) or (len(cells) > len(names) and not table.may_be_wider):
            if cells in ([], [""]):
                continue
            expected = f"{', '.join(names)} are {len(names)}"
            if table.has_header:
                expected = f"the header has {len(names)}"
            noun = "column" if len(cells) == 1 else "columns"
            raise UserError(f"{table.path}:{line}: {len(cells)} {noun}, {expected}")
        if not read:
            # some files have a second byte order mark, before the first sentence
            cells = [cell.lstrip(BOM) for cell in cells]
        read += 1
        if cells == header:
            data.skip(line, "repeats the header")
            continue
        yield line, [cells[index] for index in indices]
    if not read:
        raise UserError(f"{table.path}: no row after the header")


def _split_lines(table: Table) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and all cells. csv reads strictly: else a stray quote joins all lines up to the next in one cell."""
    path = table.path
    if not table.quoted:
        for line, text in enumerate(read_lines(path), 1):
            cells = text.split(table.delimiter)
            if '""' in text:
                cells = [_unquoted(cell) for cell in cells]
            yield line, cells
        return
    reader = csv.reader((f"{text}\n" for text in read_lines(path)), delimiter=table.delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        reason = str(error)
        # csv's own words are "',' expected after '"'", or "unexpected end of data"
        if "expected" in reason:
            reason = "a cell that begins with a quote does not end with one"
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


def _json_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """One JSON object a line; numbers become text."""
    for line, text in enumerate(read_lines(path), 1):
        if text.strip():
            row = _json_object(path, line, text)
            yield line, [_json_cell(path, line, name, row) for name in columns]


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
        reason = "neither text nor a number"
        if name not in row:
            reason = f"missing; the line has {format_list(row) or 'no key'}"
        raise UserError(f"{path}:{line}: {name}: {reason}")
    text = str(value)
    if "\0" in text:
        raise UserError(f"{path}:{line}: {name}: not text: a NUL")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{path}:{line}: {name}: an unpaired surrogate")
    return text
