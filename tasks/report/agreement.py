"""Statistics of annotations: counts by category (CBCL's Figure 1), and Cohen's kappa of two annotators.

Importing this module loads no matplotlib.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import cohen_kappa_score
from tabulate import tabulate

from minbert.errors import UserError, one_of
from minbert.files import present, read_json
from tasks import charts
from tasks.charts import BLUE, INK, QUIET, VERMILION
from tasks.intervals import Interval, interval, resampled, wilson
from tasks.report.annotation import CATEGORIES, FORMAT, GROUPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {one.key: one.name for one in CATEGORIES}
RESAMPLES = 1000
_COLOURS = {"failed": VERMILION, "train": BLUE, "dev": "#7A9CB0"}  # failed pairs stand out
_THICK = 0.26  # of a bar; three fill most of a category's band
Key = tuple[str, str]
"""Group and id of a pair: one pair may be drawn into two groups."""


@dataclass(frozen=True)
class Annotation:
    """One annotator's exported file: the category of every annotated pair, and the number of all pairs drawn."""

    path: Path
    annotator: str
    sample: str
    categories: dict[Key, str]
    drawn: int

    def counts(self, group: str) -> dict[str, int]:
        """How many pairs of a group are in each category, in the categories' order."""
        found = Counter(category for (of, _), category in self.categories.items() if of == group)
        return {key: found[key] for key in NAMES}

    def total(self, group: str) -> int:
        """How many pairs of a group are annotated."""
        return sum(self.counts(group).values())


def read_annotation(path: Path) -> Annotation:
    """A file that the annotation page exported; `UserError` for any other, or if no pair is sorted."""
    content = read_json(present(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("items"), list):
        raise UserError(f"{path}: not an annotation that the page exported")
    for name in ("annotator", "sample"):
        if not isinstance(content.get(name), str):
            raise UserError(f"{path}: {name}: missing, or not a text")
    found: dict[Key, str | None] = {}
    for number, item in enumerate(content["items"], start=1):
        if not isinstance(item, dict) or item.get("group") not in GROUPS or not isinstance(item.get("id"), str):
            raise UserError(f"{path}: item {number}: not a pair with a group ({', '.join(GROUPS)}) and an id")
        key, category = (item["group"], item["id"]), item.get("category")
        if key in found:
            raise UserError(f"{path}: item {number}: duplicate id {key[1]!r} of group {key[0]}")
        where = f"{path}: item {number}: category"
        found[key] = None if category is None else one_of(str(category), NAMES, where)
    categories = {key: category for key, category in found.items() if category is not None}
    if not categories:
        raise UserError(f"{path}: no pair is sorted yet")
    return Annotation(path, content["annotator"].strip(), content["sample"], categories, len(found))


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
    """Cohen's kappa, (p_o - p_e) / (1 - p_e), by scikit-learn; None if it is undefined."""
    if not len(first) or len({*first, *second}) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's about undefined values
        value = float(cohen_kappa_score(first, second))
    return value if np.isfinite(value) else None


def agreement(first: Annotation, second: Annotation, *, seed: int = 0, resamples: int = RESAMPLES) -> list[Agreement]:
    """Agreement over all pairs of both, then over those of each group; `UserError` for different samples.

    Resamples are drawn by the counter (seed, "kappa", group).
    """
    if first.sample != second.sample:
        raise UserError(f"{second.path}: of another sample than {first.path}: the two sorted different pairs")
    both = [key for key in first.categories if key in second.categories]
    found = []
    for name in ("all", *GROUPS):
        keys = [key for key in both if name in ("all", key[0])]
        one, two = (np.array([side.categories[key] for key in keys]) for side in (first, second))
        value, around = kappa(one, two), None
        if value is not None:

            def of(rows: np.ndarray, one: np.ndarray = one, two: np.ndarray = two) -> np.ndarray:
                return np.array([kappa(one[chosen], two[chosen]) for chosen in rows], dtype=np.float64)  # None: NaN

            around = interval(resampled(of, len(keys), "kappa", name, seed=seed, resamples=resamples))
        found.append(Agreement(name, len(keys), int((one == two).sum()), value, around))
    return found


def disagreements(first: Annotation, second: Annotation) -> list[tuple[str, str, int]]:
    """(first annotator's category, second's, count) where they disagree; the most frequent first."""
    pairs = [(one, second.categories[key]) for key, one in first.categories.items() if key in second.categories]
    return [(one, two, count) for (one, two), count in Counter(pairs).most_common() if one != two]


def counts_text(annotation: Annotation, name: str) -> str:
    """Counts and Wilson intervals by category and group, for a terminal."""
    columns: dict[str, list[str]] = {"": list(NAMES.values())}
    for group, title in GROUPS.items():
        if total := annotation.total(group):
            columns[f"{title} ({total})"] = [_cell(count, total) for count in annotation.counts(group).values()]
    head = f"{name}: {len(annotation.categories):,} of {annotation.drawn:,} pairs sorted (95% Wilson intervals)"
    aligned = ["left", *["right"] * (len(columns) - 1)]
    return head + "\n" + tabulate(columns, headers="keys", tablefmt="plain", colalign=aligned)


def _cell(count: int, total: int) -> str:
    around = wilson(count, total)
    assert around is not None
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
    if not base.absolute().parent.is_dir():
        raise UserError(f"--out {base}: {base.parent} is no folder")
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
        total, counts = annotation.total(group), annotation.counts(group)
        if not total:
            continue
        middles = [row + (place - 1) * _THICK for row in range(len(NAMES))]
        shares = [count / total for count in counts.values()]
        axes.barh(middles, shares, _THICK * 0.88, color=_COLOURS[group], label=f"{title} ({total})")
        for y, share, count in zip(middles, shares, counts.values(), strict=True):
            around = wilson(count, total)
            assert around is not None
            axes.plot([around.low, around.high], [y, y], color=INK, linewidth=1.0, solid_capstyle="butt")
            look: Any = {"va": "center", "fontsize": 8.5, "color": INK if count else QUIET}
            axes.annotate(str(count), (max(around.high, share), y), (4, 0), textcoords="offset points", **look)
    axes.set_yticks(range(len(NAMES)), list(NAMES.values()))
    axes.set_ylim(len(NAMES) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(charts.percent)
    axes.set_xlabel("share of the group’s pairs")
