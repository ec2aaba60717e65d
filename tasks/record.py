"""What a finished run leaves for others to read: prediction files, and its predictions row by row.

`RUN/dev/{task}.jsonl` holds one JSON object per line, in file order: `id`, `texts`, `gold` (null for a row without a
label), `predicted`, and `probabilities` of the classes (null for a task without classes).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import UserError
from minbert.files import write_atomic
from tasks.examples import Examples
from tasks.task import Task


@dataclass(frozen=True)
class PredictedRows:
    """The rows of a dev or test set of one task, in file order.

    gold: float64 [rows], NaN without a label. predicted: float64 [rows].
    probabilities: float64 [rows, classes], or None for a task without classes.
    """

    ids: list[str]
    texts: Sequence[tuple[str, ...]]
    gold: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None
    source: Path | None = None  # the data file

    def __len__(self) -> int:
        return len(self.ids)

    def labelled(self) -> "PredictedRows":
        """The rows with a gold label; only these are scored."""
        return self.at(np.flatnonzero(~np.isnan(self.gold)))

    def at(self, indices: np.ndarray) -> "PredictedRows":
        """The rows at some indices."""
        return PredictedRows(
            ids=[self.ids[index] for index in indices],
            texts=[self.texts[index] for index in indices],
            gold=self.gold[indices],
            predicted=self.predicted[indices],
            probabilities=None if self.probabilities is None else self.probabilities[indices],
        )


Predictions = Mapping[tuple[str, str], PredictedRows]
"""(task, split) -> its rows with their predictions."""


@dataclass(frozen=True)
class TaskScores:
    """One task's dev score, and its dev rows if they were recorded. `score` is None if it is undefined.

    `cosines` marks predictions that are cosines, which have another scale than gold (stage one).
    """

    name: str
    title: str
    metric: str
    score: float | None
    count: int
    classes: tuple[str, ...] = ()
    per_class: tuple[dict[str, Any], ...] = ()
    before: float | None = None
    rows: PredictedRows | None = None
    cosines: bool = False
    scale: tuple[float, float] = (0.0, 5.0)  # of the scores of a task without classes

    @property
    def labelled_rows(self) -> PredictedRows | None:
        """The dev rows with a gold label; None if there are none, or none were recorded."""
        if self.rows is None:
            return None
        rows = self.rows.labelled()
        return rows if len(rows) else None

    @property
    def tolerance(self) -> float:
        """How far a score may be from gold: a fifth of the scale, one point of five."""
        return (self.scale[1] - self.scale[0]) / 5

    @property
    def label(self) -> str:
        """Title and metric, as in tables of several tasks."""
        return f"{self.title}, {self.metric}"


def rows_of(examples: Examples, predicted: np.ndarray, probabilities: np.ndarray | None = None) -> PredictedRows:
    """The rows of a dev or test set with their predictions, and the probabilities of their classes.

    Raises `UserError` for numbers that are not finite.
    """
    cache = examples.cache
    for values in (predicted, probabilities):
        if values is not None and not np.isfinite(values).all():
            raise UserError(
                f"{cache.source}: its predictions are not finite; a smaller --lr or --precision fp32 may help"
            )
    texts = [row.texts for row in cache.rows()]
    gold = np.asarray(examples.labels, dtype=np.float64)
    return PredictedRows(list(cache.row_ids), texts, gold, predicted, probabilities, cache.source)


def prediction_file(task: Task, split: str) -> str:
    """Name of a prediction file, such as `para-dev-output.csv`."""
    return f"{task.files.flag_prefix}-{split}-output.{task.prediction_ending}"


def save(
    folder: Path, tasks: Mapping[str, Task], predictions: Predictions, paths: Mapping[tuple[str, str], Path]
) -> None:
    """Write the prediction files to `paths`, in each task's own form, and the dev rows to `folder`."""
    for (name, split), rows in predictions.items():
        path = paths[name, split]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = tasks[name].prediction_text(rows.ids, rows.predicted, rows.probabilities, rows.source, split)
        write_atomic(path, text)
        if split == "dev":
            write_rows(folder, name, rows)


def file_name(dev_set: str) -> str:
    """A dev set's name in the metrics and the files of a run."""
    return dev_set.lower().replace("-", "_")


def write_rows(run: Path, name: str, rows: PredictedRows) -> None:
    """Write `RUN/dev/{name}.jsonl` atomically; numbers have six digits."""
    path = run / "dev" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for index in range(len(rows)):
        gold = float(rows.gold[index])
        probabilities = None
        if rows.probabilities is not None:
            probabilities = [round(value, 6) for value in rows.probabilities[index].tolist()]
        row = {
            "id": rows.ids[index],
            "texts": rows.texts[index],
            "gold": None if np.isnan(gold) else gold,
            "predicted": round(float(rows.predicted[index]), 6),
            "probabilities": probabilities,
        }
        # ASCII, as some readers treat U+2028 as a line end
        lines.append(json.dumps(row, allow_nan=False) + "\n")
    write_atomic(path, "".join(lines))


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_rows(path: Path) -> PredictedRows:
    """Read a file written by `write_rows`."""
    rows = json_lines(path)
    probabilities = None
    if rows and rows[0]["probabilities"] is not None:
        probabilities = np.array([row["probabilities"] for row in rows], dtype=np.float64)
    return PredictedRows(
        ids=[row["id"] for row in rows],
        texts=[tuple(row["texts"]) for row in rows],
        gold=np.array([row["gold"] for row in rows], dtype=np.float64),
        predicted=np.array([row["predicted"] for row in rows], dtype=np.float64),
        probabilities=probabilities,
    )
