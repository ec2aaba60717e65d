"""The rows of a table: texts, label and id of each, and the rows that are skipped.

Every row of a file is kept or listed as skipped: read = kept + skipped, plus the rows of other splits where a column
`split` names them.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from minbert.errors import UserError, format_list
from minbert.token_cache import Issue, Row
from tasks.readers.kinds import KINDS, ParseLabel, Request, find_columns, label_parser
from tasks.readers.table import BOM, Record, Table, read_lines, text_of

# JSON can hold surrogates; a file in UTF-16 without a byte order mark is read as UTF-8 with NULs
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_PLACEHOLDERS = ("", "-1", "-1.0")  # labels of a test file whose labels are not published
SPLITS = ("train", "dev", "test")
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "valid", "val", "validation"), "test": ("test",)}
"""Split -> the names that a column `split` may have for it."""


@dataclass
class DataFile:
    """The rows that a reader keeps, in file order, and those that it skips.

    `is_course` says that the texts are preprocessed as the course does. `unique_ids` refuses an id that repeats.
    `other_splits` counts the rows whose column `split` names another split than the one asked for.
    """

    path: Path
    num_texts: int
    rows: list[Row] = field(default_factory=list)
    skipped: list[Issue] = field(default_factory=list)
    is_course: bool = False
    unique_ids: bool = True
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
        """Append a row; without an id the line is the id.

        Raises `UserError` for a duplicate id where ids are unique, and for a text that is not one.
        """
        if row_id is None:
            row_id = str(line)
        elif self.unique_ids:
            first = self._line_of_id.setdefault(row_id, line)
            if first != line:
                raise UserError(f"{self.path}:{line}: id: duplicate, first seen on line {first}")
        for text in (row_id, *texts):
            if _NOT_TEXT.search(text):
                raise UserError(f"{self.path}:{line}: not text: a NUL or an unpaired surrogate")
        self.rows.append(Row(row_id, texts, label, line, note))


def read_rows(table: Table, request: Request) -> DataFile:
    """The rows of a table with the columns of a kind.

    A row with an empty text is skipped, but kept in a test file of the course's, as every id needs a prediction. A row
    without a gold label is skipped: `-` in NLI data, nothing in Quora's files, whose dev and test files keep it with a
    note. Ids are lower-cased where labels are read. Raises `UserError` for an invalid row.
    """
    kind = request.kind
    columns = find_columns(table.names, kind)
    texts = [columns[role] for role in KINDS[kind].texts if role in columns]
    label_column = columns.get("label") if request.labelled else None
    parse = label_parser(kind, label_column or "", request.classes)
    is_course = table.is_course and not request.original
    clean: Callable[[str], str] = str.strip
    if is_course:
        clean = clean_sentence if kind == "single" else clean_pair
    is_quora = table.is_course and kind == "pair-class"
    # of texts to predict, an id may name a group of rows
    data = DataFile(table.path, len(texts), is_course=is_course, unique_ids=request.labelled)
    roles = [*KINDS[kind].texts.values(), KINDS[kind].id]
    if request.labelled:
        roles.append(KINDS[kind].label)
    accepted = set(chain.from_iterable(roles))
    if request.split:
        accepted.add("split")
    for line, record in records_of_split(data, table.names, table.records(), request.split):
        if table.delimiter == "json":
            # a text or label that the first object lacks would be left out silently
            new_keys = sorted(accepted.intersection(record).difference(table.names))
            if new_keys:
                raise UserError(f"{table.path}:{line}: {new_keys[0]}: the first line has no such key")
        elif all(value == name for name, value in record.items()):
            data.skip(line, "repeats the header")
            continue
        # some files have a second byte order mark, before the first sentence
        row_texts = tuple([clean(text_of(table.path, line, record, name).strip(BOM)) for name in texts])
        if not all(row_texts) and not (table.is_course and request.split == "test"):
            data.skip(line, f"{texts[row_texts.index('')]}: empty")
            continue
        label = math.nan
        note = ""
        if label_column:
            label_text = text_of(table.path, line, record, label_column).strip()
            if kind == "nli" and label_text == "-":  # the annotators did not agree (SNLI, section 2.2)
                data.skip(line, "no gold label")
                continue
            if is_quora and not label_text:
                if request.split not in ("dev", "test"):
                    data.skip(line, f"{label_column}: empty")
                    continue
                note = f"{label_column}: empty; predicted, not scored"
            elif request.split != "test" or label_text not in _PLACEHOLDERS:
                label = read_label(table.path, line, label_column, label_text, parse)
        row_id = None
        if "id" in columns:
            # a tab or a line end would be one of the tables that ids are written to
            row_id = " ".join(text_of(table.path, line, record, columns["id"]).split())
            # as the course's code does; of a file to predict the ids stay as written
            if request.labelled:
                row_id = row_id.lower()
        data.keep(line, row_texts, label, row_id, note)
    return data


def clean_sentence(text: str) -> str:
    """The course's preprocessing of a single sentence: lower case, surrounding white space removed."""
    return text.lower().strip()


def clean_pair(text: str) -> str:
    """The course's preprocessing of a sentence of a pair: lower case, a space before . ? , ', single spaces."""
    spaced = text.lower().replace(".", " .").replace("?", " ?").replace(",", " ,").replace("'", " '")
    return " ".join(spaced.split())


def read_label(path: Path, line: int, column: str, text: str, parse: ParseLabel) -> float:
    """The number of a label. Raises `UserError` with the line and column."""
    try:
        return parse(text)
    except UserError as error:
        raise UserError(f"{path}:{line}: {column}: {error}") from None


def records_of_split(
    data: DataFile, names: Sequence[str], records: Iterable[tuple[int, Record]], split: str
) -> Iterator[tuple[int, Record]]:
    """The rows of a split, or all rows for ""; those of other splits are counted in `data`.

    Raises `UserError` if there is a column `split`, and it names this split in no row, or none of the splits in one.
    """
    others: dict[str, None] = {}  # a set in order of appearance
    known = [*chain.from_iterable(SPLIT_NAMES.values())]
    is_empty = True
    for line, record in records:
        if is_of_split(record, names, split):
            is_empty = False
            yield line, record
        else:
            data.other_splits += 1
            name = str(record.get("split", "")).strip()
            if name.lower() not in known:
                raise UserError(f"{data.path}:{line}: split: {name!r} is not one of {', '.join(known)}")
            others[name] = None
    if is_empty and others:
        raise UserError(f"{data.path}: no row of the split {split!r}: the column 'split' has {format_list(others)}")


def is_of_split(record: Record, names: Sequence[str], split: str) -> bool:
    """Whether a row is of a split, as its column `split` says; without this column, and for "", every row is."""
    if not split or "split" not in names:
        return True
    return str(record.get("split", "")).strip().lower() in SPLIT_NAMES[split]


def read_texts_of_lines(path: Path) -> DataFile:
    """Every line as a row of one text; blank lines are skipped."""
    data = DataFile(path, 1)
    for line, text in plain_lines(path):
        if text:
            data.keep(line, (text,))
        else:
            data.skip(line, "sentence: empty")
    return data


def plain_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """The number of every line, and its text without surrounding white space."""
    for line, text in enumerate(read_lines(path, encoding), 1):
        yield line, text.strip()
