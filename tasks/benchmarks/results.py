"""The results of a suite as one long table with a row for each number: tables, differences and JSON are made of it."""

import argparse
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.files import write_atomic, write_json
from tasks.benchmarks.encoders import Bank, Loaded, System, load
from tasks.intervals import Interval, interval, verdict
from tasks.tables import MISSING, Table, between, numbers, records

AVERAGE = "avg."
SYSTEM = ["encoder", "pooler"]
Pairing = tuple[System, System]
"""Two systems that are compared: (first, other)."""


class Results:
    """Rows of (encoder, pooler, measure, set, value, low, high, and more), and the resamples of some of them.

    The resamples of a measure on a set are of the same rows for every system, so their differences are paired.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def add(self, system: System, measure: str, name: str, value: float | None, draws: Any = (), **more: Any) -> None:
        """One number of a system: `measure` on the set `name`, None or NaN if undefined; `draws` [R] its resamples."""
        row = {**asdict(system), "measure": measure, "set": name, "value": defined(value)}
        self._rows.append({**row, **_bounds(interval(draws)), **more, "draws": np.asarray(draws)})

    def add_average(self, measure: str, **more: Any) -> None:
        """The mean of a measure over the sets of each system with several; undefined if one of them is."""
        for system, rows in self.frame(measure).groupby(SYSTEM, sort=False):
            if len(rows) > 1:
                draws = np.mean(rows["draws"].tolist(), axis=0)
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
        """For each (first, other) and each set of both: the other's value minus the first's, and its interval."""
        found = []
        for first, other in pairs:
            sides = [self.frame(measure, system)[["set", "value", "draws"]] for system in (first, other)]
            for row in sides[0].merge(sides[1], on="set").to_dict("records"):
                one, two, around = row["value_x"], row["value_y"], interval(row["draws_y"] - row["draws_x"])
                named = {"first": first.name, "second": other.name, "measure": measure, "set": row["set"]}
                values = {"first_value": one, "second_value": two, "difference": two - one, **_bounds(around)}
                said = verdict(around.low, around.high) if around else "no interval"
                found.append({**named, **values, "verdict": said})
        return pd.DataFrame(found)


def defined(value: float | None) -> float:
    """The value, NaN for None."""
    return math.nan if value is None else value


def _bounds(around: Interval | None) -> dict[str, float]:
    return {"low": math.nan, "high": math.nan} if around is None else asdict(around)


def as_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows for JSON: an undefined value or bound of an interval is None, any other empty cell is left out."""
    kept = {"value", "low", "high", "difference"}
    rows = records(frame.drop(columns="draws", errors="ignore"))
    return [{key: cell for key, cell in row.items() if cell is not None or key in kept} for row in rows]


def content(found: Results, differences: pd.DataFrame | None = None) -> dict[str, Any]:
    """Results and their differences for JSON."""
    apart = {} if differences is None else {"differences": as_json(differences)}
    return {"results": as_json(found.frame()), **apart}


def wide(frame: pd.DataFrame, columns: str, digits: int = 2, *, times: float = 1.0) -> pd.DataFrame:
    """A row of strings for each system, and a column for each value of `columns`, in their order of appearance."""
    shown = frame.assign(shown=numbers(frame["value"], digits, times=times))
    order = shown[columns].unique().tolist()
    made = shown.pivot_table(index=SYSTEM, columns=columns, values="shown", aggfunc="first", sort=False)
    return made[order].rename(columns=str).fillna(MISSING).reset_index()


def difference_tables(
    title: str, frame: pd.DataFrame, *, digits: int = 2, times: float = 1.0, verdict: bool = True, column: str = "set"
) -> list[Table]:
    """A table for each two systems of `Results.differences`; `verdict` adds a conclusion (higher is better)."""
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
        made.append(Table(f"{title}: {second} (second) minus {first} (first)", pd.DataFrame(shown)))
    return made


@dataclass
class Suite:
    """A run of a suite: its flags, data folder and encoders, and the tables, JSON fields and figures that it makes.

    `figures` are paths without a suffix.
    """

    given: argparse.Namespace
    data: Path | None
    loaded: list[Loaded]
    tables: list[Table] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)
    figures: list[Path] = field(default_factory=list)

    @classmethod
    def open(cls, given: argparse.Namespace, data: Path | None) -> "Suite":
        """Load the encoders that the flags name."""
        return cls(given, data, load(given))

    @property
    def systems(self) -> list[System]:
        """Every encoder with each of its poolers, in order."""
        return [system for one in self.loaded for system in one.systems]

    @property
    def pairings(self) -> list[Pairing]:
        """(first, other) for every encoder after the first: by common poolers, or by the first pooler of each."""
        first, *others = (one.systems for one in self.loaded)
        shared = [[(a, b) for a in first for b in other if a.pooler == b.pooler] for other in others]
        return [pair for same, other in zip(shared, others, strict=True) for pair in same or [(first[0], other[0])]]

    @property
    def draw(self) -> dict[str, int]:
        """The seed and the number of resamples of every interval, as keyword arguments."""
        return {"seed": self.given.seed, "resamples": self.given.resamples}

    @property
    def out(self) -> Path:
        """The folder of the results."""
        return self.given.out or Path("runs/benchmarks") / self.loaded[0].name.strip("/.").replace("/", "-")

    def bank(self, texts: Iterable[str]) -> Bank:
        """The vectors of some texts by every system."""
        bank = Bank(texts)
        for one in self.loaded:
            bank.add(one)
        return bank

    def write(self, title: str) -> None:
        """Print the tables, and write `OUT/SUITE.json` and `OUT/SUITE.md`, each whole or not at all."""
        name = self.given.suite.removesuffix("_suite")
        command = shlex.join(["python", "-m", f"tasks.benchmarks.{self.given.suite}", *self.given.words])
        self.out.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            print(table.terminal(), end="\n\n")
        about = {
            "suite": name,
            "command": command,
            "data": None if self.data is None else str(self.data),
            "precision": self.loaded[0].encoder.precision,
            **self.draw,
            "encoders": {one.name: str(one.folder) for one in self.loaded},
        }
        write_json(self.out / f"{name}.json", about | self.content)
        pictures = [f"![{path.name}]({path.name}.svg)\n" for path in self.figures]
        parts = [f"# {title}\n", f"`{command}`\n", *(table.markdown() for table in self.tables), *pictures]
        write_atomic(self.out / f"{name}.md", "\n".join(parts).rstrip() + "\n")
        kinds = [f"{name}.json", f"{name}.md", *(f"{path.name}.svg, .png" for path in self.figures)]
        print(f"{self.out}: {', '.join(kinds)}")
