"""Numbers, durations and tables as they are shown: on pages, in Markdown and in a terminal.

Results are kept as a long frame, with a row for each number. `wide` makes a row for each system of it, `numbers` and
`interval_texts` its cells, and `Table` prints it:

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
    """A number with fixed digits, commas between thousands and a real minus sign; `missing` where it is None or NaN."""
    if value is None or math.isnan(value):
        return missing
    plus = "+" if sign else ""
    text = f"{times * value:{plus},.{digits}f}"
    # a value that is rounded to zero has no sign
    if not text.strip("+-0."):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def numbers(values: Iterable[float], digits: int = 2, *, times: float = 1.0, sign: bool = False) -> list[str]:
    """Every value as `number` formats it."""
    return [number(value, digits, times=times, sign=sign) for value in values]


def interval_text(low: float, high: float, digits: int, *, times: float = 1.0, sign: bool) -> str:
    """An interval as [low, high]; a dash where there is none."""
    if math.isnan(low):
        return MISSING
    return f"[{', '.join(numbers((low, high), digits, times=times, sign=sign))}]"


def interval_texts(frame: pd.DataFrame, digits: int = 2, *, times: float = 1.0, sign: bool = False) -> list[str]:
    """The intervals of the columns `low` and `high`, each as `interval_text` formats it."""
    ends = zip(frame["low"], frame["high"], strict=True)
    return [interval_text(low, high, digits, times=times, sign=sign) for low, high in ends]


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{seconds:.1f} s"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON or a template: None for each cell that is NaN or missing."""
    rows = frame.rename(columns=str).astype(object)
    return rows.where(rows.notna(), None).to_dict("records")


def wide(
    frame: pd.DataFrame, rows: Sequence[str], columns: str, digits: int = 2, *, times: float = 1.0
) -> pd.DataFrame:
    """The `value` column of a long frame as strings: a row for each distinct `rows`, a column for each of `columns`.

    Both are in their order of appearance; a cell without a value is a dash.
    """
    frame = frame.assign(text=numbers(frame["value"], digits, times=times))
    cells = frame.pivot_table(index=list(rows), columns=columns, values="text", aggfunc="first", sort=False)
    in_order = cells[frame[columns].unique().tolist()]
    return in_order.rename(columns=str).fillna(MISSING).reset_index()


@dataclass(frozen=True)
class Table:
    """A frame of strings; the first `left` columns are aligned left, the others right. `notes` follow below."""

    title: str
    rows: pd.DataFrame
    notes: tuple[str, ...] = ()
    left: int = 1

    def _lines(self) -> list[list[str]]:
        """The header and the rows, as cells."""
        lines = []
        for cells in [self.rows.columns, *self.rows.itertuples(index=False, name=None)]:
            lines.append([str(cell) for cell in cells])
        return lines

    def terminal(self) -> str:
        """Title, aligned columns and notes; without rows, the title and the notes."""
        lines = self._lines() if len(self.rows) else []
        widths = [max(map(len, column)) for column in zip(*lines)]
        texts = [self.title]
        for line in lines:
            left = [cell.ljust(width) for cell, width in zip(line[: self.left], widths)]
            right = [cell.rjust(width) for cell, width in zip(line[self.left :], widths[self.left :])]
            texts.append("  ".join(left + right).rstrip())
        return "\n".join([*texts, *self.notes])

    def markdown(self) -> str:
        """A pipe table under its title as a heading."""
        parts = [f"## {self.title}", ""]
        if len(self.rows):
            lines = [list(map(_escaped, cells)) for cells in self._lines()]
            columns = len(self.rows.columns)
            rules = [":---"] * self.left + ["---:"] * (columns - self.left)
            lines.insert(1, rules[:columns])
            parts += [f"| {' | '.join(line)} |" for line in lines]
            parts.append("")
        parts += [f"{_escaped(note)}\n" for note in self.notes]
        return "\n".join(parts)


def class_table(title: str, per_class: Iterable[Mapping[str, Any]]) -> Table:
    """Precision, recall, F1 and support of each class; without rows for a task without classes."""
    rows = []
    for row in per_class:
        rows.append(
            {
                "class": row["label"],
                "precision": number(row["precision"], 3),
                "recall": number(row["recall"], 3),
                "F1": number(row["f1"], 3),
                "support": f"{row['support']:,}",
            }
        )
    return Table(title, pd.DataFrame(rows))


def _escaped(text: str) -> str:
    """A text as one cell or paragraph of Markdown, without markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", plain)
