"""Numbers, durations and tables as they are shown: on pages, in Markdown and in a terminal."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from tabulate import tabulate
from wcwidth import wcswidth

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


@dataclass(frozen=True)
class Table:
    """A frame of strings; the first `left` columns are aligned left, the others right. `notes` follow below."""

    title: str
    rows: pd.DataFrame
    notes: tuple[str, ...] = ()
    left: int = 1

    def _drawn(self, rows: pd.DataFrame, kind: str) -> str:
        aligned = ["left" if column < self.left else "right" for column in range(len(rows.columns))]
        return tabulate(rows, headers="keys", tablefmt=kind, showindex=False, disable_numparse=True, colalign=aligned)

    def terminal(self, width: int | None = None) -> str:
        """Aligned columns, as rows where this alone fits into `width`; without rows, the title and the notes."""
        if self.rows.empty:
            return "\n".join([self.title, *self.notes])
        drawn = self._drawn(self.rows, "simple")
        if width and _width(drawn) > width:
            aligned = ["left", *["right"] * len(self.rows)]
            look: Any = {"tablefmt": "plain", "showindex": False, "disable_numparse": True, "colalign": aligned}
            turned = tabulate(self.rows.T.reset_index(), **look)
            drawn = turned if _width(turned) <= width else drawn
        return "\n".join([self.title, drawn, *self.notes])

    def markdown(self) -> str:
        """A pipe table under its title as a heading."""
        drawn = [] if self.rows.empty else [self._drawn(self.rows.map(_escaped).rename(columns=_escaped), "pipe"), ""]
        return "\n".join([f"## {self.title}", "", *drawn, *(f"{_escaped(note)}\n" for note in self.notes)])


def _width(text: str) -> int:
    return max(map(wcswidth, text.splitlines()))


def _escaped(text: str) -> str:
    """A text as one cell or paragraph of Markdown, without markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", plain)
