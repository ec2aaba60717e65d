"""The figures of a report page, each as the bytes of an SVG."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from minbert.seeds import numpy_generator
from tasks import charts
from tasks.charts import BLUE, DASHED, GREEN, GREY, INK, ORANGE, QUIET, VERMILION, page_svg
from tasks.contrastive.curriculum import GROUPS, difficulty

Points = Sequence[tuple[float, float]]
_LONGEST = 400  # points of a curve; longer ones are averaged over neighbours
_MOST_DOTS = 1500
_MOST_MARKS = 60  # points of a curve that are marked
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


def curve(
    unit: str,
    points: Points,
    colour: str,
    *,
    marks: Sequence[float],
    kept: float,
    last: float,
    dotted: bool = False,
    level: tuple[float, str] | None = None,
) -> bytes:
    """A line over steps; `dotted` marks its points. The y axis fits the values, the x axis begins at 0.

    `marks` are steps that are marked on the axis, `kept` is the step whose weights were kept, `last` is where the axis
    ends at least, `level` a value to compare with and its name.
    """
    size = -(-len(points) // _LONGEST)
    x, y = pd.DataFrame(points).groupby(lambda row: row // size).mean().T.to_numpy()
    with page_svg(340, 210) as (axes, out):
        marked = dotted or len(x) == 1
        look: Any = {"marker": "o" if marked else "", "markevery": -(-len(x) // _MOST_MARKS), "markersize": 4.5}
        axes.plot(x, y, color=colour, **look)
        if level is not None:
            value, name = level
            axes.axhline(value, color=GREY, linewidth=1.2, linestyle=DASHED)
            axes.annotate(name, (0, value), (3, 3), xycoords=("axes fraction", "data"), textcoords="offset points")
        foot, few = axes.get_xaxis_transform(), marks[:: -(-len(marks) // _MOST_MARKS) or 1]
        if few:  # an empty line outside of the axes would leave a gap below them
            axes.plot(few, [0] * len(few), marker=2, linestyle="none", color=QUIET, transform=foot, clip_on=False)
        axes.axvline(kept, color=INK, linewidth=1, linestyle=(0, (2, 3)))
        axes.annotate("kept", (kept, 1), (0, 3), xycoords=foot, textcoords="offset points", ha="center", color=INK)
        axes.set(xlabel="step", xlim=(0, max(last, *x, 1)))
        axes.set_title(unit, pad=16)
        charts.thousands(axes.xaxis)
    return out.getvalue()


def mix(shares: Sequence[Sequence[float]]) -> bytes:
    """The shares of easy, semi-hard and hard triplets in each epoch (CBCL, equation 2): [epochs, 3]."""
    heights = np.array(shares).T
    epochs, base = np.arange(1, len(shares) + 1), np.vstack([np.zeros(len(shares)), heights.cumsum(0)])
    with page_svg(340, 242) as (axes, out):
        for group, name in enumerate(GROUPS):
            axes.bar(epochs, heights[group], 0.98, base[group], color=_GROUP_COLOURS[name], label=name)
        axes.set(xlabel="epoch", ylim=(0, 1))
        axes.yaxis.set_major_formatter(charts.percent)
        charts.thousands(axes.xaxis)
        charts.legend(axes, 3, handlelength=0.8, handletextpad=0.4)
    return out.getvalue()


def confusion(table: np.ndarray, classes: Sequence[str]) -> bytes:
    """Gold by row, predicted by column; see `charts.confusion`."""
    with page_svg(350, 320) as (axes, out):
        charts.confusion(axes, table, classes)
    return out.getvalue()


def scatter(gold: np.ndarray, predicted: np.ndarray, *, y_label: str, same_scale: bool) -> bytes:
    """Predicted over gold, a dot a row; at most 1,500 rows, sampled by counter. `same_scale` adds the diagonal."""
    if len(gold) > _MOST_DOTS:
        sample = np.sort(numpy_generator(0, "scatter").permutation(len(gold))[:_MOST_DOTS])
        gold, predicted = gold[sample], predicted[sample]
    end = 1.0 if not same_scale and gold.max() <= 1 else max(5.0, float(gold.max()))
    with page_svg(340, 320) as (axes, out):
        axes.plot(gold, predicted, "o", markersize=4.5, color=BLUE, alpha=0.6, markeredgewidth=0)
        axes.set(xlabel="gold similarity (points)", xlim=(-0.03 * end, 1.03 * end), xticks=range(int(end) + 1))
        axes.set_title(y_label)
        if same_scale:
            axes.plot([0, end], [0, end], color=QUIET, linewidth=1.2, linestyle=DASHED)
            axes.set(ylim=(-0.03 * end, 1.03 * end), yticks=range(int(end) + 1))
    return out.getvalue()


def gaps(positive: np.ndarray, negative: np.ndarray, margin: float) -> bytes:
    """Histogram of cos(anchor, positive) - cos(anchor, hard negative), [N] each, coloured by group (SelfCCL, 4.3.1)."""
    gap = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    groups = difficulty(positive, negative, margin)
    width = margin / max(1, round(margin / 0.025)) if margin > 0 else 0.025  # so that bins end at 0 and at the margin
    edges = np.arange(np.floor(gap.min() / width), np.ceil(gap.max() / width) + 1.5) * width
    with page_svg(340, 262) as (axes, out):
        for group, name in reversed(list(enumerate(GROUPS))):
            part = gap[groups == group]
            label = f"{name}: {len(part):,} ({len(part) / len(gap):.0%})"
            axes.hist(part, bins=edges.tolist(), color=_GROUP_COLOURS[name], label=label)
        for x, name in {0.0: "0", margin: f"margin {margin:g}"}.items():
            axes.axvline(x, color=INK, linewidth=1, linestyle=DASHED)
            look: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top"}
            axes.annotate(name, (x, 1), (4, -2), color=INK, **look)
        axes.set(xlabel="cos(anchor, positive) − cos(anchor, hard negative)")
        axes.set_title("triplets")
        charts.thousands(axes.yaxis)
        charts.legend(axes, 3)
    return out.getvalue()
