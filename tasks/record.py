"""A run's predictions on the development sets, row by row: the input of the report page and of comparisons.

`RUN/dev/{task}.jsonl` holds one JSON object per line, in file order: `id`, `texts`, `gold` (null for a row without a
label), `predicted`, and `probabilities` of the classes (null for a task without classes).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minbert.errors import UserError
from minbert.files import write_atomic

if TYPE_CHECKING:
    from minbert.encode import Encoder
    from tasks.examples import Examples, Pair
    from tasks.task import Task

_DIGITS = 6


@dataclass(frozen=True)
class Rows:
    """The dev rows of one task, in file order.

    gold: float64 [rows], NaN without a label. predicted: float64 [rows].
    probabilities: float64 [rows, classes], or None for a task without classes.
    """

    ids: list[str]
    texts: Sequence[tuple[str, ...]]
    gold: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None

    def __len__(self) -> int:
        return len(self.ids)

    def labelled(self) -> "Rows":
        """The rows with a gold label; only these are scored."""
        return self.at(np.flatnonzero(~np.isnan(self.gold)))

    def at(self, places: np.ndarray) -> "Rows":
        """The rows at the given indices."""
        chosen = places.tolist()
        probabilities = None if self.probabilities is None else self.probabilities[places]
        ids, texts = [self.ids[row] for row in chosen], [self.texts[row] for row in chosen]
        return Rows(ids, texts, self.gold[places], self.predicted[places], probabilities)


@dataclass(frozen=True)
class TaskScores:
    """One task's dev score, and its dev rows if they were recorded. `score` is None if it is undefined."""

    name: str
    title: str
    metric: str
    score: float | None
    count: int
    classes: tuple[str, ...] = ()
    per_class: tuple[dict[str, Any], ...] = ()
    before: float | None = None
    rows: Rows | None = None


def task_rows(task: "Task", examples: "Examples", outputs: np.ndarray) -> Rows:
    """The rows of a development set, from the head's outputs: float32 [rows] or [rows, C]."""
    cache, places = examples.cache, range(len(examples))
    texts = [tuple(cache.text(row, column) for column in range(cache.columns)) for row in places]
    gold = np.asarray(examples.labels, dtype=np.float64)
    shares = task.probabilities(outputs)
    return Rows([cache.row_id(row) for row in places], texts, gold, task.predict(outputs), shares)


def cosine_rows(encoder: "Encoder", pairs: "Pair") -> Rows:
    """Dev rows of stage one: scored pairs, predicted by the cosine similarity of their sentence embeddings."""
    from tasks.contrastive.evaluation import unit

    encoder.model.eval()
    count, cache = len(pairs), pairs.cache
    inputs = [pairs.sentence(row, column) for column in (0, 1) for row in range(count)]
    first, second = np.split(unit(encoder.encode_ids(inputs)), 2)
    texts = [(cache.text(row, 0), cache.text(row, 1)) for row in range(count)]
    ids = [cache.row_id(row) for row in range(count)]
    return Rows(ids, texts, np.asarray(pairs.labels), (first * second).sum(1), None)


def write_rows(run: Path, name: str, rows: Rows) -> Path:
    """Write `RUN/dev/{name}.jsonl` atomically and return its path."""
    path = run / "dev" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(_line(rows, row) + "\n" for row in range(len(rows))))
    return path


def _line(rows: Rows, row: int) -> str:
    gold, shares = float(rows.gold[row]), rows.probabilities
    fields = {
        "id": rows.ids[row],
        "texts": list(rows.texts[row]),
        "gold": None if np.isnan(gold) else gold,
        "predicted": round(float(rows.predicted[row]), _DIGITS),
        "probabilities": None if shares is None else [round(float(share), _DIGITS) for share in shares[row]],
    }
    return json.dumps(fields, allow_nan=False)  # ASCII, as some readers treat U+2028 as a line end


def read_rows(path: Path) -> Rows:
    """Read a file written by `write_rows`; raises `UserError` with file and line if it is not one."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file in UTF-8: {error}") from error
    found = [_row(path, number, line) for number, line in enumerate(lines, start=1) if line]
    widths = {None if row["probabilities"] is None else len(row["probabilities"]) for row in found}
    if len(widths) > 1:
        raise UserError(f"{path}: some rows have more probabilities than others")
    shares = np.array([row["probabilities"] for row in found], dtype=np.float64) if widths - {None} else None
    return Rows(
        [row["id"] for row in found],
        [tuple(row["texts"]) for row in found],
        np.array([np.nan if row["gold"] is None else row["gold"] for row in found], dtype=np.float64),
        np.array([row["predicted"] for row in found], dtype=np.float64),
        shares,
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_number, value))


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "id": lambda value: isinstance(value, str),
    "texts": lambda value: isinstance(value, list) and all(isinstance(text, str) for text in value),
    "gold": lambda value: value is None or _number(value),
    "predicted": _number,
    "probabilities": lambda value: value is None or _numbers(value),
}


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{path}:{number}: not a JSON object: {error}") from error
    for field, holds in _FIELDS.items():
        if not isinstance(row, dict) or field not in row or not holds(row[field]):
            raise UserError(f"{path}:{number}: {field}: missing, or of the wrong type")
    return row


def paths(run: Path) -> Iterator[tuple[str, Path]]:
    """(task, file) for each `.jsonl` file in the run's `dev` folder, sorted by file name."""
    for path in sorted((run / "dev").glob("*.jsonl")):
        yield path.stem, path
