"""Pairs drawn for annotation with CBCL's eight categories of errors, on one self-contained page.

CBCL (section 6.1) draws 100 failed dev pairs, 100 of train and 100 of dev, and treats the latter as if they had failed.
"""

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from minbert.token_cache import Row
from tasks.record import TaskScores
from tasks.report import measures, page
from tasks.report.collect import Run, read_run

FORMAT = "minbert error annotation"
GROUPS = {"failed": "failed dev pairs", "train": "train pairs", "dev": "dev pairs"}
DRAWN = 100  # of each group
_COLUMNS = {"single": ("sentence",), "pair-class": ("sentence1", "sentence2"), "pair-score": ("sentence1", "sentence2")}


@dataclass(frozen=True)
class Category:
    """A reason to fail: its name, when to choose it, and which category wins where two fit."""

    key: str
    name: str
    meaning: str
    tie: str = ""


_DATA = tomllib.loads(resources.files("tasks.report").joinpath("categories.toml").read_text(encoding="utf-8"))
CATEGORIES = tuple(Category(**one) for one in _DATA["categories"])
"""The categories of CBCL (section 6.1, appendix A.2) in its order."""


@dataclass(frozen=True)
class Item:
    """A drawn pair. `gold` is its label and `answer` another answer: the model's, or a supposed one in train and dev.

    `answer` is empty if there is no such answer.
    """

    group: str
    id: str
    texts: tuple[str, ...]
    gold: str
    answer: str


def draw(run: Run, task: str, *, seed: int, data: Path | None = None, count: int = DRAWN) -> list[Item]:
    """The pairs of a run, the three groups shuffled together, so that the annotator does not know a pair's group.

    A group that has fewer than `count` pairs is taken whole. Draws are by the counters (seed, "annotation", task,
    group) and (seed, "annotation order", task). `UserError` if the run has no dev rows of `task`, or its data files
    are missing.
    """
    scored = run.tasks.get(task)
    if not run.multitask or scored is None or scored.rows is None:
        raise UserError(f"{run.folder}: has no dev rows of {task}: it must be a finished run of multitask_train.py")
    texts = {row.id: row.texts for row in original_rows(run, task, "dev", data)}
    rows, train = scored.rows.labelled(), original_rows(run, task, "train", data)

    def some(group: str, places: Sequence[int] | np.ndarray) -> list[int]:
        chosen = numpy_generator(seed, "annotation", task, group).permutation(len(places))[:count]
        return [int(places[place]) for place in chosen]

    def item(group: str, id_: str, texts: tuple[str, ...], gold: float, predicted: float | None = None) -> Item:
        if predicted is None:  # the only other class of two
            predicted = 1 - gold if len(scored.classes) == 2 else float("nan")
        return Item(group, id_, texts, _answer(scored, gold), _answer(scored, predicted))

    drawn = []
    for row in some("failed", measures.failed(scored, rows)):
        drawn.append(item("failed", rows.ids[row], texts[rows.ids[row]], rows.gold[row], rows.predicted[row]))
    for row in some("train", range(len(train))):
        drawn.append(item("train", train[row].id, train[row].texts, train[row].label))
    for row in some("dev", range(len(rows))):
        drawn.append(item("dev", rows.ids[row], texts[rows.ids[row]], rows.gold[row]))
    return [drawn[place] for place in numpy_generator(seed, "annotation order", task).permutation(len(drawn))]


def _answer(task: TaskScores, value: float) -> str:
    if np.isnan(value):
        return ""
    return task.classes[int(value)] if task.classes else f"{value:.1f} of 5"


def write_annotation(folder: Path, out: Path, task: str, *, seed: int, data: Path | None = None) -> dict[str, int]:
    """Write the annotation page of a run; returns how many pairs of each group are on it."""
    run = read_run(folder)
    items = draw(run, task, seed=seed, data=data)
    page.write_page(out, build_annotation(items, run=run.name, task=task, seed=seed))
    return {group: sum(item.group == group for item in items) for group in GROUPS}


def fingerprint(items: Sequence[Item]) -> str:
    """A hash that tells one sample from another: annotations of different samples are never mixed."""
    content = json.dumps([[item.group, item.id, item.texts, item.gold] for item in items])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def build_annotation(items: Sequence[Item], *, run: str, task: str, seed: int) -> str:
    """The page as one string; nothing of the data becomes markup or script, and nothing is fetched.

    Answers are on it only if every pair has one: shown for failed pairs alone, they would say which have failed.
    """
    supposed = all(item.answer for item in items)
    data = {
        "format": FORMAT,
        "sample": fingerprint(items),
        "run": run,
        "task": task,
        "seed": seed,
        "categories": [one.key for one in CATEGORIES],
        "items": [asdict(item) if supposed else asdict(item) | {"answer": ""} for item in items],
    }
    shown: dict[str, Any] = {"categories": CATEGORIES, "supposed": supposed, "count": len(items)}
    return page.rendered("annotation", ["style.css", "annotation.css"], data, title=run, **shown)


def original_rows(run: Run, task: str, split: str, data: Path | None = None) -> list[Row]:
    """The rows that a run kept of a data file, in file order, with the texts as published but for white space.

    The course's preprocessing lower-cases what a run records. The file is a file of the recorded name in `data/course`
    or `data`, or else the recorded one; `UserError` if there is none, or if its hash is not the recorded one.
    """
    from tasks import readers  # torch

    account = run.data.get(split, {}).get(task)
    if not isinstance(account, dict) or not {"file", "sha256"} <= account.keys():
        raise UserError(f"{run.folder / 'manifest.json'}: names no {split} file of {task}")
    recorded = Path(account["file"])
    others = [data / "course" / recorded.name, data / recorded.name] if data is not None else []
    path = next((one for one in (*others, recorded) if one.is_file()), None)
    if path is None:
        raise UserError(f"{recorded}: no such file; give the folder that holds {recorded.name} with --data DIR")
    if readers.digest(path) != account["sha256"]:
        raise UserError(f"{path}: not the file that {run.folder} was made with (its hash is not the recorded one)")
    return _published(run, task, split, path)


def _published(run: Run, task: str, split: str, path: Path) -> list[Row]:
    from tasks import readers
    from tasks.readers.splitter import split_records
    from tasks.registry import TASKS
    from tasks.settings import MultitaskSettings

    known = TASKS[task]()
    settings = {name: run.settings[name] for name in ("tasks", "columns") if name in run.settings}
    columns = MultitaskSettings.of(**settings).data.columns_of(task)
    opened = readers.open_as(path, known.kind, split, columns, classes=known.class_count)
    kept = [row for row in opened.rows if isinstance(row, Row)]
    if opened.layout != "course":  # the only layout whose reader changes the letters
        return kept
    cells: Any = split_records(path, ("id", *_COLUMNS[known.kind]))
    texts = {row[0].strip().lower(): tuple(" ".join(text.split()) for text in row[1:]) for _, row in cells}
    return [Row(row.id, texts[row.id], row.label) for row in kept]
