"""The figures of a report page, each a string of SVG: curves, shares, confusion, reliability, scatter, intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from minbert.seeds import numpy_generator
from tasks.intervals import Interval, wilson
from tasks.report.measures import Calibration
from tasks.report.mix import Mix
from tasks.report.svg import Chart, padded, said, ticks

_LONGEST = 300  # points of a curve; longer ones are averaged over neighbours
_MOST_DOTS = 2000
_MOST_MARKS = 60  # evaluations that are marked on a curve
_DEEPEST = 0.55  # opacity of a full cell: the numbers on it stay readable in both themes
_FEW = 10  # rows of a bin under which its accuracy says little


@dataclass(frozen=True)
class Series:
    """One curve: its name, its points, and which of the page's colours it has."""

    label: str
    points: Sequence[tuple[float, float]]
    slot: int = 0


def thinned(points: Sequence[tuple[float, float]], longest: int = _LONGEST) -> list[tuple[float, float]]:
    """At most `longest` points, each the mean of as many neighbours."""
    size = -(-len(points) // longest)
    chunks = [points[start : start + size] for start in range(0, len(points), max(size, 1))]
    return [tuple(np.mean(chunk, axis=0).tolist()) for chunk in chunks] if size > 1 else list(points)


def curves(
    title: str, series: Sequence[Series], *, y_label: str, marks: Sequence[float] = (), best: float | None = None,
    dots: bool = False, from_zero: bool = False, last: float = 0.0, x_label: str = "step",
) -> Markup:  # fmt: skip
    """Lines over steps. `marks` are the evaluations, `best` the one that was kept, `last` the end of the x axis."""
    values = [y for one in series for _, y in one.points]
    furthest = max([last, *(x for one in series for x, _ in one.points)], default=1.0) or 1.0
    low, high = padded(values) if values else (0.0, 1.0)
    y_range = (0.0 if from_zero or (0 <= min(values, default=0) < 0.3 * high) else low, high)
    named = len(series) > 1
    chart = Chart(title, 340, 220, x_range=(0, furthest), y_range=y_range, right=98 if named else 14, top=36)
    _marks(chart, marks, best)
    chart.axes(x_label, y_label)
    for one in series:
        points = thinned(one.points)
        chart.path(points, f"curve s{one.slot}")
        if dots:
            _dots(chart, points, one.slot, y_label)
    if named:
        _names(chart, [(chart.y(one.points[-1][1]), one.label, one.slot) for one in series if one.points])
    return chart.markup()


def _marks(chart: Chart, marks: Sequence[float], best: float | None) -> None:
    """Evaluations as ticks at the foot of the plot, thinned where they crowd; the best one as a line with its name."""
    floor = chart.height - chart.bottom
    for step in marks[_sparse(len(marks))]:
        chart.add("line", "mark", x1=chart.x(step), x2=chart.x(step), y1=floor - 5, y2=floor)
    if best is not None:
        x = chart.x(best)
        chart.add("line", "best", x1=x, x2=x, y1=chart.top - 6, y2=floor)
        right = x > chart.width / 2
        chart.text(x + (4 if right else -4), chart.top - 9, "best", "label bestname", "end" if right else "start")


def _sparse(count: int) -> slice:
    """Every one of `count`, or every second, third and so on: `_MOST_MARKS` at most."""
    return slice(None, None, max(1, -(-count // _MOST_MARKS)))


def _dots(chart: Chart, points: Sequence[tuple[float, float]], slot: int, what: str) -> None:
    for x, y in points[_sparse(len(points))]:
        node = chart.add("circle", f"dot s{slot}", cx=chart.x(x), cy=chart.y(y), r=2.6)
        chart.hint(node, f"step {x:,.0f}: {what} {y:.4f}")


def _names(chart: Chart, ends: list[tuple[float, str, int]]) -> None:
    """The curves' names at their right ends, moved apart where they would touch."""
    lowest = chart.height - chart.bottom
    places = sorted(ends)
    heights = [y for y, _, _ in places]
    for number in range(1, len(heights)):
        heights[number] = max(heights[number], heights[number - 1] + 12)
    over = max(0.0, heights[-1] - lowest) if heights else 0.0
    for height, (_, label, slot) in zip(heights, places, strict=True):
        place = chart.width - chart.right + 5
        chart.text(place, height - over + 3.5, _clipped(label, 14), f"label n{slot}", "start")


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def shares(
    title: str, mix: Mix, labels: Sequence[str], *, x_label: str, y_label: str, apart: bool, slots: Sequence[int] = ()
) -> Markup:
    """What each window holds, as shares of it: side by side over steps, or as bars `apart`, one an epoch.

    `slots` are the page's colours of the parts, one after the other unless given.
    """
    chart = Chart(title, 340, 220, x_range=(0, mix.ends[-1]), right=78, top=36)
    if apart:
        chart.x_range = (0.5, mix.ends[-1] + 0.5)
    start = 0.5 if apart else 0
    middles: list[tuple[float, str, int]] = []
    chart.axes(x_label, y_label, _whole(mix.ends) if apart else None)
    for end, row in zip(mix.ends, mix.counts, strict=True):
        edge = end + 0.5 if apart else end
        base, total, middles = 0.0, sum(row) or 1, []
        for part, count in enumerate(row):
            slot = slots[part] if slots else part
            top = base + count / total
            gap = 2.0 if apart else 0.0
            left, right = chart.x(start) + gap, chart.x(edge) - gap
            box: dict[str, Any] = {"x": left, "width": max(right - left, 0.5), "y": chart.y(top)}
            node = chart.add("rect", f"bar f{slot}", **box, height=max(chart.y(base) - chart.y(top) - 0.8, 0))
            chart.hint(node, f"{x_label} {end:,}: {labels[part]} {count:,}")
            middles.append((chart.y((base + top) / 2), labels[part], slot))
            base = top
        start = edge
    _names(chart, middles)
    return chart.markup()


def _whole(ends: Sequence[int]) -> list[float]:
    return [value for value in ticks(1, max(ends), 6) if value == int(value)]


def confusion(title: str, table: np.ndarray, classes: Sequence[str]) -> Markup:
    """Gold by row, predicted by column; a cell's shade is its share of the row, its number the count of dev rows."""
    size = len(classes)
    left, top, cell = 84.0, 46.0, min(250.0 / size, 116.0)
    chart = Chart(title, 350, top + cell * size + 6)
    chart.text(left + cell * size / 2, 12, "predicted", "name")
    chart.text(left - 10, top - 12, "gold", "name", "end")
    totals = np.maximum(table.sum(1, keepdims=True), 1)
    for row in range(size):
        middle = top + cell * (row + 0.5)
        _wrapped(chart, left - 10, middle + 3.5, classes[row], "end")
        _wrapped(chart, left + cell * (row + 0.5), top - 12, classes[row], "middle")
        for column in range(size):
            part, x, y = float(table[row, column] / totals[row, 0]), left + cell * column, top + cell * row
            kind = "cell right" if row == column else "cell wrong"
            square: dict[str, Any] = {"x": x + 1, "y": y + 1, "width": cell - 2, "height": cell - 2, "rx": 3.0}
            chart.add("rect", "ground", **square)
            node = chart.add("rect", kind, fill_opacity=f"{part * _DEEPEST:.3f}", **square)
            chart.hint(node, f"{classes[row]} predicted as {classes[column]}: {table[row, column]:,} ({part:.1%})")
            chart.text(x + cell / 2, y + cell / 2 + 1, f"{table[row, column]:,}", "count")
            chart.text(x + cell / 2, y + cell / 2 + 14, f"{part:.0%}", "count small")
    return chart.markup()


def _wrapped(chart: Chart, x: float, y: float, text: str, anchor: str) -> None:
    """One or two lines around a height."""
    words = text.split(" ")
    lines = [text] if len(words) == 1 or len(text) <= 8 else [" ".join(words[:-1]), words[-1]]
    for number, line in enumerate(lines):
        chart.text(x, y + (number - (len(lines) - 1) / 2) * 12, _clipped(line, 13), "label", anchor)


def reliability(title: str, found: Calibration, least: float) -> Markup:
    """Accuracy of the rows of each bin of confidence, with its 95% interval, above the number of rows in it."""
    chart = Chart(title, 340, 300, x_range=(least, 1), y_range=(0, 1), bottom=104)
    steps = [0, 0.25, 0.5, 0.75, 1]
    chart.axes("", "accuracy", [], steps)
    chart.add("line", "ideal", x1=chart.x(least), y1=chart.y(least), x2=chart.x(1), y2=chart.y(1))
    most, base = max((one.count for one in found.bins), default=1) or 1, 268.0
    for one in found.bins:
        if one.high <= least + 1e-9:
            continue
        x, width = chart.x(one.low), chart.x(one.high) - chart.x(one.low)
        tall = 38 * one.count / most
        chart.add("rect", "bar muted", x=x + 1, width=width - 2, y=base - tall, height=tall)
        if one.count:
            chart.text(x + width / 2, base - tall - 3, _short(one.count), "tiny")
        if one.accuracy is None or one.confidence is None:
            continue
        around = wilson(round(one.accuracy * one.count), one.count)
        assert around is not None  # the bin has rows
        middle, slot = chart.x(one.confidence), "s0" if one.count >= _FEW else "few"
        chart.add("line", f"whisker {slot}", x1=middle, x2=middle, y1=chart.y(around.low), y2=chart.y(around.high))
        node = chart.add("circle", f"dot {slot}", cx=middle, cy=chart.y(one.accuracy), r=3.6)
        chart.hint(node, f"{one.count:,} rows, confidence {one.confidence:.3f}, accuracy {one.accuracy:.3f}")
    chart.add("line", "axis", x1=chart.left, x2=chart.width - chart.right, y1=base, y2=base)
    for value in ticks(least, 1, 5):
        chart.text(chart.x(value), base + 14, said(value))
    chart.text(
        (chart.left + chart.width - chart.right) / 2, 297, "confidence (probability of the predicted class)", "name"
    )
    chart.text(chart.left - 7, base, "rows", "label", "end")
    return chart.markup()


def _short(count: int) -> str:
    return f"{count / 1000:.1f}k" if count >= 1000 else str(count)


def scatter(title: str, gold: np.ndarray, predicted: np.ndarray, *, y_label: str, same_scale: bool) -> Markup:
    """Predicted over gold, a dot a row; at most 2,000 rows, drawn by counter. `same_scale` adds the diagonal."""
    if len(gold) > _MOST_DOTS:
        chosen = np.sort(numpy_generator(0, "scatter").permutation(len(gold))[:_MOST_DOTS])
        gold, predicted = gold[chosen], predicted[chosen]
    x_range = (0.0, max(5.0, float(gold.max())))
    y_range = (0.0, x_range[1]) if same_scale else padded(predicted.tolist())
    air = (x_range[1] - x_range[0]) * 0.03
    chart = Chart(title, 340, 320, x_range=(x_range[0] - air, x_range[1] + air), y_range=y_range, bottom=42)
    if same_scale:
        chart.y_range = chart.x_range
    marks = [float(value) for value in range(int(x_range[1]) + 1)]
    chart.axes("gold similarity (points)", y_label, marks, marks if same_scale else None)
    if same_scale:
        chart.add("line", "ideal", x1=chart.x(0), y1=chart.y(0), x2=chart.x(x_range[1]), y2=chart.y(x_range[1]))
    for x, y in zip(gold.tolist(), predicted.tolist(), strict=True):
        chart.add("circle", "speck f0", cx=chart.x(x), cy=chart.y(y), r=2.4)
    return chart.markup()


def strip(title: str, score: float | None, around: Interval | None, reported: Sequence[tuple[str, float]]) -> Markup:
    """A score with its interval on one line, and the paper's systems as ticks on it."""
    known = [value for _, value in reported] + ([] if score is None else [score])
    known += [around.low, around.high] if around else []
    low, high = padded(known, share=0.12)
    high = min(high, 1.0)
    chart = Chart(title, 300, 48, left=6, right=6, top=0, bottom=0, x_range=(low, high))
    if reported:
        middle = sum(value for _, value in reported) / len(reported)
        chart.text(min(max(chart.x(middle), 18), 282), 9, "paper", "tiny n1")
    chart.add("line", "axis", x1=6, x2=294, y1=22, y2=22)
    for name, value in reported:
        node = chart.add("line", "paper", x1=chart.x(value), x2=chart.x(value), y1=14, y2=30)
        chart.hint(node, f"{name}: {value:.3f}")
    if around:
        chart.add("line", "range s0", x1=chart.x(around.low), x2=chart.x(around.high), y1=22, y2=22)
    if score is not None:
        chart.hint(chart.add("circle", "dot s0", cx=chart.x(score), cy=22, r=5), f"this run: {score:.4f}")
    for place, anchor in ((low, "start"), (high, "end")):
        chart.text(chart.x(place), 44, f"{place:.2f}", "tiny", anchor)
    return chart.markup()


def forest(title: str, rows: Sequence[tuple[str, float | None, Interval | None]], y_label: str) -> Markup:
    """Differences with their 95% intervals, one line each, around zero."""
    ends = [
        value for _, middle, around in rows for value in ((around.low, around.high) if around else (middle or 0.0,))
    ]
    widest = max([abs(value) for value in ends] + [1e-3]) * 1.15
    left = 16 + 6.6 * min(max((len(name) for name, _, _ in rows), default=0), 30)  # pixels of the longest name
    height = 44 + 28 * len(rows)
    chart = Chart(title, left + 292, height, left=left, right=12, top=6, bottom=38, x_range=(-widest, widest))
    chart.y_range = (len(rows), 0)
    chart.axes(y_label, "", None, [])
    zero = chart.x(0)
    chart.add("line", "best", x1=zero, x2=zero, y1=chart.top, y2=chart.height - chart.bottom)
    for number, (name, middle, around) in enumerate(rows):
        y = chart.y(number + 0.5)
        chart.text(chart.left - 10, y + 4, _clipped(name, 30), "label", "end")
        if around:
            chart.add("line", "range s0", x1=chart.x(around.low), x2=chart.x(around.high), y1=y, y2=y)
        if middle is not None:
            chart.hint(chart.add("circle", "dot s0", cx=chart.x(middle), cy=y, r=4.5), f"{name}: {middle:+.4f}")
    return chart.markup()
