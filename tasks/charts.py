"""One matplotlib style for the figures of the report page, the benchmark suites and run folders.

`save` writes SVG and PNG, `page_svg` gives the SVG of a page; the same numbers give the same bytes. Importing this
module does not import matplotlib.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#6b6b6b"
INK, QUIET, GRID, GROUND = "#222222", "#5a5f67", "#e6e6e6", "#ffffff"
SLOTS = (BLUE, VERMILION, GREEN, PURPLE, GREY, ORANGE)
"""Colour cycle of curves and bar segments."""
DASHED = (0, (4, 3))
STYLE: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "figure.facecolor": GROUND,
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "text.parse_math": False,  # names of runs and encoders may hold a dollar
    "text.color": INK,
    "svg.hashsalt": "minbert",
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.w_pad": 0.09,
}
_PAGE: Any = {
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "axes.titlecolor": QUIET,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": QUIET,
    "axes.spines.left": False,
    "text.color": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "ytick.major.size": 0,
    "svg.fonttype": "none",
    "savefig.transparent": True,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}


@contextmanager
def panels(
    count: int, size: tuple[float, float], *, columns: int = 3, style: Any = None, **how: Any
) -> Iterator[list["Axes"]]:
    """`count` axes of one figure of `size` inches, which must be saved inside the `with` block."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(count, columns)
    with matplotlib.rc_context({**STYLE, **(style or {})}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(-(-count // columns), columns, squeeze=False, **how).ravel().tolist()
        for spare in axes[count:]:
            spare.set_visible(False)
        yield axes[:count]


def legend(axes: "Axes", columns: int, **how: Any) -> Any:
    """Draw a legend below the whole figure, of fewer columns where they are too wide; None if no artist has a label."""
    handles, labels = axes.get_legend_handles_labels()
    look: dict[str, Any] = {"handlelength": 1.6, "columnspacing": 1.8, **how}
    figure: Any = axes.figure
    if not handles:
        return None
    drawn = figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)
    if columns > 1 and drawn.get_window_extent().width > figure.bbox.width:
        drawn.remove()
        return legend(axes, columns - 1, **how)
    return drawn


def title(figure: Any, text: str) -> None:
    """Set the figure's title, left-aligned."""
    figure.suptitle(text, x=0.015, ha="left", fontsize=14, fontweight="bold")


def percent(value: float, _: object = None) -> str:
    """Tick label of a fraction, as a percentage."""
    return f"{100 * value:g}%"


def thousands(axis: Any) -> None:
    """Integer ticks with commas as thousands separators."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", integer=True, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def save(figure: "Figure | Any", path: Path) -> list[Path]:
    """Write `path`.svg and `path`.png; the folder is created if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        out = io.BytesIO()
        figure.savefig(out, format=kind, metadata=metadata)
        written.append(path.with_name(f"{path.name}.{kind}"))
        write_atomic(written[-1], out.getvalue())
    return written


@contextmanager
def page_svg(width: float, height: float, count: int = 1, **how: Any) -> Iterator[tuple[list["Axes"], io.BytesIO]]:
    """`count` stacked axes of a figure of `width` x `height` pixels; after the block the buffer holds its SVG."""
    with panels(count, (width / 72, height / 72), columns=1, style=_PAGE, **how) as axes:
        out = io.BytesIO()
        yield axes, out
        figure: Any = axes[0].figure
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})


def clipped(text: str, most: int = 30) -> str:
    """A name for a legend or an axis, cut to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
