"""The figures' style: `minbert.mplstyle`, a palette, and SVG that follows the reader's light or dark theme.

The same numbers give the same bytes.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from minbert.files import write_atomic

STYLE = Path(__file__).with_name("minbert.mplstyle")

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE = "#0072b2"
ORANGE = "#e69f00"
GREEN = "#009e73"
VERMILION = "#d55e00"
PURPLE = "#cc79a7"
GREY = "#6b6b6b"
INK = "#222222"
QUIET = "#5a5f67"
GRID = "#e6e6e6"
GROUND = "#ffffff"
SLOTS = (BLUE, VERMILION, GREEN, PURPLE, GREY, ORANGE)
"""Colour cycle of curves and bar segments."""
DASHED = (0, (4, 3))

_DARK = {
    BLUE: "#6cb2ee",
    ORANGE: "#f0b94d",
    GREEN: "#4fcfa5",
    VERMILION: "#ff9a5c",
    PURPLE: "#e3a0c8",
    GREY: "#a9b0b8",
    INK: "#e8edf3",
    QUIET: "#a4aab3",
    GRID: "#33373d",
    GROUND: "#1b1d21",
}
"""The colour in a dark theme for each colour in a light one."""
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


@contextmanager
def panels(
    count: int, size: tuple[float, float], *, columns: int = 3, rc: Any = None, **subplots: Any
) -> Iterator[list[Axes]]:
    """`count` axes of one figure of `size` inches, which must be saved inside the `with` block.

    `rc` are matplotlib's settings for this figure, in addition to the style sheet's.
    """
    columns = min(count, columns)
    rows = -(-count // columns)
    with style.context([STYLE, rc or {}]):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False, **subplots).ravel().tolist()
        for spare in axes[count:]:
            spare.set_visible(False)
        yield axes[:count]


def legend(axes: Axes, columns: int, **options: Any) -> None:
    """Draw a legend below the whole figure, of fewer columns where they are too wide."""
    handles, labels = axes.get_legend_handles_labels()
    figure: Any = axes.figure
    for count in range(columns, 0, -1):
        look: dict[str, Any] = {"handlelength": 1.6, "columnspacing": 1.8, **options}
        drawn = figure.legend(handles, labels, loc="outside lower center", ncols=count, **look)
        if count == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return
        drawn.remove()


def title(figure: Any, text: str) -> None:
    """Set the figure's title, left-aligned."""
    figure.suptitle(text, x=0.015, ha="left", fontsize=14, fontweight="bold", color=INK)


def percent(value: float, _: object = None) -> str:
    """Tick label of a fraction, as a percentage."""
    return f"{100 * value:g}%"


def thousands(axis: Any) -> None:
    """Integer ticks with commas as thousands separators."""
    # few, as matplotlib does not know how wide these labels are
    axis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    axis.set_major_formatter("{x:,.0f}")


def save(figure: Any, path: Path) -> None:
    """Write an SVG; its folder is created if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, _svg(figure, transparent=False))


@contextmanager
def page_svg(width: float, height: float) -> Iterator[tuple[Axes, io.BytesIO]]:
    """The axes of a figure of `width` x `height` pixels; after the block the buffer holds its SVG."""
    with panels(1, (width / 72, height / 72)) as (axes,):
        buffer = io.BytesIO()
        yield axes, buffer
        buffer.write(_svg(axes.figure, transparent=True).encode())


def _svg(figure: Any, *, transparent: bool) -> str:
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # texts stay texts, which the reader's fonts draw
        warnings.filterwarnings("ignore", r"Glyph \d+")
        # without its date and creator the file depends on the numbers alone
        figure.savefig(buffer, format="svg", transparent=transparent, metadata={"Date": None, "Creator": None})
    return _themed(buffer.getvalue())


def _themed(svg: str) -> str:
    """An SVG in this palette, with its colours as CSS variables that follow the reader's theme, and the page's font."""
    light = []
    dark = []
    for number, (colour, dark_colour) in enumerate(_DARK.items()):
        svg = svg.replace(colour, f"var(--c{number})")
        light.append(f"--c{number}: {colour};")
        dark.append(f"--c{number}: {dark_colour};")
    rule = f"svg {{ {' '.join(light)} }} @media (prefers-color-scheme: dark) {{ svg {{ {' '.join(dark)} }} }}"
    svg = svg.replace("<defs>", f"<style>{rule}</style>\n <defs>", 1)
    return svg.replace("'DejaVu Sans'", _FONT)
