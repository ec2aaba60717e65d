"""Pairs drawn for annotation with CBCL's eight categories of errors, and statistics of annotations.

CBCL (section 6.1) draws 100 failed dev pairs, 100 of train and 100 of dev, and treats the latter as if they had failed.
Importing this module loads no matplotlib.
"""

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from sklearn.metrics import cohen_kappa_score

from minbert.errors import UserError
from minbert.files import present
from minbert.seeds import numpy_generator
from minbert.token_cache import Row
from tasks import charts, predict
from tasks.charts import BLUE, INK, QUIET, VERMILION
from tasks.intervals import Interval, interval, resampled, wilson
from tasks.record import TaskScores
from tasks.report import measures
from tasks.report.collect import Run, read_run
from tasks.report.html import rendered, write_page
from tasks.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = "minbert error annotation"
GROUPS = {"failed": "failed dev pairs", "train": "train pairs", "dev": "dev pairs"}
DRAWN = 100  # of each group
_DATA = tomllib.loads(resources.files("tasks.report").joinpath("categories.toml").read_text(encoding="utf-8"))
CATEGORIES: list[dict[str, str]] = [{"tie": "", **one} for one in _DATA["categories"]]
"""The categories of CBCL (section 6.1, appendix A.2) in its order: key, name, when to choose it, which of two wins."""
NAMES = {one["key"]: one["name"] for one in CATEGORIES}
RESAMPLES = 1000
_COLOURS = {"failed": VERMILION, "train": BLUE, "dev": "#7A9CB0"}  # failed pairs stand out
_THICK = 0.26  # of a bar; three fill most of a category's band


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
    write_page(out, build_annotation(items, run=run.name, task=task, seed=seed))
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
    listed = [asdict(item) if supposed else asdict(item) | {"answer": ""} for item in items]
    data = {"format": FORMAT, "sample": fingerprint(items), "run": run, "task": task, "seed": seed}
    data |= {"categories": list(NAMES), "items": listed}
    shown: dict[str, Any] = {"run": run, "categories": CATEGORIES, "supposed": supposed, "count": len(items)}
    styles, scripts = ["style.css", "annotation.css"], ["base.js", "annotation.js"]
    return rendered("annotation.html", styles, scripts, data, title=f"{run} – error annotation", **shown)


def original_rows(run: Run, task: str, split: str, data: Path | None = None) -> list[Row]:
    """The rows that a run kept of a data file, in file order, with the texts as published but for white space.

    The course's preprocessing lower-cases what a run records. `UserError` as of `predict.recorded_file`.
    """
    from tasks import readers  # torch
    from tasks.readers.layouts import KINDS
    from tasks.readers.splitter import split_records
    from tasks.registry import TASKS

    path, columns = predict.recorded_file(run.folder, task, split, data)
    known = TASKS[task]()
    opened = readers.open_as(path, known.kind, split, columns, classes=known.class_count)
    kept = [row for row in opened.rows if isinstance(row, Row)]
    if opened.layout != "course":  # the only layout whose reader changes the letters
        return kept
    cells: Any = split_records(path, ("id", *KINDS[known.kind].texts))
    texts = {row[0].strip().lower(): tuple(" ".join(text.split()) for text in row[1:]) for _, row in cells}
    return [Row(row.id, texts[row.id], row.label) for row in kept]


class _Sorted(BaseModel):
    """A pair of an exported annotation."""

    model_config = ConfigDict(strict=True)
    group: Literal["failed", "train", "dev"]
    id: str
    category: Literal[tuple(NAMES)] | None = None  # type: ignore[valid-type]


class Annotation(BaseModel):
    """One annotator's exported file: the category of every pair drawn, None where it is not annotated yet."""

    model_config = ConfigDict(strict=True)
    format: Literal["minbert error annotation"]
    annotator: Annotated[str, StringConstraints(strip_whitespace=True)]
    sample: str
    items: Annotated[list[_Sorted], Field(min_length=1)]
    path: Path = Path()

    @property
    def categories(self) -> dict[tuple[str, str], str]:
        """The category of every annotated pair by group and id: one pair may be drawn into two groups."""
        return {(one.group, one.id): one.category for one in self.items if one.category is not None}

    def counts(self, group: str) -> dict[str, int]:
        """How many pairs of a group are in each category, in the categories' order."""
        found = Counter(category for (of, _), category in self.categories.items() if of == group)
        return {key: found[key] for key in NAMES}


def read_annotation(path: Path) -> Annotation:
    """A file that the annotation page exported; `UserError` for any other, or if no pair is sorted."""
    try:
        found = Annotation.model_validate_json(present(path).read_bytes())
    except ValidationError as error:
        one = error.errors()[0]
        where = ".".join(map(str, one["loc"]))
        raise UserError(f"{path}: not an annotation that the page exported: {where}: {one['msg']}") from error
    twice = [key for key, count in Counter((one.group, one.id) for one in found.items).items() if count > 1]
    if twice:
        raise UserError(f"{path}: duplicate id {twice[0][1]!r} of group {twice[0][0]}")
    if not found.categories:
        raise UserError(f"{path}: no pair is sorted yet")
    return found.model_copy(update={"path": path})


def annotators(annotations: Sequence[Annotation]) -> list[str]:
    """The annotators' names, with their files if the names are equal."""
    found = [one.annotator or one.path.stem for one in annotations]
    same = len(set(found)) < len(found)
    return [f"{name} ({one.path.name})" if same else name for name, one in zip(found, annotations, strict=True)]


@dataclass(frozen=True)
class Agreement:
    """Number of pairs that both have annotated and that they agree on, and Cohen's kappa with a bootstrap interval.

    Kappa is None if it is undefined: no common pair, or the same category for all of them.
    """

    name: str
    pairs: int
    alike: int
    kappa: float | None
    around: Interval | None


def kappa(first: Sequence[str] | np.ndarray, second: Sequence[str] | np.ndarray) -> float | None:
    """Cohen's kappa, (p_o - p_e) / (1 - p_e), by scikit-learn; None if it is undefined: with fewer than two names."""
    return float(cohen_kappa_score(first, second)) if len({*first, *second}) > 1 else None


def agreement(first: Annotation, second: Annotation, *, resamples: int = RESAMPLES) -> list[Agreement]:
    """Agreement over all pairs of both, then over those of each group; `UserError` for different samples.

    Resamples are drawn by the counter ("kappa", group).
    """
    if first.sample != second.sample:
        raise UserError(f"{second.path}: of another sample than {first.path}: the two sorted different pairs")
    mine, theirs = first.categories, second.categories
    found = []
    for name in ("all", *GROUPS):
        keys = [key for key in mine if key in theirs and name in ("all", key[0])]
        one, two = (np.array([side[key] for key in keys]) for side in (mine, theirs))

        def of(rows: np.ndarray, one: np.ndarray = one, two: np.ndarray = two) -> np.ndarray:
            return np.array([kappa(one[chosen], two[chosen]) for chosen in rows], dtype=np.float64)  # None: NaN

        value = kappa(one, two)
        around = None if value is None else interval(resampled(of, len(keys), "kappa", name, resamples=resamples))
        found.append(Agreement(name, len(keys), int((one == two).sum()), value, around))
    return found


def disagreements(first: Annotation, second: Annotation) -> list[tuple[str, str, int]]:
    """(first annotator's category, second's, count) where they disagree; the most frequent first."""
    theirs = second.categories
    pairs = Counter((one, theirs[key]) for key, one in first.categories.items() if key in theirs)
    return [(one, two, count) for (one, two), count in pairs.most_common() if one != two]


def counts_text(annotation: Annotation, name: str) -> str:
    """Counts and Wilson intervals by category and group, for a terminal."""
    columns: dict[str, list[str]] = {"category": list(NAMES.values())}
    for group, title in GROUPS.items():
        counts = annotation.counts(group)
        if total := sum(counts.values()):
            columns[f"{title} ({total})"] = [_cell(count, total) for count in counts.values()]
    done = len(annotation.categories)
    head = f"{name}: {done:,} of {len(annotation.items):,} pairs sorted (95% Wilson intervals)"
    return Table(head, pd.DataFrame(columns)).terminal()


def _cell(count: int, total: int) -> str:
    around = wilson(count, total)
    return f"{count}  {count / total:.0%} [{around.low:.0%}, {around.high:.0%}]"


def agreement_text(first: Annotation, second: Annotation, *, resamples: int = RESAMPLES) -> str:
    """Agreement overall and by group, and the most frequent disagreements, for a terminal."""
    lines = [f"agreement of {' and '.join(annotators([first, second]))} (95% intervals of {resamples:,} resamples)"]
    for one in agreement(first, second, resamples=resamples):
        if one.pairs:
            value = "undefined" if one.kappa is None else f"{one.kappa:.3f}"
            around = "" if one.around is None else f" [{one.around.low:.3f}, {one.around.high:.3f}]"
            title = GROUPS.get(one.name, "all pairs")
            lines.append(f"  {title:<17} {one.alike} of {one.pairs} alike, Cohen's kappa {value}{around}")
    listed = [f"  {count} x {NAMES[one]} / {NAMES[two]}" for one, two, count in disagreements(first, second)[:5]]
    return "\n".join([*lines, *(["most frequent disagreements:", *listed] if listed else [])])


def draw_categories(base: Path, annotations: Sequence[Annotation]) -> list[Path]:
    """Write CBCL's Figure 1 as `base`.svg and `base`.png, a panel an annotation; equal counts give equal bytes."""
    size, count = (8.4 if len(annotations) == 1 else 12.0, 7.2), len(annotations)
    look: Any = {"axes.grid.axis": "x", "axes.spines.left": False, "font.size": 11}
    with charts.panels(count, size, style=look, sharex=True, sharey=True) as panels:
        for axes, one, name in zip(panels, annotations, annotators(annotations), strict=True):
            _bars(axes, one)
            if count > 1:
                axes.set_title(name, fontweight="bold")
        panels[0].set_xlim(left=0)
        charts.title(panels[0].figure, "Reasons to fail, by group of pairs")
        note = "Numbers at the bars are counts of pairs, lines are 95% Wilson intervals"
        charts.legend(panels[0], 3, alignment="left", title=note, title_fontsize=10)
        return charts.save(panels[0].figure, base)


def _bars(axes: "Axes", annotation: Annotation) -> None:
    """Three bars for each category, the failed pairs on top, each with its count and Wilson's interval as a whisker."""
    for place, (group, title) in enumerate(GROUPS.items()):
        counts = list(annotation.counts(group).values())
        total = sum(counts)
        if not total:
            continue
        middles = [row + (place - 1) * _THICK for row in range(len(NAMES))]
        axes.barh(
            middles,
            [count / total for count in counts],
            _THICK * 0.88,
            color=_COLOURS[group],
            label=f"{title} ({total})",
        )
        for y, count in zip(middles, counts, strict=True):
            around = wilson(count, total)
            axes.plot([around.low, around.high], [y, y], color=INK, linewidth=1.0, solid_capstyle="butt")
            look: Any = {"va": "center", "fontsize": 8.5, "color": INK if count else QUIET}
            axes.annotate(str(count), (around.high, y), (4, 0), textcoords="offset points", **look)
    axes.set_yticks(range(len(NAMES)), list(NAMES.values()))
    axes.set_ylim(len(NAMES) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(charts.percent)
    axes.set_xlabel("share of the group’s pairs")
