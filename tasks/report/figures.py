"""The figures of a report page, each a string of SVG: curves, shares, confusion, reliability, scatter, intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from minbert.seeds import numpy_generator
from tasks.charts import (
    BLUE,
    DASHED,
    GREY,
    GRID,
    GROUND,
    INK,
    QUIET,
    SLOTS,
    VERMILION,
    legend,
    on_page,
    percent,
    thousands,
)
from tasks.intervals import Interval, wilson
from tasks.report.measures import Calibration

_LONGEST = 300  # points of a curve; longer ones are averaged over neighbours
_MOST_DOTS = 2000
_MOST_MARKS = 60  # evaluations that are marked on a curve
_DEEPEST = 0.55  # opacity of a full cell: the numbers on it stay readable in both themes
_FEW = 10  # bins with fewer rows are drawn grey
_HOLLOW: Any = {"markerfacecolor": GROUND, "markeredgewidth": 2}


@dataclass(frozen=True)
class Series:
    """One curve: its name, its points, and which of the page's colours it has."""

    label: str
    points: Sequence[tuple[float, float]]
    slot: int = 0


@dataclass(frozen=True)
class Mix:
    """Counts of each part in consecutive windows; `ends[i]` is where window i ends, in steps or epochs."""

    parts: tuple[str, ...]
    ends: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]  # [windows][parts]


def thinned(points: Sequence[tuple[float, float]], longest: int = _LONGEST) -> list[tuple[float, float]]:
    """At most `longest` points, each the mean of as many neighbours."""
    size = -(-len(points) // longest)
    chunks = [points[start : start + size] for start in range(0, len(points), max(size, 1))]
    return [tuple(np.mean(chunk, axis=0).tolist()) for chunk in chunks] if size > 1 else list(points)


def _clipped(text: str, most: int = 30) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _sparse(count: int) -> slice:
    """A slice that keeps every one of `count`, or every second, third and so on: `_MOST_MARKS` at most."""
    return slice(None, None, max(1, -(-count // _MOST_MARKS)))


def curves(
    title: str,
    series: Sequence[Series],
    *,
    y_label: str,
    marks: Sequence[float] = (),
    kept: float | None = None,
    dots: bool = False,
    from_zero: bool = False,
    last: float = 0.0,
) -> Markup:
    """Lines over steps. `marks` are the evaluations, `kept` the step that was kept, `last` the end of the x axis."""
    with on_page(title, 340, 220 + 22 * (len(series) > 1)) as chart:
        axes = chart.axes
        for one in series:
            points = thinned(one.points)
            x, y = [step for step, _ in points], [value for _, value in points]
            mark = "" if len(points) > 1 else "o"
            axes.plot(x, y, color=SLOTS[one.slot], label=_clipped(one.label), marker=mark, markersize=4)
            if dots:
                shown = points[_sparse(len(points))]
                look: Any = {"markersize": 5, "markerfacecolor": GROUND, "markeredgewidth": 1.6, "linestyle": "none"}
                (drawn,) = axes.plot(*zip(*shown, strict=True), "o", color=SLOTS[one.slot], **look)
                chart.hint(drawn, *(f"step {step:,.0f}: {y_label} {value:.4f}" for step, value in shown))
        ends = [last, *(step for one in series for step, _ in one.points)]
        axes.set(xlabel="step", xlim=(0, max(ends) or 1))
        if from_zero or axes.get_ylim()[0] <= 0.3 * axes.get_ylim()[1]:
            axes.set_ylim(bottom=min(0.0, *(value for one in series for _, value in one.points), 0.0))
        foot = axes.get_xaxis_transform()
        few = marks[_sparse(len(marks))]
        axes.plot(few, [0] * len(few), marker=2, linestyle="none", color=QUIET, transform=foot, clip_on=False)
        if kept is not None:
            axes.axvline(kept, color=INK, linewidth=1, linestyle=(0, (2, 3)))
            axes.annotate("kept", (kept, 1), (0, 3), xycoords=foot, textcoords="offset points", ha="center", color=INK)
        axes.set_title(y_label, pad=8 if kept is None else 16)
        thousands(axes.xaxis)
        if len(series) > 1:
            longest = max(len(_clipped(one.label)) for one in series)
            legend(axes, max(1, 340 // (7 * longest + 40)), handlelength=1)
    return chart.markup


def shares(
    title: str,
    mix: Mix,
    labels: Sequence[str],
    *,
    x_label: str,
    y_label: str,
    apart: bool = False,
    slots: Sequence[int] = (),
) -> Markup:
    """The parts of each window as shares: side by side over steps, or as bars `apart`, one an epoch.

    `slots` are the colours of the parts, by default the page's in order.
    """
    ends = np.array(mix.ends) + (0.5 if apart else 0)
    starts = np.array([0.5 if apart else 0, *ends[:-1]])
    counts = np.array(mix.counts, dtype=np.float64)
    tall = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    air = 0.12 if apart else 0.0
    with on_page(title, 340, 242) as chart:
        axes = chart.axes
        for part, label in enumerate(labels):
            colour, base = SLOTS[slots[part] if slots else part % len(SLOTS)], tall[:, :part].sum(1)
            where = (starts + air / 2, tall[:, part], ends - starts - air, base)
            bars = axes.bar(*where, align="edge", color=colour, label=label, linewidth=0)
            for bar, end, count in zip(bars, mix.ends, counts[:, part], strict=True):
                chart.hint(bar, f"{x_label} {end:,}: {label} {count:,.0f}")
        axes.set(xlabel=x_label, xlim=(starts[0], ends[-1]), ylim=(0, 1))
        axes.set_title(y_label)
        axes.yaxis.set_major_formatter(percent)
        thousands(axes.xaxis)
        legend(axes, 3, handlelength=0.8, handletextpad=0.4)
    return chart.markup


def confusion(title: str, table: np.ndarray, classes: Sequence[str]) -> Markup:
    """Gold by row, predicted by column; a cell's shade is its share of the row, its number the count of dev rows."""
    from matplotlib.patches import Rectangle

    size, names = len(classes), [" \n".join(name.rsplit(" ", 1)) if len(name) > 8 else name for name in classes]
    parts = table / np.maximum(table.sum(1, keepdims=True), 1)
    with on_page(title, 350, 320) as chart:
        axes = chart.axes
        for row, column in np.ndindex(size, size):
            part, count, place = float(parts[row, column]), int(table[row, column]), (column + 0.02, row + 0.02)
            axes.add_patch(Rectangle(place, 0.96, 0.96, facecolor=GRID, alpha=0.45, linewidth=0))
            colour = BLUE if row == column else VERMILION
            cell = axes.add_patch(Rectangle(place, 0.96, 0.96, facecolor=colour, alpha=part * _DEEPEST, linewidth=0))
            chart.hint(cell, f"{classes[row]} predicted as {classes[column]}: {count:,} ({part:.1%})")
            look: Any = {"ha": "center", "color": INK}
            axes.text(column + 0.5, row + 0.5, f"{count:,}", va="bottom", fontsize=12, **look)
            axes.text(column + 0.5, row + 0.54, f"{part:.0%}", va="top", fontsize=9.5, **look)
        axes.set(xlim=(0, size), ylim=(size, 0), ylabel="gold")
        axes.set_xlabel("predicted")
        axes.set_xticks(np.arange(size) + 0.5, names)
        axes.set_yticks(np.arange(size) + 0.5, names)
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
    return chart.markup


def reliability(title: str, found: Calibration, least: float) -> Markup:
    """Accuracy of the rows of each bin of confidence, with its 95% interval, above the number of rows in it."""
    bins = [one for one in found.bins if one.high > least + 1e-9]
    with on_page(title, 340, 320, 2, sharex=True, height_ratios=(4, 1)) as chart:
        axes, rows = chart.all
        axes.plot([least, 1], [least, 1], color=QUIET, linewidth=1.2, linestyle=DASHED)
        for one in bins:
            around = wilson(one.right, one.count)
            if around is None:
                continue
            colour, alpha = (BLUE, 1.0) if one.count >= _FEW else (GREY, 0.55)
            axes.plot([one.confidence] * 2, [around.low, around.high], color=colour, alpha=alpha, linewidth=1.6)
            (dot,) = axes.plot([one.confidence], [one.accuracy], "o", color=colour, markersize=7, **_HOLLOW)
            chart.hint(dot, f"{one.count:,} rows, confidence {one.confidence:.3f}, accuracy {one.accuracy:.3f}")
        lows, counts, widths = zip(*((one.low, one.count, 0.96 * (one.high - one.low)) for one in bins), strict=True)
        bars = rows.bar(lows, counts, widths, align="edge", color=GREY, alpha=0.45, linewidth=0)
        labels = [f"{count / 1000:.1f}k" if count >= 1000 else str(count or "") for count in counts]
        rows.bar_label(bars, labels, fontsize=8.5, padding=1)
        rows.set(xlabel="confidence (probability of the predicted class)", yticks=[], xlim=(least, 1))
        rows.margins(y=0.35)
        rows.set_title("rows", pad=2)
        axes.set(ylim=(0, 1.02))
        axes.set_title("accuracy")
    return chart.markup


def scatter(title: str, gold: np.ndarray, predicted: np.ndarray, *, y_label: str, same_scale: bool) -> Markup:
    """Predicted over gold, a dot a row; at most 2,000 rows, drawn by counter. `same_scale` adds the diagonal."""
    if len(gold) > _MOST_DOTS:
        chosen = np.sort(numpy_generator(0, "scatter").permutation(len(gold))[:_MOST_DOTS])
        gold, predicted = gold[chosen], predicted[chosen]
    end = max(5.0, float(gold.max()))
    with on_page(title, 340, 320) as chart:
        axes = chart.axes
        axes.scatter(gold, predicted, s=22, color=BLUE, alpha=0.45, linewidths=0)
        axes.set(xlabel="gold similarity (points)", xlim=(-0.03 * end, 1.03 * end), xticks=range(int(end) + 1))
        axes.set_title(y_label)
        if same_scale:
            axes.plot([0, end], [0, end], color=QUIET, linewidth=1.2, linestyle=DASHED)
            axes.set(ylim=(-0.03 * end, 1.03 * end), yticks=range(int(end) + 1))
    return chart.markup


def strip(title: str, score: float | None, around: Interval | None, reported: Sequence[tuple[str, float]]) -> Markup:
    """A score with its interval on one line, and the paper's systems as ticks on it."""
    known = [value for _, value in reported] + ([] if score is None else [score])
    known += [around.low, around.high] if around else []
    air = 0.12 * (max(known) - min(known)) or 0.05
    low, high = min(known) - air, min(max(known) + air, 1.0)
    with on_page(title, 300, 56) as chart:
        axes = chart.axes
        axes.axhline(0, color=QUIET, linewidth=1)
        tick: Any = {"color": VERMILION, "markersize": 15, "markeredgewidth": 2}
        (ticks,) = axes.plot([value for _, value in reported], [0] * len(reported), "|", **tick)
        chart.hint(ticks, *(f"{name}: {value:.3f}" for name, value in reported))
        if reported:
            middle = sum(value for _, value in reported) / len(reported)
            look: Any = {"textcoords": "offset points", "ha": "center", "fontsize": 9.5, "color": VERMILION}
            axes.annotate("paper", (middle, 0), (0, 10), **look)
        if around:
            axes.plot([around.low, around.high], [0, 0], color=BLUE, alpha=0.35, linewidth=4, solid_capstyle="round")
        if score is not None:
            (dot,) = axes.plot([score], [0], "o", color=BLUE, markersize=10, **_HOLLOW)
            chart.hint(dot, f"this run: {score:.4f}")
        axes.set(xlim=(low, high), ylim=(-1, 1.4), yticks=[])
        axes.set_xticks([low, high], [f"{low:.2f}", f"{high:.2f}"], fontsize=9.5)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return chart.markup


def forest(title: str, rows: Sequence[tuple[str, float | None, Interval | None]], y_label: str) -> Markup:
    """Differences with their 95% intervals, one line each, around zero."""
    with on_page(title, 480, 52 + 28 * len(rows)) as chart:
        axes = chart.axes
        for place, (name, middle, around) in enumerate(rows):
            if around:
                look: Any = {"linewidth": 4, "alpha": 0.35, "solid_capstyle": "round"}
                axes.plot([around.low, around.high], [place, place], color=BLUE, **look)
            if middle is not None:
                (dot,) = axes.plot([middle], [place], "o", color=BLUE, markersize=8, **_HOLLOW)
                chart.hint(dot, f"{name}: {middle:+.4f}")
        axes.axvline(0, color=INK, linewidth=1, linestyle=(0, (2, 3)))
        widest = max(map(abs, axes.get_xlim()))
        axes.set(xlim=(-widest, widest), ylim=(len(rows) - 0.5, -0.5), xlabel=y_label)
        axes.set_yticks(range(len(rows)), [_clipped(name) for name, _, _ in rows])
        axes.grid(visible=False)
    return chart.markup
