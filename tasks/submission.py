"""Check a folder of prediction files against the data files: each id once, valid values, scores on gold labels."""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import UserError
from minbert.files import write_atomic
from minbert.token_cache import Row
from tasks import readers
from tasks.record import Rows, TaskScores
from tasks.registry import TASKS
from tasks.settings import LEADERBOARD
from tasks.task import Task

SPLITS = ("dev", "test")
_SHOWN = 10  # most findings listed per file, and most ids listed per finding
_ROW = re.compile(r"(\S|\S.*\S) , (\S+) ")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_HIGHEST = 5.0  # largest similarity score; the smallest is 0


@dataclass(frozen=True)
class Finding:
    """An error in a prediction file, at a line counted from 1; line 0 means the whole file."""

    line: int
    why: str


@dataclass(frozen=True)
class Expected:
    """The rows of a data file that need a prediction, in file order. gold: float64 [rows], NaN without a label."""

    source: Path
    ids: list[str]
    gold: np.ndarray


@dataclass(frozen=True)
class Checked:
    """One checked prediction file: the rows expected, its values by id, and the errors found."""

    path: Path
    task: Task[Any]
    split: str
    expected: Expected
    values: dict[str, float]
    findings: tuple[Finding, ...]

    @property
    def predicted(self) -> np.ndarray:
        """The values in the order of the data file: float64 [rows]. Requires that there are no findings."""
        return np.array([self.values[id_] for id_ in self.expected.ids], dtype=np.float64)


def check(folder: Path, data: Path) -> list[Checked]:
    """Check the six prediction files in a run folder's `predictions/`, or in `folder` itself: all dev, then all test.

    Raises `UserError` if `folder` does not exist, or if a data file is missing or cannot be read.
    """
    inner = folder / "predictions"
    place = inner if inner.is_dir() else folder
    if not place.is_dir():
        raise UserError(f"{folder}: no such folder")
    tasks = [TASKS[name]() for name in LEADERBOARD]
    return [
        _check(place / f"{task.files.short}-{split}-output.csv", task, split, data)
        for split in SPLITS
        for task in tasks
    ]


def expected(task: Task[Any], split: str, data: Path) -> Expected:
    """The rows of the course's data file of a split that need a prediction."""
    source = readers.find(data, "course", [getattr(task.files, split)])
    opened = readers.open_as(source, task.kind, split, classes=task.class_count)
    rows = [row for row in opened.rows if isinstance(row, Row)]
    return Expected(source, [row.id for row in rows], np.array([row.label for row in rows], dtype=np.float64))


def _check(path: Path, task: Task[Any], split: str, data: Path) -> Checked:
    wanted = expected(task, split, data)
    if not path.is_file():
        return Checked(path, task, split, wanted, {}, (Finding(0, "no such file"),))
    rows, found = _read(path, task)
    known, lines, values = set(wanted.ids), dict[str, int](), dict[str, float]()
    for line, id_, value in rows:
        if id_ not in known:
            near = f"; it has {id_.lower()!r}" if id_.lower() in known else ""
            found.append(Finding(line, f"id {id_!r} is not in {wanted.source.name}{near}"))
        elif lines.setdefault(id_, line) != line:
            found.append(Finding(line, f"duplicate id {id_!r}, first seen on line {lines[id_]}"))
        elif value is not None:
            values[id_] = value
    missing = [id_ for id_ in wanted.ids if id_ not in lines]
    if missing:
        found.append(Finding(0, f"without a prediction: {_listed(missing)} of {wanted.source.name}"))
    if not found:
        moved = next((lines[id_] for at, id_ in enumerate(wanted.ids, 2) if lines[id_] != at), None)
        found += [Finding(moved, f"out of order: the rows follow {wanted.source.name}")] if moved else []
    return Checked(path, task, split, wanted, values, tuple(sorted(found, key=lambda one: one.line)))


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"{len(ids):,} id{'s' * (len(ids) > 1)} ({', '.join(ids[:_SHOWN])}{more})"


def _read(path: Path, task: Task[Any]) -> tuple[list[tuple[int, str, float | None]], list[Finding]]:
    """(line, id, value) of every row with an id, and the errors found; an invalid value is None."""
    header, *lines = path.read_bytes().split(b"\n")
    rows: list[tuple[int, str, float | None]] = []
    found = []
    if header + b"\n" != task.files.header.encode() or not lines:
        found.append(Finding(1, f"the header is {_shown(header)}, not {task.files.header.rstrip(chr(10))!r}"))
    if lines and lines.pop():
        found.append(Finding(len(lines) + 2, "the last line has no line feed at its end"))
    for line, raw in enumerate(lines, start=2):
        text = raw.decode("utf-8", "replace")
        match = _ROW.fullmatch(text)
        if match is None or "\ufffd" in text:
            ending = "; it ends in a carriage return" if raw.endswith(b"\r") else ""
            found.append(Finding(line, f"not '{{id}} , {{value}} ' but {_shown(raw)}{ending}"))
            continue
        value = _value(task, match[2])
        if isinstance(value, str):
            found.append(Finding(line, value))
        rows.append((line, match[1], None if isinstance(value, str) else value))
    return rows, found


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _value(task: Task[Any], text: str) -> float | str:
    """The value of a prediction in the task's format, or an error message."""
    if task.classes:
        allowed = {task.written(float(value)): float(value) for value in range(len(task.classes))}
        return allowed.get(text, f"value {text!r} is not one of {', '.join(allowed)}")
    if not _NUMBER.fullmatch(text):
        return f"value {text!r} is not a plain number"
    value = float(text)
    return value if 0 <= value <= _HIGHEST else f"value {text!r} is not between 0 and {_HIGHEST:g}"


def as_text(files: Sequence[Checked]) -> str:
    """One line per file, followed by its first findings as `file:line: message`."""
    return "\n".join(line for file in files for line in _said(file))


def _said(file: Checked) -> Iterator[str]:
    count = len(file.findings)
    state = f"{count:,} finding{'s' * (count > 1)}" if count else "ok"
    yield f"{file.path.name:<20} {len(file.values):>7,} of {len(file.expected.ids):,} rows  {state}"
    for one in file.findings[:_SHOWN]:
        yield f"  {file.path}{f':{one.line}' if one.line else ''}: {one.why}"
    if count > _SHOWN:
        yield f"  and {count - _SHOWN:,} more in this file"


def demand_clean(folder: Path, files: Sequence[Checked]) -> None:
    """Raise `UserError` if any file has findings."""
    wrong = [file for file in files if file.findings]
    if wrong:
        first = wrong[0].findings[0]
        place = f"{wrong[0].path}{f':{first.line}' if first.line else ''}"
        raise UserError(
            f"{folder}: {len(wrong)} of {len(files)} prediction files have errors, the first at {place}: {first.why}"
        )


def score(file: Checked) -> tuple[float | None, int]:
    """The task's score over the labelled rows, and their number. Requires that there are no findings."""
    labelled = ~np.isnan(file.expected.gold)
    return file.task.score(file.predicted[labelled], file.expected.gold[labelled]), int(labelled.sum())


def norm(files: Sequence[Checked]) -> float | None:
    """The dev norm over the dev files; None if any is missing or has findings. An undefined r counts as 0."""
    scored = {file.task.name: file for file in files if file.split == "dev" and not file.findings}
    if scored.keys() != set(LEADERBOARD):
        return None
    return sum(file.task.normalised(score(file)[0]) for file in scored.values()) / len(scored)


def scored(files: Sequence[Checked]) -> dict[str, TaskScores]:
    """Scores and rows of the dev files by task, as `tasks.compare` takes them."""
    found = {}
    for file in files:
        if file.split == "dev":
            task, ids = file.task, file.expected.ids
            rows = Rows(ids, [()] * len(ids), file.expected.gold, file.predicted, None)
            classes = tuple(task.classes)
            found[task.name] = TaskScores(task.name, task.title, task.metric, *score(file), classes, rows=rows)
    return found


def scores_text(files: Sequence[Checked]) -> str:
    """Scores of all files with gold labels (not scored if there are findings), and the dev norm."""
    lines = []
    for file in files:
        if np.isnan(file.expected.gold).all():
            continue
        name = f"{file.path.name:<20} {file.task.metric:<12}"
        if file.findings:
            lines.append(f"{name} not scored: see its findings")
            continue
        value, rows = score(file)
        lines.append(f"{name} {'undefined' if value is None else f'{value:.4f}'} on {rows:,} labelled rows")
    overall = norm(files)
    return "\n".join([*lines, f"{'dev norm':<33} {'undefined' if overall is None else f'{overall:.4f}'}"])


def pack(files: Sequence[Checked], out: Path) -> None:
    """Write the zip file for the course, all files under `predictions/`; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(files, key=lambda file: file.path.name):
            entry = zipfile.ZipInfo(f"predictions/{file.path.name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(entry, file.path.read_bytes())
    write_atomic(out, buffer.getvalue())
