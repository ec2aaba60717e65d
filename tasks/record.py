"""A run's predictions on the development sets, row by row: the input of the report page and of comparisons.

`RUN/dev/{task}.jsonl` holds one JSON object per line, in file order: `id`, `texts`, `gold` (null for a row without a
label), `predicted`, and `probabilities` of the classes (null for a task without classes).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from minbert.errors import UserError
from minbert.files import write_atomic

if TYPE_CHECKING:
    from minbert.encode import Encoder
    from tasks.examples import Examples, Pair
    from tasks.task import Task


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
    rows: Rows | None = None
    cosines: bool = False

    @property
    def shown(self) -> str:
        """Title and metric, as in tables of several tasks."""
        return f"{self.title}, {self.metric}"


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


class _Line(BaseModel):
    """A line of a file of dev rows."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    id: str
    texts: tuple[str, ...]
    gold: float | None
    predicted: float
    probabilities: Annotated[tuple[float, ...], Field(min_length=1)] | None


def write_rows(run: Path, name: str, rows: Rows) -> Path:
    """Write `RUN/dev/{name}.jsonl` atomically and return its path; numbers have six digits."""
    path = run / "dev" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    gold = [None if np.isnan(label) else label for label in rows.gold.tolist()]
    predicted = [round(float(value), 6) for value in rows.predicted]
    shares: list[Any] = [None] * len(rows)
    if rows.probabilities is not None:
        shares = [[round(share, 6) for share in row] for row in rows.probabilities.tolist()]
    lines = (
        dict(zip(_Line.model_fields, row, strict=True))
        for row in zip(rows.ids, rows.texts, gold, predicted, shares, strict=True)
    )
    # ASCII, as some readers treat U+2028 as a line end
    write_atomic(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
    return path


def read_rows(path: Path) -> Rows:
    """Read a file written by `write_rows`; raises `UserError` with file, line and field if it is not one."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(_Line.model_validate_json(line))
        except ValidationError as error:
            one = error.errors()[0]
            raise UserError(f"{path}:{number}: {'.'.join(map(str, one['loc'])) or 'the line'}: {one['msg']}") from error
    widths = {len(row.probabilities or ()) for row in found}
    if len(widths) > 1:
        raise UserError(f"{path}: some rows have more probabilities than others")
    return Rows(
        [row.id for row in found],
        [row.texts for row in found],
        np.array([np.nan if row.gold is None else row.gold for row in found], dtype=np.float64),
        np.array([row.predicted for row in found], dtype=np.float64),
        np.array([row.probabilities for row in found], dtype=np.float64) if widths - {0} else None,
    )
