"""The files of Stanford's CS 224N default project: TAB-separated, csv's quoting, columns by name.

Sentences are preprocessed as the course does. The published Quora files have rows without a label or a sentence; SST
and STS have none, so there such a row is an error.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from minbert.errors import UserError
from tasks.readers.labels import label_parser
from tasks.readers.table import KINDS, DataFile, Request, Table, find_columns, read_label, table_rows

_LABELS = {"single": "sentiment", "pair-class": "is_duplicate", "pair-score": "similarity", "pair": None}
"""Kind -> the course's name of the label."""


def clean_sentence(text: str) -> str:
    """The course's preprocessing of a single sentence: lower case, surrounding white space removed."""
    return text.lower().strip()


def clean_pair(text: str) -> str:
    """The course's preprocessing of a sentence of a pair: lower case, a space before . ? , ', single spaces."""
    spaced = text.lower().replace(".", " .").replace("?", " ?").replace(",", " ,").replace("'", " '")
    return " ".join(spaced.split())


def as_course(table: Table, kind: str) -> Table | None:
    """The table if its header has exactly the course's names, apart from the label, which test files lack."""
    if kind not in _LABELS or table.delimiter != "\t":
        return None
    columns = find_columns(table.names, kind)
    texts = [columns.get(role) for role in KINDS[kind].texts]
    if texts != list(KINDS[kind].texts) or columns.get("id") != "id":
        return None
    if columns.get("label") not in (_LABELS[kind], None):
        return None
    return replace(table, quoted=True)


def read(table: Table, request: Request) -> DataFile:
    """The rows of a file of the course's; ids are stripped and lower-cased.

    Of Quora, a row without a sentence is skipped, but kept in a test file, as every id needs a prediction; a row
    without a label is skipped in training, and kept with a note elsewhere. Raises `UserError` for an invalid row.
    """
    has_gaps = request.kind in ("pair-class", "pair")
    clean: Callable[[str], str] = clean_sentence if request.kind == "single" else clean_pair
    if request.original:
        clean = str.strip
    texts = list(KINDS[request.kind].texts)
    label_column = find_columns(table.names, request.kind).get("label")
    parse = label_parser(request.kind, label_column or "", request.classes)
    needed = [*texts, "id"]
    if label_column:
        needed.append(label_column)
    data = DataFile(table.path, len(texts), is_course=not request.original)
    for line, cells in table_rows(table, needed, request.split, data):
        row_texts = tuple([clean(text) for text in cells[: len(texts)]])
        if not all(row_texts) and not (request.kind == "pair-class" and request.split == "test"):
            reason = f"{texts[row_texts.index('')]}: empty"
            if not has_gaps:
                raise UserError(f"{table.path}:{line}: {reason}")
            data.skip(line, reason)
            continue
        label = math.nan
        note = ""
        if label_column and has_gaps and not cells[-1].strip():
            if request.split not in ("dev", "test"):
                data.skip(line, f"{label_column}: empty")
                continue
            note = f"{label_column}: empty; predicted, not scored"
        elif label_column:
            label = read_label(table.path, line, label_column, cells[-1], parse, request.split)
        data.keep(line, row_texts, label, cells[len(texts)].strip().lower(), note)
    return data
