"""Numbers, durations and tables as they are shown: on pages, in Markdown and in a terminal.

Results are kept as a long frame, with a row for each number. `wide` makes a row for each system of it, `numbers` and
`between` its cells, and `Table` prints it:

    rows = wide(frame, ["encoder", "pooler"], "set", times=100)
    table = Table("STS, Spearman × 100", rows, notes=("Over all pairs of a set.",), left=2)
    print(table.terminal())
    path.write_text(table.markdown())
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

MISSING = "–"


def number(
    value: float | None, digits: int = 2, *, times: float = 1.0, sign: bool = False, missing: str = MISSING
) -> str:
    """A number with fixed digits and a real minus sign; `missing` where it is None or NaN."""
    if value is None or math.isnan(value):
        return missing
    text = f"{times * value:{'+' if sign else ''}.{digits}f}"
    if not text.strip("+-0."):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def numbers(values: Iterable[float], digits: int = 2, *, times: float = 1.0, sign: bool = False) -> list[str]:
    """Every value as `number` formats it."""
    return [number(value, digits, times=times, sign=sign) for value in values]


def between(frame: pd.DataFrame, digits: int = 2, *, times: float = 1.0, sign: bool = False) -> list[str]:
    """A column of intervals, [low, high]; a dash where there is none."""
    ends = [numbers(frame[side], digits, times=times, sign=sign) for side in ("low", "high")]
    return [MISSING if low == MISSING else f"[{low}, {high}]" for low, high in zip(*ends, strict=True)]


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{seconds:.1f} s"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON or a template: None for each cell that is NaN or missing."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(key): cell for key, cell in row.items()} for row in rows]


def wide(
    frame: pd.DataFrame, rows: Sequence[str], columns: str, digits: int = 2, *, times: float = 1.0
) -> pd.DataFrame:
    """The `value` column of a long frame as strings: a row for each distinct `rows`, a column for each of `columns`.

    Both are in their order of appearance; a cell without a value is a dash.
    """
    shown = frame.assign(shown=numbers(frame["value"], digits, times=times))
    cells = shown.pivot_table(index=list(rows), columns=columns, values="shown", aggfunc="first", sort=False)
    return cells[shown[columns].unique().tolist()].rename(columns=str).fillna(MISSING).reset_index()


@dataclass(frozen=True)
class Table:
    """A frame of strings; the first `left` columns are aligned left, the others right. `notes` follow below."""

    title: str
    rows: pd.DataFrame
    notes: tuple[str, ...] = ()
    left: int = 1

    def terminal(self) -> str:
        """Title, aligned columns and notes; without rows, the title and the notes."""
        if self.rows.empty:
            return "\n".join([self.title, *self.notes])
        columns = [[str(name), *map(str, self.rows[name])] for name in self.rows]
        widths = [max(map(len, column)) for column in columns]
        lines = []
        for row in zip(*columns, strict=True):
            cells = zip(row, widths, strict=True)
            texts = [cell.ljust(w) if column < self.left else cell.rjust(w) for column, (cell, w) in enumerate(cells)]
            lines.append("  ".join(texts).rstrip())
        return "\n".join([self.title, *lines, *self.notes])

    def markdown(self) -> str:
        """A pipe table under its title as a heading."""
        rows = [] if self.rows.empty else [self.pipes(), ""]
        return "\n".join([f"## {self.title}", "", *rows, *(f"{_escaped(note)}\n" for note in self.notes)])

    def pipes(self) -> str:
        """The rows alone as a pipe table of Markdown."""
        rules = [":---" if column < self.left else "---:" for column in range(len(self.rows.columns))]
        rows = [map(_escaped, map(str, row)) for row in (self.rows.columns, *self.rows.itertuples(index=False))]
        head, *lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([head, f"| {' | '.join(rules)} |", *lines])


def class_table(title: str, per_class: Iterable[Mapping[str, Any]]) -> Table:
    """Precision, recall, F1 and support of each class; without rows for a task without classes."""
    rows = [
        {
            "class": row["label"],
            **{name: number(row[name.lower()], 3) for name in ("precision", "recall", "F1")},
            "support": f"{row['support']:,}",
        }
        for row in per_class
    ]
    return Table(title, pd.DataFrame(rows))


def _escaped(text: str) -> str:
    """A text as one cell or paragraph of Markdown, without markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", plain)
