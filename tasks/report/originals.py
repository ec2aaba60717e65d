"""The texts of a run's data files as they were published: the course's preprocessing lower-cases what a run records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.token_cache import Row
from tasks.report.collect import Run

_COLUMNS = {"single": ("sentence",), "pair-class": ("sentence1", "sentence2"), "pair-score": ("sentence1", "sentence2")}


@dataclass(frozen=True)
class Original:
    """A row of a data file: its id, its texts as published but for white space, and its label, NaN without one."""

    id: str
    texts: tuple[str, ...]
    label: float


def rows(run: Run, task: str, split: str, data: Path | None = None) -> list[Original]:
    """The rows that a run kept of a data file, in file order.

    The file is the one in the run's manifest; where it is not there any more, one of its name in `data` or
    `data/course`. `UserError` where neither is there, or where the file is not the one that the run read.
    """
    from tasks import readers

    account = run.manifest.get("data", {}).get(split, {}).get(task)
    if not isinstance(account, dict) or not {"file", "sha256"} <= account.keys():
        raise UserError(f"{run.folder / 'manifest.json'}: names no {split} file of {task}")
    path = _find(Path(account["file"]), data)
    if readers.digest(path) != account["sha256"]:
        raise UserError(f"{path}: not the file that {run.folder} was made with (its hash is not the recorded one)")
    return _read(run, task, split, path)


def _find(path: Path, data: Path | None) -> Path:
    others = [data / "course" / path.name, data / path.name] if data is not None else []
    for one in (*others, path):
        if one.is_file():
            return one
    raise UserError(f"{path}: not there any more; give the folder that holds {path.name} with --data DIR")


def _read(run: Run, task: str, split: str, path: Path) -> list[Original]:
    from tasks import readers
    from tasks.readers.splitter import split_records
    from tasks.registry import TASKS
    from tasks.settings import MultitaskSettings

    known = TASKS[task]()
    settings = {name: run.settings[name] for name in ("tasks", "columns") if name in run.settings}
    columns = MultitaskSettings(**settings).columns_of(task)
    opened = readers.open_as(path, known.kind, split, columns, classes=known.class_count)
    kept = [row for row in opened.rows if isinstance(row, Row)]
    published: dict[str, tuple[str, ...]] = {}
    if opened.layout == "course":  # the one layout whose reader changes the letters
        cells: Any = split_records(path, ("id", *_COLUMNS[known.kind]))
        published = {row[0].strip().lower(): tuple(" ".join(text.split()) for text in row[1:]) for _, row in cells}
    return [Original(row.id, published.get(row.id, row.texts), row.label) for row in kept]
