"""Why does it fail? Pairs drawn for a person to sort into CBCL's eight categories, on one page that needs nothing else.

CBCL (section 6.1) draws 100 failed dev pairs, 100 of train and 100 of dev, and treats the latter as if they had failed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from minbert.errors import UserError
from minbert.files import write_atomic
from minbert.seeds import numpy_generator
from tasks.record import TaskScores
from tasks.report import collect, originals, page
from tasks.report.collect import Run

FORMAT = "minbert error annotation"
GROUPS = {"failed": "failed dev pairs", "train": "train pairs", "dev": "dev pairs"}
DRAWN = 100  # of each group


@dataclass(frozen=True)
class Category:
    """A reason to fail: its name, when to choose it, and which category wins where two fit."""

    key: str
    name: str
    meaning: str
    tie: str = ""


CATEGORIES = (
    Category(
        "synonym",
        "Synonym recognition",
        "Two words or phrases here can stand for each other, and not seeing that breaks the pair: sofa, couch.",
    ),
    Category(
        "context",
        "Context misunderstanding",
        "What is asked, or who does what to whom, is mistaken: how for why, two people changed over, or two "
        "questions that have nothing to do with each other.",
        "The last resort: choose it only where nothing else fits.",
    ),
    Category(
        "domain",
        "Domain knowledge",
        "One has to know a field: its facts, its jargon, a school subject, or whom or what a name stands for.",
        "Wins over context. Formulas and algebra belong here, not under numbers.",
    ),
    Category(
        "idiom",
        "Idiom or metaphor",
        "A phrase means something else than its words say: to break the ice.",
    ),
    Category(
        "negation",
        "Negation",
        "A not, never or without, or a word and its opposite, turn the meaning round.",
    ),
    Category(
        "ambiguity",
        "Ambiguity",
        "One word has several senses, and the rest of the sentence says which: a bat in a cave, a bat in the hand.",
    ),
    Category(
        "number",
        "Numbers and time",
        "An amount, a date, a duration or an order in time decides: in two weeks, in two years.",
        "Mostly algebra? Then it is domain knowledge.",
    ),
    Category(
        "mislabelled",
        "Wrong label",
        "The gold label is the mistake: a careful reader would give the other one.",
    ),
)
"""The categories of CBCL (section 6.1, appendix A.2) in its order, in our words; the keys 1 to 8 choose them."""


@dataclass(frozen=True)
class Item:
    """A drawn pair. `gold` is its label and `said` the other answer: the model's, or in train and dev a supposed one.

    `said` is empty where there is no such answer.
    """

    group: str
    id: str
    texts: tuple[str, ...]
    gold: str
    said: str


def draw(run: Run, task: str, *, seed: int, data: Path | None = None, count: int = DRAWN) -> list[Item]:
    """The pairs of a run, all three groups mixed, so that whoever sorts them does not see which is which.

    A group that has fewer than `count` is taken whole. Draws are by the counters (seed, "annotation", task, group) and
    (seed, "annotation order", task). `UserError` where the run has no dev rows of `task`, or its data files are gone.
    """
    scored = run.tasks.get(task)
    if run.stage != "multitask" or scored is None or scored.rows is None:
        raise UserError(f"{run.folder}: has no dev rows of {task}: it must be a finished run of multitask_train.py")
    texts = {row.id: row.texts for row in originals.rows(run, task, "dev", data)}
    rows, train = scored.rows.labelled(), originals.rows(run, task, "train", data)
    away = np.abs(rows.predicted - rows.gold)
    failed = np.flatnonzero(away > (0 if scored.classes else 1))

    def of_dev(group: str, row: int) -> Item:
        said = rows.predicted[row] if group == "failed" else _opposite(scored, rows.gold[row])
        return Item(group, rows.ids[row], texts.get(rows.ids[row], rows.texts[row]), _said(scored, rows.gold[row]),
                    _said(scored, said))  # fmt: skip

    def of_train(row: int) -> Item:
        one = train[row]
        gold, supposed = _said(scored, one.label), _said(scored, _opposite(scored, one.label))
        return Item("train", one.id, one.texts, gold, supposed)

    def some(group: str, places: Sequence[int] | np.ndarray) -> list[int]:
        chosen = numpy_generator(seed, "annotation", task, group).permutation(len(places))[:count]
        return [int(places[place]) for place in chosen]

    drawn = [of_dev("failed", row) for row in some("failed", failed)]
    drawn += [of_train(row) for row in some("train", range(len(train)))]
    drawn += [of_dev("dev", row) for row in some("dev", range(len(rows)))]
    return [drawn[place] for place in numpy_generator(seed, "annotation order", task).permutation(len(drawn))]


def _opposite(task: TaskScores, gold: float) -> float:
    """The only other answer of two; NaN where there are more."""
    return 1 - gold if len(task.classes) == 2 else float("nan")


def _said(task: TaskScores, value: float) -> str:
    if np.isnan(value):
        return ""
    return task.classes[int(value)] if task.classes else f"{value:.1f} of 5"


def write(folder: Path, out: Path, task: str, *, seed: int, data: Path | None = None) -> dict[str, int]:
    """Write the annotation page of a run; returns how many pairs of each group are on it."""
    run = collect.read(folder)
    items = draw(run, task, seed=seed, data=data)
    # A text may hold half of a surrogate pair, which UTF-8 cannot write.
    write_atomic(out, build(items, run=run.name, task=task, seed=seed).encode("utf-8", "replace"))
    return {group: sum(item.group == group for item in items) for group in GROUPS}


def fingerprint(items: Sequence[Item]) -> str:
    """What tells one sample from another: annotations of different samples are never mixed."""
    content = json.dumps([[item.group, item.id, item.texts, item.gold] for item in items])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def build(items: Sequence[Item], *, run: str, task: str, seed: int) -> str:
    """The page as one string; nothing of the data becomes markup or script, and nothing is fetched.

    Answers are on it only where every pair has one: where failed pairs alone do, it would say which have failed.
    """
    style, script = page._part("style.css") + page._part("annotate.css"), page._part("annotate.js")
    supposed = all(item.said for item in items)
    shown = {
        "format": FORMAT, "sample": fingerprint(items), "run": run, "task": task, "seed": seed,
        "categories": [one.key for one in CATEGORIES],
        "items": [vars(item) if supposed else vars(item) | {"said": ""} for item in items],
    }  # fmt: skip
    environment = Environment(
        loader=FunctionLoader(page._part), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("annotate.html").render(
        title=run, policy=page._policy(style, script), style=Markup(style), script=Markup(script),
        data=page.embedded(_plain(shown)), categories=CATEGORIES, supposed=supposed,
        count=len(items),
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """JSON's own kinds alone."""
    return json.loads(json.dumps(value))
