"""The results of a suite as one long table with a row a number; shown tables, differences and JSON are made of it."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from minbert.files import write_atomic, write_json
from tasks.benchmarks.options import Pairing, System
from tasks.intervals import Difference, Interval, interval, resampled

MISSING = "–"
AVERAGE = "avg."


class Results:
    """Rows of (encoder, pooler, measure, set, value, low, high, and more), and the resamples of some of them.

    The resamples of a measure on a set are of the same rows for every system, so their differences are paired.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def add(
        self, system: System, measure: str, name: str, value: float | None, draws: np.ndarray | None = None, **more: Any
    ) -> None:
        """One number of a system: `measure` on the set `name`, None or NaN if undefined; `draws` [R] its resamples."""
        row = {**asdict(system), "measure": measure, "set": name, "value": defined(value)}
        drawn = draws if draws is not None and len(draws) else None
        around = None if drawn is None else interval(drawn)
        self._rows.append({**row, **_bounds(around), **more, "draws": drawn})

    def add_average(self, measure: str, **more: Any) -> None:
        """The mean of a measure over the sets of each system with several; undefined if one of them is."""
        for system, rows in self.frame(measure).groupby(["encoder", "pooler"], sort=False):
            if len(rows) > 1:
                draws = np.mean(rows["draws"].tolist(), axis=0) if rows["draws"].notna().all() else None
                self.add(System(*system), measure, AVERAGE, rows["value"].mean(skipna=False), draws, **more)

    def frame(self, measure: str = "", system: System | None = None) -> pd.DataFrame:
        """All rows, or those of one measure, one system, or both."""
        found = pd.DataFrame(self._rows)
        if measure:
            found = found[found["measure"] == measure]
        if system is not None:
            found = found[(found["encoder"] == system.encoder) & (found["pooler"] == system.pooler)]
        return found

    def differences(self, pairs: Sequence[Pairing], measure: str) -> pd.DataFrame:
        """For each (first, other) and each set that both have: the other's value less the first's, and its interval."""
        found = []
        for first, other in pairs:
            one, two = (self.frame(measure, system).set_index("set") for system in (first, other))
            for name in (name for name in one.index if name in two.index):
                values = [float(side.loc[name, "value"]) for side in (one, two)]
                draws = [side.loc[name, "draws"] for side in (one, two)]
                around = None if draws[0] is None or draws[1] is None else interval(draws[1] - draws[0])
                apart = Difference(name, measure, values[0], values[1], around, why="no interval")
                row = {"first": first.name, "second": other.name, "measure": measure, "set": name}
                value = {"first_value": values[0], "second_value": values[1], "difference": apart.value}
                found.append({**row, **value, **_bounds(around), "verdict": apart.verdict})
        return pd.DataFrame(found)


def defined(value: float | None) -> float:
    """The value, NaN for None."""
    return math.nan if value is None else value


def _bounds(around: Interval | None) -> dict[str, float]:
    return {"low": math.nan, "high": math.nan} if around is None else asdict(around)


def as_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows for JSON: an undefined value or bound of an interval is None, any other empty cell is left out."""
    kept = {"value", "low", "high", "difference"}
    rows = [
        {str(key): None if isinstance(cell, float) and math.isnan(cell) else cell for key, cell in row.items()}
        for row in frame.drop(columns="draws", errors="ignore").to_dict("records")
    ]
    return [{key: cell for key, cell in row.items() if cell is not None or key in kept} for row in rows]


def content(found: Results, apart: pd.DataFrame | None = None) -> dict[str, Any]:
    """Results and their differences for JSON."""
    made = {"results": as_json(found.frame())}
    return made if apart is None else made | {"differences": as_json(apart)}


def means(values: np.ndarray, *purpose: str, seed: int, resamples: int) -> np.ndarray:
    """Means over resampled rows, [N] to [R]: the same rows for every system, by the counter (seed, *purpose)."""
    if not len(values):
        return np.empty(0)
    return resampled(lambda rows: values[rows].mean(-1), len(values), *purpose, seed=seed, resamples=resamples)


@dataclass(frozen=True)
class Table:
    """A frame of texts; the first `left` columns are aligned left, the others right. `notes` follow below."""

    title: str
    rows: pd.DataFrame
    notes: tuple[str, ...] = ()
    left: int = 1

    def _drawn(self, rows: pd.DataFrame, kind: str) -> str:
        aligned = ["left" if column < self.left else "right" for column in range(len(rows.columns))]
        return tabulate(rows, headers="keys", tablefmt=kind, showindex=False, disable_numparse=True, colalign=aligned)

    def terminal(self) -> str:
        """Aligned columns; without rows, the title and the notes."""
        drawn = [] if self.rows.empty else [self._drawn(self.rows, "simple")]
        return "\n".join([self.title, *drawn, *self.notes])

    def markdown(self) -> str:
        """A pipe table under its title as a heading."""
        drawn = [] if self.rows.empty else [self._drawn(self.rows.map(_escaped).rename(columns=_escaped), "pipe"), ""]
        return "\n".join([f"## {self.title}", "", *drawn, *(f"{_escaped(note)}\n" for note in self.notes)])


def _escaped(text: str) -> str:
    for mark in "\\`*_<>[]|":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def number(value: float | None, digits: int = 2, *, times: float = 1.0, sign: bool = False) -> str:
    """A number with fixed digits, a real minus sign, and a dash where it is undefined."""
    if value is None or math.isnan(value):
        return MISSING
    text = f"{times * value:{'+' if sign else ''}.{digits}f}"
    if not text.strip("+-0."):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def numbers(values: Iterable[float], digits: int = 2, *, times: float = 1.0, sign: bool = False) -> list[str]:
    """A column of numbers."""
    return [number(value, digits, times=times, sign=sign) for value in values]


def between(frame: pd.DataFrame, digits: int = 2, *, times: float = 1.0, sign: bool = False) -> list[str]:
    """A column of intervals, [low, high]; a dash where there is none."""
    ends = [numbers(frame[side], digits, times=times, sign=sign) for side in ("low", "high")]
    return [MISSING if low == MISSING else f"[{low}, {high}]" for low, high in zip(*ends, strict=True)]


def wide(
    frame: pd.DataFrame, index: Sequence[str], columns: str, text: Callable[[float], str] = number
) -> pd.DataFrame:
    """A column for each value of `columns` in their order of appearance, a row for each of `index`, with texts."""
    found: dict[tuple[Hashable, ...], dict[Any, str]] = {}
    for row in frame.to_dict("records"):
        found.setdefault(tuple(row[name] for name in index), {})[str(row[columns])] = text(row["value"])
    rows = [dict(zip(index, key, strict=True)) | cells for key, cells in found.items()]
    return pd.DataFrame(rows, columns=[*index, *map(str, frame[columns].unique())]).fillna(MISSING)


def difference_tables(
    title: str, frame: pd.DataFrame, *, digits: int = 2, times: float = 1.0, verdict: bool = True, column: str = "set"
) -> list[Table]:
    """A table for each two systems of `Results.differences`; `verdict` says which is better where more is better."""
    made = []
    for (first, second), rows in frame.groupby(["first", "second"], sort=False) if len(frame) else ():
        shown = {
            column: rows["set"],
            "first": numbers(rows["first_value"], digits, times=times),
            "second": numbers(rows["second_value"], digits, times=times),
            "difference": numbers(rows["difference"], digits, times=times, sign=True),
            "95% interval, paired": between(rows, digits, times=times, sign=True),
        }
        shown |= {"the second is": rows["verdict"]} if verdict else {}
        made.append(Table(f"{title}: {second} (second) less {first} (first)", pd.DataFrame(shown)))
    return made


@dataclass(frozen=True)
class Probed:
    """What a probe has found: its tables, its part of the JSON, and its figures' paths without suffix."""

    tables: list[Table]
    content: dict[str, Any]
    figures: list[Path]


def write_results(
    folder: Path, name: str, title: str, tables: Sequence[Table], results: dict[str, Any], figures: Sequence[Path]
) -> None:
    """Print the tables, and write `FOLDER/name.json` and `FOLDER/name.md`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        print(table.terminal(), end="\n\n")
    write_json(folder / f"{name}.json", results)
    pictures = [f"![{path.name}]({path.name}.svg)\n" for path in figures]
    parts = [f"# {title}\n", f"`{results['command']}`\n", *(table.markdown() for table in tables), *pictures]
    write_atomic(folder / f"{name}.md", "\n".join(parts).rstrip() + "\n")
    kinds = [f"{name}.json", f"{name}.md", *(f"{path.name}.svg, .png" for path in figures)]
    print(f"{folder}: {', '.join(kinds)}")
