"""Plain text, one sentence a line."""

from collections.abc import Iterator
from pathlib import Path

from minbert.token_cache import Row, Skipped
from tasks.readers.records import BOM, opened


def sentences(path: Path, encoding: str = "utf-8-sig") -> Iterator[Row | Skipped]:
    """One text a row, without a label; its id is the line number. Blank lines are skipped."""
    with opened(path, encoding) as file:
        for line, text in enumerate(file, 1):
            found = text.strip().strip(BOM)
            if found:
                yield Row(str(line), (found,))
            else:
                yield Skipped(line, "blank line")
