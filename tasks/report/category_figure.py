"""CBCL's Figure 1 from annotations: how often each reason to fail was chosen, by group of pairs, as SVG and PNG.

Importing this module loads no matplotlib.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.errors import UserError
from tasks import charts
from tasks.charts import BLUE, INK, QUIET, VERMILION
from tasks.intervals import wilson
from tasks.report import agreement
from tasks.report.agreement import Annotation
from tasks.report.annotation import CATEGORIES, GROUPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Failed pairs are what the figure is about.
_COLOURS = {"failed": VERMILION, "train": BLUE, "dev": "#7A9CB0"}
_LOOK: Any = {"axes.grid.axis": "x", "axes.spines.left": False, "font.size": 11}
_THICK = 0.26  # of a bar; three fill most of a category's band


def write(base: Path, annotations: Sequence[Annotation]) -> list[Path]:
    """Write `base`.svg and `base`.png, a panel for each annotation; the same counts give the same bytes."""
    if not base.absolute().parent.is_dir():
        raise UserError(f"--out {base}: {base.parent} is no folder")
    size, count = (8.4 if len(annotations) == 1 else 12.0, 7.2), len(annotations)
    with charts.panels(count, size, style=_LOOK, sharex=True, sharey=True) as panels:
        for axes, one, name in zip(panels, annotations, agreement.names(annotations), strict=True):
            _panel(axes, one)
            if count > 1:
                axes.set_title(name, fontweight="bold")
        panels[0].set_xlim(left=0)
        charts.title(panels[0].figure, "Reasons to fail, by group of pairs")
        said = "Numbers at the bars are counts of pairs, lines are 95% Wilson intervals"
        charts.legend(panels[0], 3, alignment="left", title=said, title_fontsize=10)
        return charts.save(panels[0].figure, base)


def _panel(axes: "Axes", annotation: Annotation) -> None:
    """Three bars a category, the failed pairs on top, each with its count and Wilson's interval as a whisker."""
    for place, (group, title) in enumerate(GROUPS.items()):
        total, counts = annotation.total(group), annotation.counts(group)
        if not total:
            continue
        middles = [row + (place - 1) * _THICK for row in range(len(CATEGORIES))]
        shares = [counts[one.key] / total for one in CATEGORIES]
        axes.barh(middles, shares, _THICK * 0.88, color=_COLOURS[group], label=f"{title} ({total})")
        for y, share, count in zip(middles, shares, counts.values(), strict=True):
            around = wilson(count, total)
            assert around is not None
            axes.plot([around.low, around.high], [y, y], color=INK, linewidth=1.0, solid_capstyle="butt")
            axes.annotate(
                str(count), (max(around.high, share), y), (4, 0), textcoords="offset points",
                va="center", fontsize=8.5, color=QUIET if not count else INK,
            )  # fmt: skip
    axes.set_yticks(range(len(CATEGORIES)), [one.name for one in CATEGORIES])
    axes.set_ylim(len(CATEGORIES) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(charts.percent)
    axes.set_xlabel("share of the group’s pairs")
