"""One matplotlib style for the figures of the report page, the benchmark suites and run folders.

`save` writes SVG; `page_svg` gives the SVG of a page, whose colours follow the reader's light or dark theme.
The same numbers give the same bytes. Importing this module does not import matplotlib.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minbert.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#6b6b6b"
INK, QUIET, GRID, GROUND = "#222222", "#5a5f67", "#e6e6e6", "#ffffff"
SLOTS = (BLUE, VERMILION, GREEN, PURPLE, GREY, ORANGE)
"""Colour cycle of curves and bar segments."""
_DARK = {BLUE: "#6cb2ee", ORANGE: "#f0b94d", GREEN: "#4fcfa5", VERMILION: "#ff9a5c", PURPLE: "#e3a0c8", GREY: "#a9b0b8"}
_DARK |= {INK: "#e8edf3", QUIET: "#a4aab3", GRID: "#33373d", GROUND: "#1b1d21"}
"""The colour in a dark theme for each colour in a light one."""
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
DASHED = (0, (4, 3))
STYLE: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 200,  # of a scatter's points inside the SVG
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
    count: int, size: tuple[float, float], *, columns: int = 3, style: Any = None, **subplots: Any
) -> Iterator[list["Axes"]]:
    """`count` axes of one figure of `size` inches, which must be saved inside the `with` block."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(count, columns)
    with matplotlib.rc_context({**STYLE, **(style or {})}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(-(-count // columns), columns, squeeze=False, **subplots).ravel().tolist()
        for spare in axes[count:]:
            spare.set_visible(False)
        yield axes[:count]


def legend(axes: "Axes", columns: int, **options: Any) -> Any:
    """Draw a legend below the whole figure, of fewer columns where they are too wide; None if no artist has a label."""
    handles, labels = axes.get_legend_handles_labels()
    look: dict[str, Any] = {"handlelength": 1.6, "columnspacing": 1.8, **options}
    figure: Any = axes.figure
    if not handles:
        return None
    drawn = figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)
    if columns > 1 and drawn.get_window_extent().width > figure.bbox.width:
        drawn.remove()
        return legend(axes, columns - 1, **options)
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


def save(figure: "Figure | Any", path: Path) -> Path:
    """Write `path`.svg, and return its path; the folder is created if missing."""
    path = path.with_name(f"{path.name}.svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    write_atomic(path, out.getvalue())
    return path


@contextmanager
def page_svg(width: float, height: float) -> Iterator[tuple["Axes", io.BytesIO]]:
    """The axes of a figure of `width` x `height` pixels; after the block the buffer holds its SVG."""
    with panels(1, (width / 72, height / 72), style=_PAGE) as (axes,):
        out, svg = io.BytesIO(), io.StringIO()
        yield axes, out
        figure: Any = axes.figure
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        out.write(themed(svg.getvalue()).encode())


def themed(svg: str) -> str:
    """An SVG in this palette, with its colours as CSS variables that follow the reader's theme, and the page's font."""
    names = {colour: f"--c{number}" for number, colour in enumerate(_DARK)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var({name})")
    light = " ".join(f"{name}: {colour};" for colour, name in names.items())
    dark = " ".join(f"{name}: {_DARK[colour]};" for colour, name in names.items())
    style = f"<style>svg {{ {light} }} @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    return svg.replace("<defs>", f"{style}\n <defs>", 1).replace("'DejaVu Sans'", _FONT)


def confusion(axes: "Axes", table: np.ndarray, classes: Sequence[str]) -> None:
    """Draw `metrics.confusion`: each cell's number of rows, and its share of the gold class as shade and percentage."""
    from matplotlib.colors import to_rgba

    size, names = len(classes), [" \n".join(name.rsplit(" ", 1)) if len(name) > 8 else name for name in classes]
    parts = table / np.maximum(table.sum(1, keepdims=True), 1)
    cells = np.where(np.eye(size, dtype=bool)[..., None], to_rgba(BLUE), to_rgba(VERMILION))
    cells[..., 3] = 0.55 * parts + 0.03  # a full cell is so light that its numbers are readable
    axes.pcolormesh(cells, edgecolors=GROUND, linewidth=2)
    for (row, column), part in np.ndenumerate(parts):
        look: Any = {"ha": "center", "color": INK}
        axes.text(column + 0.5, row + 0.5, f"{int(table[row, column]):,}", va="bottom", fontsize=12, **look)
        axes.text(column + 0.5, row + 0.54, f"{part:.0%}", va="top", fontsize=9.5, **look)
    axes.set(xlim=(0, size), ylim=(size, 0), ylabel="gold", xlabel="predicted")
    axes.set_xticks(np.arange(size) + 0.5, names)
    axes.set_yticks(np.arange(size) + 0.5, names)
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def clipped(text: str, most: int) -> str:
    """A name for an axis, cut to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
