"""Plain texts, one a line; pairs of texts with a tab between them; texts with a label from 0 behind a tab."""

from collections.abc import Iterator
from pathlib import Path

from tasks.readers.table import BOM, DataFile, Table, fixed_columns, read_lines


def plain_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """The number of every line, and its text without surrounding white space and byte order marks."""
    for line, text in enumerate(read_lines(path, encoding), 1):
        yield line, text.strip().strip(BOM)


def read_texts_of_lines(path: Path) -> DataFile:
    """Every line as a row of one text; blank lines are skipped."""
    data = DataFile(path, 1)
    for line, text in plain_lines(path):
        if text:
            data.keep(line, (text,))
        else:
            data.skip(line, "sentence: empty")
    return data


def without_header(table: Table, kind: str) -> Table | None:
    """The table of labelled texts, or of pairs of texts, if the first line fits it."""
    if kind == "single":
        return fixed_columns(table, "\t", ("sentence", "label"))
    if kind == "pair":
        return fixed_columns(table, "\t", ("sentence1", "sentence2"), numbers=())
    return None
