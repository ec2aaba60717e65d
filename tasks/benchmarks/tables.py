"""A table once, shown twice: aligned on the terminal, and as Markdown. Results as JSON beside it."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.files import write_atomic, write_json
from tasks.intervals import Interval

MISSING = "–"


@dataclass(frozen=True)
class Table:
    """Rows of texts under a head; the first `left` columns are words, the others numbers. `notes` stand below."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    left: int = 1

    def terminal(self) -> str:
        """Aligned columns under a line; wide characters take two places. Without rows, the title and the notes."""
        if not self.rows:
            return "\n".join([self.title, *self.notes])
        grid = [self.head, *self.rows]
        widths = [max(_width(row[column]) for row in grid) for column in range(len(self.head))]
        lines = ["  ".join(self._cell(cell, widths, column) for column, cell in enumerate(row)) for row in grid]
        rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
        body = [line.rstrip() for line in lines]
        return "\n".join([self.title, rule, body[0], rule, *body[1:], *self.notes])

    def _cell(self, cell: str, widths: Sequence[int], column: int) -> str:
        blank = " " * (widths[column] - _width(cell))
        return cell + blank if column < self.left else blank + cell

    def markdown(self) -> str:
        """A pipe table under its title as a heading."""
        notes = [f"{_escaped(note)}\n" for note in self.notes]
        if not self.rows:
            return "\n".join([f"## {self.title}", "", *notes])
        marks = [":--" if column < self.left else "--:" for column in range(len(self.head))]
        grid = [self.head, marks, *self.rows]
        lines = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in grid]
        return "\n".join([f"## {self.title}", "", *lines, "", *notes])


def _escaped(text: str) -> str:
    for mark in "\\`*_<>[]|":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def number(value: float | None, digits: int = 2, *, times: float = 1.0, sign: bool = False) -> str:
    """A number with fixed digits, a real minus sign, and a dash where it is undefined."""
    if value is None:
        return MISSING
    text = f"{times * value:{'+' if sign else ''}.{digits}f}"
    if not text.strip("+-0."):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def between(around: Interval | None, digits: int = 2, *, times: float = 1.0, sign: bool = False) -> str:
    """An interval as [low, high]; a dash where there is none."""
    if around is None:
        return MISSING
    low, high = (number(value, digits, times=times, sign=sign) for value in (around.low, around.high))
    return f"[{low}, {high}]"


def as_list(around: Interval | None) -> list[float] | None:
    """An interval as JSON holds it."""
    return None if around is None else [around.low, around.high]


def write(
    folder: Path, name: str, title: str, tables: Sequence[Table], results: dict[str, Any], figures: Sequence[Path]
) -> None:
    """Print the tables, and write `FOLDER/name.json` and `FOLDER/name.md`, each whole or not at all."""
    for table in tables:
        print(table.terminal(), end="\n\n")
    write_json(folder / f"{name}.json", results)
    pictures = [f"![{path.name}]({path.name}.svg)\n" for path in figures]
    parts = [f"# {title}\n", f"`{results['command']}`\n", *(table.markdown() for table in tables), *pictures]
    write_atomic(folder / f"{name}.md", "\n".join(parts).rstrip() + "\n")
    kinds = [f"{name}.json", f"{name}.md", *(f"{path.name}.svg, .png" for path in figures)]
    print(f"{folder}: {', '.join(kinds)}")
