"""The course leaderboard's prediction files, byte for byte."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import UserError
from minbert.files import write_atomic
from tasks.examples import Examples
from tasks.settings import MultitaskSettings
from tasks.task import Task

Paths = dict[tuple[str, str], Path]
"""(task, split) -> where its prediction file goes."""


def paths(tasks: Sequence[Task[Any]], settings: MultitaskSettings) -> Paths:
    """Where the settings send each prediction file; `UserError` where no file can be written."""
    found = {}
    for task in tasks:
        for split in ("dev", "test"):
            given = getattr(settings, f"{task.files.short}_{split}_out", "")
            usual = Path(settings.run_dir) / "predictions" / file_name(task, split)
            path = found[task.name, split] = Path(given).absolute() if given else usual
            if given and (path.is_dir() or not os.access(path.parent, os.W_OK)):
                raise UserError(f"--{task.files.short}-{split}-out {given}: no file can be written there")
    return found


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
