"""The course leaderboard's prediction files, byte for byte."""

from pathlib import Path
from typing import Any

import numpy as np

from minbert.files import write_atomic
from tasks.examples import Examples
from tasks.task import Task


def content(task: Task[Any], examples: Examples, predicted: np.ndarray) -> str:
    """One line for each row that was kept, in file order: `{id} , {value} \\n` under the task's header."""
    assert len(predicted) == len(examples)
    rows = (f"{examples.cache.row_id(row)} , {task.written(value)} \n" for row, value in enumerate(predicted.tolist()))
    return task.files.header + "".join(rows)


def write(path: Path, task: Task[Any], examples: Examples, predicted: np.ndarray) -> None:
    """Write a prediction file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content(task, examples, predicted))


def file_name(task: Task[Any], split: str) -> str:
    """Such as `para-dev-output.csv`."""
    return f"{task.files.short}-{split}-output.csv"
