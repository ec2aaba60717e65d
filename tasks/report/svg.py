"""Small charts as SVG: scales, ticks, axes. Colours are classes of the page's style, so that themes reach them.

Units: every length is in the pixels of a figure that is not scaled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from markupsafe import Markup

_SPACE = "http://www.w3.org/2000/svg"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2, 5 times a power of ten) inside low..high, about `count` of them."""
    if not high > low:
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def said(value: float) -> str:
    """A tick's label: short, with thousands set apart."""
    if value and abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def padded(values: Sequence[float], *, share: float = 0.06) -> tuple[float, float]:
    """The range of the values with some air; around a constant too."""
    low, high = min(values), max(values)
    air = (high - low) * share or abs(high) * share or 1.0
    return low - air, high + air


@dataclass
class Chart:
    """One figure with a plotting area in it: `x` and `y` bring data to pixels."""

    title: str
    width: float
    height: float
    left: float = 46
    right: float = 14
    top: float = 22
    bottom: float = 38
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    root: ET.Element = field(init=False)

    def __post_init__(self) -> None:
        box = f"0 0 {self.width:g} {self.height:g}"
        self.root = ET.Element("svg", {"xmlns": _SPACE, "viewBox": box, "role": "img", "class": "chart"})
        self.root.set("aria-label", self.title)

    def x(self, value: float) -> float:
        """Pixels from the left."""
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        low, high = self.y_range
        return self.height - self.bottom - (value - low) / (high - low) * (self.height - self.top - self.bottom)

    def add(self, tag: str, kind: str = "", text: str = "", **attributes: float | str) -> ET.Element:
        """An element with a class; numbers are written with one decimal."""
        node = ET.SubElement(self.root, tag)
        if kind:
            node.set("class", kind)
        for name, value in attributes.items():
            written = value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
            node.set(name.replace("_", "-"), written)
        if text:
            node.text = text
        return node

    def text(self, x: float, y: float, text: str, kind: str = "label", anchor: str = "middle") -> None:
        """A line of text; its baseline is at y."""
        self.add("text", kind, text, x=x, y=y, text_anchor=anchor)

    def hint(self, node: ET.Element, text: str) -> None:
        """What a pointer that rests on a mark is told."""
        ET.SubElement(node, "title").text = text

    def axes(
        self, x_label: str, y_label: str, x_ticks: Sequence[float] | None = None, y_ticks: Sequence[float] | None = None
    ) -> None:
        """Horizontal grid lines, tick labels, and what the axes measure; the y axis's name lies above it."""
        x_found = ticks(*self.x_range) if x_ticks is None else x_ticks
        y_found = ticks(*self.y_range, 5) if y_ticks is None else y_ticks
        floor, edge = self.height - self.bottom, self.width - self.right
        for value in y_found:
            y = self.y(value)
            self.add("line", "grid", x1=self.left, x2=edge, y1=y, y2=y)
            self.text(self.left - 7, y + 3.5, said(value), anchor="end")
        self.add("line", "axis", x1=self.left, x2=edge, y1=floor, y2=floor)
        for value in x_found:
            x = self.x(value)
            self.add("line", "axis", x1=x, x2=x, y1=floor, y2=floor + 4)
            self.text(x, floor + 16, said(value))
        self.text((self.left + edge) / 2, self.height - 6, x_label, "name")
        if y_label:
            self.text(0, 11, y_label, "name", "start")

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line through points given in data units."""
        if points:
            places = " ".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
            self.add("path", kind, d=f"M{places}" + ("h0" if len(points) == 1 else ""))

    def markup(self) -> Markup:
        """The figure for the page; every text in it is escaped."""
        return Markup(ET.tostring(self.root, encoding="unicode"))
