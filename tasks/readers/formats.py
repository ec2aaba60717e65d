"""The records of a user's own file, in any of the usual formats: names of columns, then lines and cells.

CSV, TSV, columns separated by semicolons, JSON lines, a JSON array, and Parquet by pandas; all but Parquet also packed
by gzip, in a file named *.gz.
"""

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from minbert.errors import UserError, reason
from minbert.files import require_file
from tasks.readers.kinds import Request, fit
from tasks.readers.table import Record, open_table, read_lines, refuse_binary, text_of

Records = Iterable[tuple[int, Record]]
"""(line, record) of each row; for a JSON array or Parquet the record's number, from 1, in place of the line."""


def read_records(path: Path, kind: str) -> tuple[list[str], Records]:
    """The names of a file's columns, and its records.

    A file without a header may have a published layout of rows of a `kind`, whose columns then have the usual names.
    Raises `UserError` if the file cannot be read.
    """
    if is_parquet(require_file(path)):
        frame = _read_parquet(path)
        rows: list[dict[str, Any]] = frame.to_dict("records")
        return [str(name) for name in frame.columns], enumerate(rows, 1)
    refuse_binary(path)
    if _is_array(_first_line(path)):
        array = _read_array(path)
        return list(dict.fromkeys(chain.from_iterable(array))), enumerate(array, 1)
    table = open_table(path)
    if table.delimiter == "json":
        # a later object may have keys that the first lacks, such as a split
        keys = chain.from_iterable(record for _, record in table.records())
        return list(dict.fromkeys(keys)), table.records()
    if has_semicolons(path):
        names = next(csv.reader([table.line], delimiter=";"))
        table = replace(table, delimiter=";", names=names, quoted=True)
    else:
        table = fit(table, Request(kind)) or table
    return list(table.names), table.records()


def is_json(path: Path) -> bool:
    """Whether a file holds JSON, by its first line."""
    if is_parquet(path):
        return False
    line = _first_line(path)
    return line.startswith("{") or _is_array(line)


def _is_array(line: str) -> bool:
    """Whether a line begins an array of objects; a text may begin with a bracket."""
    return re.match(r"\[\s*({|\]|$)", line) is not None


def has_semicolons(path: Path) -> bool:
    """Whether semicolons separate the columns, by the first line."""
    if is_parquet(path) or is_json(path):
        return False
    line = _first_line(path)
    return "\t" not in line and line.count(";") > line.count(",")


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its first bytes."""
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _first_line(path: Path) -> str:
    """The first line of a text file that is not blank, without white space around it."""
    return next((line.strip() for line in read_lines(path) if line.strip()), "")


def cell(path: Path, line: int, record: Record, name: str) -> str:
    """A record's value as text: "" for none, `1` for 1.0. Raises `UserError` for lists and objects."""
    value = record.get(name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return text_of(path, line, record, name)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise UserError(f"{path}: pandas needs pyarrow to read Parquet: pip install pyarrow") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a Parquet file that can be read: {reason(error)}") from error
    # a missing value is None in every type of column
    return frame.astype(object).where(frame.notna(), None)


def _read_array(path: Path) -> list[Record]:
    try:
        content = json.loads("\n".join(read_lines(path)))
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    for number, record in enumerate(content, 1):
        if not isinstance(record, Mapping):
            raise UserError(f"{path}: number {number} of the array is not a JSON object")
    records: list[Record] = content
    return records
