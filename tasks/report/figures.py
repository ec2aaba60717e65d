"""The figures of a report page, each as the bytes of an SVG: curves of training, confusion, gold against predicted."""

import textwrap
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgba
from matplotlib.ticker import MaxNLocator
from safetensors.numpy import load_file

from minbert.seeds import numpy_generator
from minbert.train.progress import NOT_METRICS
from tasks import charts, metrics
from tasks.charts import BLUE, DASHED, GREEN, GREY, GROUND, INK, ORANGE, QUIET, SLOTS, VERMILION, page_svg
from tasks.contrastive import scoring
from tasks.contrastive.curriculum import GROUPS, difficulty
from tasks.contrastive.settings import TASK
from tasks.record import PredictedRows, TaskScores
from tasks.runs import Run
from tasks.tables import MISSING, number

Points = Sequence[tuple[float, float]]
_MAX_POINTS = 400  # points of a curve; longer ones are averaged over neighbours
_MAX_MARKERS = 60
_MAX_DOTS = 1500
_MOST_NUMBERS = 15  # classes of a confusion matrix whose cells have numbers
_WIDEST = 720  # pixels of a confusion matrix
_GROUP_COLOURS = dict(zip(GROUPS, (GREEN, ORANGE, VERMILION), strict=True))


@dataclass(frozen=True)
class Figure:
    """A figure of a page: its title, its SVG, and a note."""

    title: str
    svg: bytes
    note: str = ""

    @property
    def source(self) -> str:
        """The SVG as the source of an image, in which no script runs."""
        return "data:image/svg+xml;base64," + b64encode(self.svg).decode()


@dataclass(frozen=True)
class Curve:
    """(step, value) of a loss or a metric, and a level to compare it with and its name."""

    title: str
    unit: str
    points: Points
    colour: str
    level: tuple[float, str] | None = None


# --- how a run was trained


def training_figures(run: Run) -> list[Figure]:
    """Losses and evaluations of several points, and stage one's curriculum."""
    evaluations = [row["step"] for row in run.evaluations]
    last = run.manifest["plan"]["steps"]
    figures = []
    for curve in [*loss_curves(run), *evaluation_curves(run)]:
        if len(curve.points) > 1:
            svg = draw_curve(curve, evaluations=evaluations, kept=run.kept_step, last=last)
            figures.append(Figure(curve.title, svg))
    return [*figures, *triplet_figures(run)]


def loss_curves(run: Run) -> list[Curve]:
    """The training loss of each task, or of stage one with the loss of a random guess."""
    chance = run.scores.get("chance_loss")
    names = [TASK]
    if run.multitask:
        names = list(run.tasks)
    curves = []
    for name in names:
        title = "training loss"
        unit = "mean loss"
        level = None
        values = points(run.train, f"{name}/loss")
        if run.multitask:
            task = run.tasks[name]
            title = f"{task.title}: training loss"
            unit = "mean loss (nats)" if task.classes else "mean loss (points², scale 0 to 5)"
        elif chance is not None:
            # where a guess has a known loss, the loss is a cross entropy
            unit = f"mean loss (nats; a guess has {chance:.2f})"
            # a line far above the losses would flatten their curve
            if values and chance < 2 * max(loss for _, loss in values):
                level = (chance, f"a guess: {chance:.2f}")
        curves.append(Curve(title, unit, values, _colour(run, name), level))
    return curves


def evaluation_curves(run: Run) -> list[Curve]:
    """The metrics of the evaluations, with stage one's value before training at step 0."""
    names: dict[str, None] = {}  # a set in order of appearance
    for row in run.evaluations:
        names |= dict.fromkeys(row)
    curves = []
    for name in names:
        if name in NOT_METRICS or (name == "dev_norm" and len(run.tasks) == 1):
            continue
        values = points(run.evaluations, name)
        before = run.changes.get(name, {}).get("before")
        if before is not None:
            values.insert(0, (0, before))
        title, unit = describe_metric(run, name)
        curves.append(Curve(title, unit, values, _colour(run, name)))
    return curves


def triplet_figures(run: Run) -> list[Figure]:
    """Stage one's triplets: each epoch's mix (CBCL, equation 2), and their difficulty at the start."""
    figures = []
    curriculum = run.manifest.get("curriculum") or {}
    if curriculum.get("mix_per_epoch"):
        figures.append(Figure("share of the epoch's triplets", mix(curriculum["mix_per_epoch"])))
    path = run.folder / scoring.SCORES_FILE
    scores = load_file(path) if path.is_file() else {}
    if "positive" in scores:
        margin = float(run.settings.get("margin") or 0)
        svg = gaps(scores["positive"], scores["negative"], margin)
        figures.append(Figure("difficulty of the triplets", svg))
    return figures


def describe_metric(run: Run, name: str) -> tuple[str, str]:
    """Title and unit of a metric of evaluations."""
    if run.multitask and name in run.tasks:
        return f"{run.tasks[name].title}: dev", run.tasks[name].metric
    return metrics.DESCRIPTIONS.get(name, (name.replace("_", " "), "value"))


def points(rows: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of the rows in which `key` is a number."""
    return [(row["step"], row[key]) for row in rows if row.get(key) is not None]


def _colour(run: Run, name: str) -> str:
    if name not in run.tasks:
        return BLUE
    return SLOTS[list(run.tasks).index(name) % len(SLOTS)]


def draw_curve(curve: Curve, *, evaluations: Sequence[float], kept: float, last: float) -> bytes:
    """A line over steps; its points are marked if they are few. The y axis fits the values, the x axis begins at 0.

    `evaluations` are steps that are marked on the axis, `kept` is the step whose weights were kept, `last` is where the
    axis ends at least.
    """
    block = -(-len(curve.points) // _MAX_POINTS)
    frame = pd.DataFrame(curve.points, columns=["step", "value"])
    means = frame.groupby(frame.index // block).mean()
    x = means["step"].to_numpy()
    y = means["value"].to_numpy()
    with page_svg(340, 210) as (axes, svg):
        marker = "o" if len(x) <= _MAX_MARKERS else ""
        axes.plot(x, y, color=curve.colour, marker=marker, markersize=4.5)
        if curve.level is not None:
            value, name = curve.level
            axes.axhline(value, color=GREY, linewidth=1.2, linestyle=DASHED)
            axes.annotate(name, (0, value), (3, 3), xycoords=("axes fraction", "data"), textcoords="offset points")
        on_axis = axes.get_xaxis_transform()
        if evaluations:
            ticks = evaluations[:: -(-len(evaluations) // _MAX_MARKERS)]
            below: Any = {"marker": 2, "linestyle": "none", "transform": on_axis, "clip_on": False}
            axes.plot(ticks, [0] * len(ticks), color=QUIET, **below)
        axes.axvline(kept, color=INK, linewidth=1, linestyle=(0, (2, 3)))
        axes.annotate("kept", (kept, 1), (0, 3), xycoords=on_axis, textcoords="offset points", ha="center", color=INK)
        # a little room, so that a point on either end is a whole one
        axes.set(xlabel="step", xlim=(-0.01 * last, 1.01 * last))
        axes.set_title(curve.unit, pad=16)
        charts.thousands(axes.xaxis)
    return svg.getvalue()


def mix(shares: Sequence[Sequence[float]]) -> bytes:
    """The shares of easy, semi-hard and hard triplets in each epoch (CBCL, equation 2): [epochs, 3]."""
    heights = np.array(shares).T  # [3, epochs]
    epochs = np.arange(1, len(shares) + 1)
    base = np.zeros(len(shares))
    with page_svg(340, 242) as (axes, svg):
        for name, height in zip(GROUPS, heights, strict=True):
            axes.bar(epochs, height, 0.98, base, color=_GROUP_COLOURS[name], label=name)
            base = base + height
        axes.set(xlabel="epoch", ylim=(0, 1))
        axes.yaxis.set_major_formatter(charts.percent)
        charts.thousands(axes.xaxis)
        if len(epochs) <= 10:
            # a single bar would get several ticks with the label 1
            axes.set_xticks(epochs)
        charts.legend(axes, 3, handlelength=0.8, handletextpad=0.4)
    return svg.getvalue()


def gaps(positive: np.ndarray, negative: np.ndarray, margin: float) -> bytes:
    """Histogram of cos(anchor, positive) - cos(anchor, hard negative), [N] each, coloured by group (SelfCCL, 4.3.1)."""
    gap = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    groups = difficulty(positive, negative, margin)
    width = 0.025
    if margin > 0:
        # bins end at 0 and at the margin
        width = margin / max(1, round(margin / width))
    edges = np.arange(np.floor(gap.min() / width), np.ceil(gap.max() / width) + 1.5) * width
    with page_svg(340, 278) as (axes, svg):
        for group in range(len(GROUPS)):
            name = GROUPS[group]
            part = gap[groups == group]
            label = f"{name}: {len(part):,} ({len(part) / len(gap):.0%})"
            axes.hist(part, bins=edges.tolist(), color=_GROUP_COLOURS[name], label=label)
        for x, name in {0.0: "0", margin: f"margin {margin:g}"}.items():
            axes.axvline(x, color=INK, linewidth=1, linestyle=DASHED)
            at_top: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top"}
            side = -1 if name == "0" else 1
            axes.annotate(name, (x, 1), (4 * side, -2), color=INK, ha="right" if side < 0 else "left", **at_top)
        # room for these names above the bars
        axes.margins(y=0.12)
        axes.locator_params(axis="x", nbins=6)
        axes.set(xlabel="cos(anchor, positive) − cos(anchor, hard negative)")
        axes.set_title("triplets")
        charts.thousands(axes.yaxis)
        charts.legend(axes, 1, handlelength=0.8, handletextpad=0.4)
    return svg.getvalue()


# --- how a task's dev rows are predicted


def task_figure(task: TaskScores, rows: PredictedRows) -> Figure:
    """The confusion matrix of a task with classes, else predicted against gold; `rows` are labelled."""
    if task.classes:
        counts = metrics.confusion(rows.predicted, rows.gold, len(task.classes))
        return Figure(
            "Confusion matrix", confusion(counts, task.classes), "Dev rows, and their share of the gold class."
        )
    label = "cosine" if task.cosines else "predicted (points)"
    svg = scatter(rows.gold, rows.predicted, y_label=label, same_scale=not task.cosines, scale=task.scale)
    return Figure("Predicted against gold", svg, _correlations(task, rows))


def _correlations(task: TaskScores, rows: PredictedRows) -> str:
    """Correlations, and for points also errors, in words."""
    parts = [
        f"Pearson's r {number(metrics.pearson(rows.predicted, rows.gold), 4, missing='undefined')}",
        f"Spearman's rho {number(metrics.spearman(rows.predicted, rows.gold), 4, missing='undefined')}",
    ]
    if not task.cosines:
        distances = np.abs(rows.predicted - rows.gold)
        off = "1 point" if task.tolerance == 1 else f"{task.tolerance:g} points"
        parts.append(f"mean absolute error {distances.mean():.2f} points")
        parts.append(f"{(distances > task.tolerance).sum():,} of {len(rows):,} rows more than {off} off")
    return ", ".join(parts) + "."


def confusion(counts: np.ndarray, classes: Sequence[str]) -> bytes:
    """`metrics.confusion`, gold by row: each cell's number of rows, and its share of the gold class as shade."""
    size = len(classes)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    right = np.eye(size, dtype=bool)
    cells = np.where(right[..., None], to_rgba(BLUE), to_rgba(VERMILION))
    # a full cell is so light that its numbers are readable
    cells[..., 3] = 0.55 * shares + 0.03
    many = size > _MOST_NUMBERS
    # characters that fit over a column; names with longer words stand upright, in two lines at most
    room = 40 // size
    upright = max(len(word) for name in classes for word in name.split()) > room
    names = []
    for name in classes:
        if many:
            names.append(name if len(name) <= 40 else f"{name[:39]}…")
        else:
            names.append(textwrap.fill(name, 20 if upright else room, max_lines=2, placeholder="…"))
    width = 350
    height = 320 if size > 2 else 220
    if upright or size > 5:
        # more classes and longer names need more room
        width = height = min(max(350, 150 + 46 * size), _WIDEST)
    font: Any = {}
    if many:
        # the shades are readable, the numbers would not be
        font = {"fontsize": min(11, max(4, 500 / size))}
    with page_svg(width, height) as (axes, svg):
        # as vectors, the cells of 150 classes take 5 MB
        axes.pcolormesh(cells, edgecolors=GROUND, linewidth=0 if many else 2, rasterized=many)
        if not many:
            for (row, column), share in np.ndenumerate(shares):
                centre: Any = {"ha": "center", "color": INK}
                axes.text(column + 0.5, row + 0.5, f"{counts[row, column]:,}", va="bottom", fontsize=12, **centre)
                text = f"{share:.0%}" if counts[row].any() else MISSING
                axes.text(column + 0.5, row + 0.54, text, va="top", fontsize=9.5, **centre)
        axes.set(xlim=(0, size), ylim=(size, 0), ylabel="gold", xlabel="predicted")
        axes.set_xticks(np.arange(size) + 0.5, names, rotation=90 if upright else 0, **font)
        axes.set_yticks(np.arange(size) + 0.5, names, **font)
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
    return svg.getvalue()


def scatter(
    gold: np.ndarray,
    predicted: np.ndarray,
    *,
    y_label: str,
    same_scale: bool,
    scale: tuple[float, float] = (0.0, 5.0),
) -> bytes:
    """Predicted over gold, a dot a row; at most 1,500 rows, sampled by counter. `same_scale` adds the diagonal.

    `scale` has the lowest and the highest gold score.
    """
    if len(gold) > _MAX_DOTS:
        sample = np.sort(numpy_generator(0, "scatter").permutation(len(gold))[:_MAX_DOTS])
        gold = gold[sample]
        predicted = predicted[sample]
    start, end = scale
    if not same_scale and gold.max() <= 1:
        # dev pairs of two classes
        end = 1.0
    room = 0.03 * (end - start)
    limits = (start - room, end + room)
    ticks = []
    for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(start, end):
        if limits[0] < tick < limits[1]:
            ticks.append(tick)
    with page_svg(340, 320) as (axes, svg):
        axes.plot(gold, predicted, "o", markersize=4.5, color=BLUE, alpha=0.6, markeredgewidth=0)
        axes.set(xlabel="gold similarity (points)", xlim=limits, xticks=ticks)
        axes.set_title(y_label)
        if same_scale:
            axes.plot([start, end], [start, end], color=QUIET, linewidth=1.2, linestyle=DASHED)
            axes.set(ylim=limits, yticks=ticks)
    return svg.getvalue()
