"""One matplotlib style for the figures of the report page, the benchmark suites and run folders.

`save` writes SVG and PNG; the same numbers give the same bytes. `on_page` gives inline SVG in the colours of the
page's theme. Importing this module does not import matplotlib.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from markupsafe import Markup

from minbert.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#6b6b6b"
INK, QUIET, GRID, GROUND = "#222222", "#5a5f67", "#e6e6e6", "#ffffff"
SLOTS = (BLUE, VERMILION, GREEN, PURPLE, GREY, ORANGE)
"""Colour cycle of curves and bar segments."""
_THEME = {colour: f"var(--c{slot})" for slot, colour in enumerate(SLOTS)}
_THEME |= {INK: "var(--ink)", QUIET: "var(--quiet)", GRID: "var(--line)", GROUND: "var(--panel)"}
DASHED = (0, (4, 3))
STYLE: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "figure.facecolor": GROUND,
    "font.family": "DejaVu Sans",
    "font.size": 12,
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
    """Draw a legend below the whole figure; None if no artist has a label."""
    handles, labels = axes.get_legend_handles_labels()
    look: dict[str, Any] = {"handlelength": 1.6, "columnspacing": 1.8, **how}
    figure: Any = axes.figure
    return figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look) if handles else None


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


class PageFigure:
    """A figure of the report page. `markup` is filled when the `on_page` block ends."""

    def __init__(self, axes: "list[Axes]") -> None:
        self.all = axes
        self.axes = axes[0]
        self.hints: dict[str, Sequence[str]] = {}
        self.markup = Markup()

    def hint(self, artist: "Artist", *texts: str) -> None:
        """Set the tooltip of an artist; for a line, one text per marker, in order."""
        name = f"hint{len(self.hints)}"
        artist.set_gid(name)
        self.hints[name] = texts


@contextmanager
def on_page(name: str, width: float, height: float, count: int = 1, **how: Any) -> Iterator[PageFigure]:
    """A figure of `width` x `height` pixels with `count` stacked axes; `name` labels it for screen readers."""
    with panels(count, (width / 72, height / 72), columns=1, style=_PAGE, **how) as axes:
        chart = PageFigure(axes)
        yield chart
        out = io.BytesIO()
        figure: Any = axes[0].figure
        figure.savefig(out, format="svg")
        chart.markup = _inlined(out.getvalue(), name, chart.hints)


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


_KEPT = {
    *("d", "x", "y", "transform", "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "opacity"),
    *("stroke-dasharray", "stroke-linecap", "stroke-linejoin", "text-anchor", "font-size"),
}


def _inlined(svg: bytes, name: str, hints: dict[str, Sequence[str]]) -> Markup:
    """Rewrite matplotlib's SVG for inlining: ids and styles removed, as they could clash; colours from the theme."""
    source = ET.fromstring(svg)
    shapes = {node.get("id"): node for node in source.iter() if _tag(node) == "path" and node.get("id")}
    box = {"viewBox": source.get("viewBox", ""), "role": "img", "class": "chart", "aria-label": name}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **box})

    def add(node: ET.Element, marks: list[ET.Element]) -> None:
        tag = _tag(node)
        if tag in ("defs", "metadata"):
            return
        if node.get("id") in hints:
            marks = []
        if tag == "use":
            marks.append(ET.SubElement(root, *_marker(node, shapes[node.get(f"{_XLINK}href", "")[1:]])))
        elif tag in ("path", "text"):
            made = ET.SubElement(root, tag, _attributes(node))
            made.text = node.text
            marks += [made] if tag == "path" else []
        for child in node:
            add(child, marks)
        if texts := hints.get(node.get("id", "")):
            for mark, text in zip(marks[-len(texts) :], texts, strict=True):
                ET.SubElement(mark, "title").text = text

    add(source, [])
    return Markup(ET.tostring(root, encoding="unicode"))


_XLINK = "{http://www.w3.org/1999/xlink}"


def _tag(node: ET.Element) -> str:
    return node.tag.rpartition("}")[2]


def _attributes(node: ET.Element) -> dict[str, str]:
    """Style and position of a shape as SVG attributes: the page's content security policy forbids `style`."""
    found = dict(part.strip().split(": ", 1) for part in node.get("style", "").split(";") if ": " in part)
    if "font" in found:
        found["font-size"] = next(iter(re.findall(r"[\d.]+px", found["font"])), "11px")
    found |= {key: value for key, value in node.attrib.items() if key in _KEPT}
    found = {key: _THEME.get(value, value) for key, value in found.items() if key in _KEPT}
    for key in ("d", "x", "y"):
        if key in found:
            found[key] = " ".join(re.sub(r"-?\d+\.\d+", lambda one: f"{float(one[0]):.1f}", found[key]).split())
    if _tag(node) == "path" and "stroke" not in found and "fill" not in found:
        found["fill"] = "none"
    return found


def _marker(use: ET.Element, shape: ET.Element) -> tuple[str, dict[str, str]]:
    """The element of a marker at its position: a circle, or a translated path."""
    look = {**_attributes(shape), **_attributes(use)}
    x, y, path = look.pop("x", "0"), look.pop("y", "0"), look.pop("d")
    if path.count("C") == 8:
        radius = abs(float(path.split()[2]))
        return "circle", {"cx": x, "cy": y, "r": f"{radius:g}", **look}
    return "path", {"d": path, "transform": f"translate({x} {y})", **look}
