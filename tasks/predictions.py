"""Check, compare and pack the prediction files of the course's leaderboard.

python -m tasks.predictions check runs/multitask/predictions --data data --gold
python -m tasks.predictions check runs/a/predictions --data data --compare runs/b/predictions
python -m tasks.predictions submit runs/multitask/predictions --data data --out submission.zip
"""

import argparse
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from minbert.errors import UserError, quoted
from minbert.files import data_folder, distinct_names, replacing
from minbert.token_cache import Row
from minbert.training import cli
from tasks import metrics, readers
from tasks.record import PredictedRows, TaskScores, prediction_file
from tasks.tables import MISSING, Table

if TYPE_CHECKING:  # at run time torch would delay `--help`
    from tasks.task import Task

_SHOWN = 10  # most findings listed per file, and most ids listed per finding
_ROW = re.compile(r"(\S|\S.*\S) , (\S+) ")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_HIGHEST = 5.0  # largest similarity score; the smallest is 0
Finding = tuple[int, str]
"""An error in a prediction file: its line, counted from 1 (0 means the whole file), and what is wrong."""


@dataclass(frozen=True)
class Checked:
    """One checked prediction file: the ids and gold labels of its data file, its values by id, and its errors.

    gold: float64 [rows], NaN without a label.
    """

    path: Path
    task: "Task"
    split: str
    ids: list[str]
    gold: np.ndarray
    values: dict[str, float]
    findings: list[Finding]

    @property
    def predicted(self) -> np.ndarray:
        """The values in the order of the data file: float64 [rows]. Requires that there are no findings."""
        return np.array([self.values[id_] for id_ in self.ids], dtype=np.float64)

    @property
    def score(self) -> tuple[float | None, int]:
        """The task's score over the labelled rows, and their number. Requires that there are no findings."""
        labelled = ~np.isnan(self.gold)
        return self.task.score(self.predicted[labelled], self.gold[labelled]), int(labelled.sum())


def check(folder: Path, data: Path) -> list[Checked]:
    """Check the six prediction files in a run folder's `predictions/`, or in `folder` itself: all dev, then all test.

    Raises `UserError` if `folder` does not exist, or if a data file is missing or cannot be read.
    """
    from tasks import TASKS
    from tasks.settings import LEADERBOARD

    inner = folder / "predictions"
    inner = inner if inner.is_dir() else folder
    if not inner.is_dir():
        raise UserError(f"{folder}: no such folder")
    tasks = [TASKS[name]() for name in LEADERBOARD]
    return [
        _check(inner / prediction_file(task, split), task, split, data) for split in ("dev", "test") for task in tasks
    ]


def expected(task: "Task", split: str, data: Path) -> tuple[Path, list[str], np.ndarray]:
    """The course's data file of a split, and the ids and gold labels of the rows that need a prediction."""
    source = readers.find_file(data, "course", [getattr(task.files, split)])
    opened = readers.open_as(source, task.kind, split, classes=task.class_count)
    rows = [row for row in opened.rows if isinstance(row, Row)]
    return source, [row.id for row in rows], np.array([row.label for row in rows], dtype=np.float64)


def _check(path: Path, task: "Task", split: str, data: Path) -> Checked:
    source, ids, gold = expected(task, split, data)
    if not path.is_file():
        return Checked(path, task, split, ids, gold, {}, [(0, "no such file")])
    rows, findings = _read(path, task)
    expected_ids, lines, values = set(ids), dict[str, int](), dict[str, float]()
    for line, id_, value in rows:
        if id_ not in expected_ids:
            findings.append((line, f"id {id_!r} is not in {source.name}"))
        elif lines.setdefault(id_, line) != line:
            findings.append((line, f"duplicate id {id_!r}, first seen on line {lines[id_]}"))
        elif not np.isnan(value):
            values[id_] = value
    missing = [id_ for id_ in ids if id_ not in lines]
    if missing:
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        shown = f"{len(missing):,} id{'s' * (len(missing) > 1)} ({', '.join(missing[:_SHOWN])}{more})"
        findings.append((0, f"without a prediction: {shown} of {source.name}"))
    if not findings and [*lines] != ids:
        moved = next(lines[id_] for line, id_ in enumerate(ids, 2) if lines[id_] != line)
        findings.append((moved, f"out of order: the rows follow {source.name}"))
    return Checked(path, task, split, ids, gold, values, sorted(findings, key=lambda finding: finding[0]))


def _read(path: Path, task: "Task") -> tuple[list[tuple[int, str, float]], list[Finding]]:
    """(line, id, value) of every row with an id, and the errors found; an invalid value is NaN."""
    header, *lines = path.read_bytes().decode("utf-8", "backslashreplace").split("\n")
    rows, findings = [], []
    if header + "\n" != task.files.header or not lines:
        findings.append((1, f"the header is {quoted(header)}, not {task.files.header.rstrip(chr(10))!r}"))
    if lines and lines.pop():
        findings.append((len(lines) + 2, "the last line has no line feed at its end"))
    for line, text in enumerate(lines, start=2):
        match = _ROW.fullmatch(text)
        if match is None:
            findings.append((line, f"not '{{id}} , {{value}} ' but {quoted(text)}"))
            continue
        value, why = _value(task, match[2])
        if why:
            findings.append((line, f"value {match[2]!r} is {why}"))
        rows.append((line, match[1], value))
    return rows, findings


def _value(task: "Task", text: str) -> tuple[float, str]:
    """The value of a prediction in the task's format, or NaN and what is wrong with it."""
    if task.classes:
        allowed = {task.written(float(value)): float(value) for value in range(len(task.classes))}
        return (allowed[text], "") if text in allowed else (np.nan, f"not one of {', '.join(allowed)}")
    if not _NUMBER.fullmatch(text):
        return np.nan, "not a plain number"
    value = float(text)
    return (value, "") if 0 <= value <= _HIGHEST else (np.nan, f"not between 0 and {_HIGHEST:g}")


def demand_clean(folder: Path, files: Sequence[Checked]) -> None:
    """Raise `UserError` if any file has findings."""
    wrong = [file for file in files if file.findings]
    if wrong:
        line, why = wrong[0].findings[0]
        first = f"{wrong[0].path}{f':{line}' if line else ''}"
        raise UserError(
            f"{folder}: {len(wrong)} of {len(files)} prediction files have errors, the first at {first}: {why}"
        )


def norm(files: Sequence[Checked]) -> float | None:
    """The dev norm over the three dev files; None if any has findings. An undefined r counts as -1."""
    dev = [file for file in files if file.split == "dev"]
    if any(file.findings for file in dev):
        return None
    return metrics.dev_norm((file.task.metric, file.score[0]) for file in dev)


def scored(files: Sequence[Checked]) -> dict[str, TaskScores]:
    """Scores and rows of the dev files by task, as `tasks.compare` takes them."""
    scores = {}
    for file in files:
        if file.split == "dev":
            task, rows = file.task, PredictedRows(file.ids, [()] * len(file.ids), file.gold, file.predicted, None)
            scores[task.name] = TaskScores(task.name, task.title, task.metric, *file.score, task.classes, rows=rows)
    return scores


def table(files: Sequence[Checked], *, gold: bool = False) -> Table:
    """A row for each file, and the first findings of each as `file:line: message`.

    With `gold`, the scores of the files with gold labels that have no findings, and the dev norm.
    """
    rows, notes = [], [f"dev norm {metrics.shown(norm(files))}"] if gold else []
    for file in files:
        count, labelled = len(file.findings), not np.isnan(file.gold).all()
        state = f"{count:,} finding{'s' * (count > 1)}" if count else "ok"
        row = {"file": file.path.name, "state": state}
        row["rows with a prediction"] = f"{len(file.values):,} of {len(file.ids):,}"
        if gold:
            value, scored = file.score if labelled and not count else (None, 0)
            row["metric"] = file.task.metric
            row["labelled rows"] = f"{scored:,}" if scored else MISSING
            row["score"] = metrics.shown(value) if scored else MISSING
        rows.append(row)
        notes += [f"{file.path}{f':{line}' if line else ''}: {why}" for line, why in file.findings[:_SHOWN]]
        if count > _SHOWN:
            notes.append(f"and {count - _SHOWN:,} more in {file.path.name}")
    return Table(f"{files[0].path.parent}", pd.DataFrame(rows), tuple(notes), left=2)


def pack(files: Sequence[Checked], out: Path) -> None:
    """Write the zip file for the course, all files under `predictions/`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file.path, f"predictions/{file.path.name}")


def _parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.predictions", description=about, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{check,submit}")
    check = commands.add_parser("check", help="check the six files against the data files", allow_abbrev=False)
    submit = commands.add_parser("submit", help="check them, then pack them as the course asks", allow_abbrev=False)
    for one in (check, submit):
        one.add_argument("folder", metavar="DIR", type=Path, help="a run folder, or the folder of prediction files")
        one.add_argument("--data", metavar="DIR", default="", help="the data files (default: $DATA_DIR, else data)")
    check.add_argument("--gold", action="store_true", help="score the rows that have a gold label")
    check.add_argument("--compare", metavar="DIR", type=Path, help="compare with another submission, with intervals")
    submit.add_argument("--out", metavar="FILE.zip", type=Path, required=True, help="the zip to write")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Command line: check, then score, compare or pack; raises `UserError` if a check fails."""
    options = _parser().parse_args(arguments)
    if options.command == "submit":
        cli.demand_writable(options.out)

    from tasks import compare

    data = data_folder(options.data)
    files = check(options.folder, data)
    print(table(files, gold=options.command == "check" and options.gold).terminal())
    demand_clean(options.folder, files)
    if options.command == "submit":
        pack(files, options.out)
        print(f"\n{options.out}: {options.out.stat().st_size:,} bytes, {len(files)} files under predictions/")
    elif options.compare is not None:
        other = check(options.compare, data)
        demand_clean(options.compare, other)
        differences = compare.differences([scored(files)], [scored(other)])
        first, second = distinct_names([options.folder, options.compare])
        print("\n" + compare.table(first, second, differences).terminal())


if __name__ == "__main__":
    cli.run(main)
