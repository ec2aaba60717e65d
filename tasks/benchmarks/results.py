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
from tasks.benchmarks import contamination
from tasks.benchmarks.encoders import Bank, Loaded, System
from tasks.intervals import Interval, interval, verdict
from tasks.tables import Table, between, numbers, records

AVERAGE = "avg."
SYSTEM = ["encoder", "pooler"]
Pairing = tuple[System, System]
"""Two systems that are compared: (first, other)."""


class Results:
    """Rows of (encoder, pooler, measure, set, value, low, high, and more), and the bootstrap samples of some of them.

    The samples of a measure on a set are of the same rows for every system, so their differences are paired.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def add(self, system: System, measure: str, name: str, value: float | None, samples: Any = (), **more: Any) -> None:
        """One number of a system: `measure` on the set `name`, None if undefined; `samples` [R] is its bootstrap."""
        row = {**asdict(system), "measure": measure, "set": name, "value": nan_if_none(value)}
        self._rows.append({**row, **_bounds(interval(samples)), **more, "samples": np.asarray(samples)})

    def add_average(self, measure: str) -> None:
        """The mean of a measure over the sets of each system with several; undefined if one of them is."""
        for system, rows in self.frame(measure).groupby(SYSTEM, sort=False):
            if len(rows) > 1:
                samples = np.mean(rows["samples"].tolist(), axis=0)
                self.add(System(*system), measure, AVERAGE, rows["value"].mean(skipna=False), samples)

    def frame(self, measure: str = "", system: System | None = None) -> pd.DataFrame:
        """All rows, or those of one measure, one system, or both."""
        frame = pd.DataFrame(self._rows)
        if measure:
            frame = frame[frame["measure"] == measure]
        if system is not None:
            frame = frame[(frame["encoder"] == system.encoder) & (frame["pooler"] == system.pooler)]
        return frame

    def differences(self, pairs: Sequence[Pairing], measure: str) -> pd.DataFrame:
        """For each (first, other) and each set of both: the other's value minus the first's, and its interval."""
        rows = []
        for first, other in pairs:
            sides = [self.frame(measure, system)[["set", "value", "samples"]] for system in (first, other)]
            for row in sides[0].merge(sides[1], on="set").to_dict("records"):
                one, two, ends = row["value_x"], row["value_y"], interval(row["samples_y"] - row["samples_x"])
                names = {"first": first.name, "second": other.name, "measure": measure, "set": row["set"]}
                values = {"first_value": one, "second_value": two, "difference": two - one, **_bounds(ends)}
                rows.append({**names, **values, "verdict": verdict(ends.low, ends.high) if ends else "no interval"})
        return pd.DataFrame(rows)


def nan_if_none(value: float | None) -> float:
    """The value, NaN for None."""
    return math.nan if value is None else value


def _bounds(ends: Interval | None) -> dict[str, float]:
    return {"low": math.nan, "high": math.nan} if ends is None else ends._asdict()


def as_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows for JSON: an undefined value or bound of an interval is None, any other empty cell is left out."""
    kept = {"value", "low", "high", "difference"}
    rows = records(frame.drop(columns="samples", errors="ignore"))
    return [{key: cell for key, cell in row.items() if cell is not None or key in kept} for row in rows]


def content(results: Results, differences: pd.DataFrame | None = None) -> dict[str, Any]:
    """Results and their differences for JSON."""
    compared = {} if differences is None else {"differences": as_json(differences)}
    return {"results": as_json(results.frame()), **compared}


def difference_tables(
    title: str, frame: pd.DataFrame, *, digits: int = 2, times: float = 1.0, verdict: bool = True, column: str = "set"
) -> list[Table]:
    """A table for each two systems of `Results.differences`; `verdict` adds a conclusion (higher is better)."""
    tables = []
    for (first, second), rows in frame.groupby(["first", "second"], sort=False) if len(frame) else ():
        columns = {
            column: rows["set"],
            "first": numbers(rows["first_value"], digits, times=times),
            "second": numbers(rows["second_value"], digits, times=times),
            "difference": numbers(rows["difference"], digits, times=times, sign=True),
            "95% interval, paired": between(rows, digits, times=times, sign=True),
        }
        columns |= {"the second is": rows["verdict"]} if verdict else {}
        tables.append(Table(f"{title}: {second} (second) minus {first} (first)", pd.DataFrame(columns)))
    return tables


@dataclass
class Suite:
    """A run of a suite: its flags, data folder and encoders, and the tables, JSON fields and figures that it makes.

    `figures` are paths without a suffix.
    """

    options: argparse.Namespace
    data: Path | None
    loaded: list[Loaded]
    tables: list[Table] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)
    figures: list[Path] = field(default_factory=list)

    @property
    def systems(self) -> list[System]:
        """Every encoder with each of its poolers, in order."""
        return [system for one in self.loaded for system in one.systems]

    @property
    def pairings(self) -> list[Pairing]:
        """(first, other) for every encoder after the first, pooler by pooler."""
        first, *others = (one.systems for one in self.loaded)
        return [pair for other in others for pair in zip(first, other)]

    @property
    def bootstrap(self) -> dict[str, int]:
        """The seed and the number of resamples of every interval, as keyword arguments."""
        return {"seed": self.options.seed, "resamples": self.options.resamples}

    @property
    def out(self) -> Path:
        """The folder of the results."""
        return self.options.out or Path("runs/benchmarks") / str(self.options.encoder[0]).strip("/.").replace("/", "-")

    def bank(self, texts: Iterable[str]) -> Bank:
        """The vectors of some texts by every system."""
        bank = Bank(texts)
        for one in self.loaded:
            bank.add(one)
        return bank

    def check_contamination(self, texts: contamination.ScoredTexts) -> None:
        """Count the scored rows that each encoder has been trained on, as tables and in the JSON."""
        counts = [contamination.check(one.name, one.folder, texts) for one in self.loaded]
        self.content["contamination"] = [
            {**one._asdict(), "files": [file._asdict() for file in one.files], "counts": records(one.counts)}
            for one in counts
        ]
        self.tables += [contamination.table(one) for one in counts]

    def write(self, title: str) -> None:
        """Write `OUT/SUITE.json` and `OUT/SUITE.md`, each whole or not at all, and print the tables."""
        name = self.options.suite.removesuffix("_suite")
        command = shlex.join(["python", "-m", f"tasks.benchmarks.{self.options.suite}", *self.options.words])
        self.out.mkdir(parents=True, exist_ok=True)
        head = {
            "suite": name,
            "command": command,
            "data": None if self.data is None else str(self.data),
            "precision": self.loaded[0].encoder.precision,
            **self.bootstrap,
            "encoders": {one.name: str(one.folder) for one in self.loaded},
        }
        write_json(self.out / f"{name}.json", head | self.content)
        pictures = [f"![{path.name}]({path.name}.svg)\n" for path in self.figures]
        parts = [f"# {title}\n", f"`{command}`\n", *(table.markdown() for table in self.tables), *pictures]
        write_atomic(self.out / f"{name}.md", "\n".join(parts).rstrip() + "\n")
        for table in self.tables:
            print(table.terminal(), end="\n\n")
        files = [f"{name}.json", f"{name}.md", *(f"{path.name}.svg" for path in self.figures)]
        print(f"{self.out}: {', '.join(files)}")
