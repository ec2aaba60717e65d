"""Self-contained pages: no network, and nothing of the data becomes markup or script."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from minbert.files import write_atomic
from tasks.intervals import Interval
from tasks.tables import number


@dataclass(frozen=True)
class Figure:
    """A figure: the stem of its file, its title, its SVG, a note, and the data of a curve that is plotted on screen."""

    name: str
    title: str
    svg: bytes
    note: str = ""
    curve: dict[str, Any] | None = None

    @property
    def source(self) -> str:
        """The SVG as the source of an image, in which no script runs."""
        return "data:image/svg+xml;base64," + b64encode(self.svg).decode()


def write_page(path: Path, html: str, figures: Sequence[Figure] = ()) -> None:
    """Write a page, and its figures as SVG into a folder beside it (`report.html`: `report-figures`).

    A lone surrogate in a text, which UTF-8 cannot encode, becomes a `?`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.stem}-figures")
    for figure in figures:
        beside.mkdir(exist_ok=True)
        write_atomic(beside / f"{figure.name}.svg", figure.svg)
    write_atomic(path, html.encode("utf-8", "replace"))


def rendered(template: str, styles: Sequence[str], scripts: Sequence[str], data: Any, **values: Any) -> str:
    """A template with its styles, scripts and data. The policy allows these alone, and forbids to fetch or send."""
    style, code = "".join(map(_part, styles)), [_part(name) for name in scripts]
    allowed = f"style-src {_hash(style)}; script-src {' '.join(map(_hash, code))}; img-src data:"
    policy = Markup(f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'")
    page = {"policy": policy, "style": Markup(style), "scripts": list(map(Markup, code)), "data": embedded(data)}
    return _environment().get_template(template).render(**page, **values)


@cache
def _environment() -> Environment:
    how: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FunctionLoader(_part), **how)
    score = partial(number, missing="undefined")
    environment.filters |= {"number": score, "signed": partial(score, digits=4, sign=True), "bounds": bounds}
    environment.filters["count"] = lambda value: "–" if value is None else f"{value:,}"
    return environment


def embedded(data: Any) -> Markup:
    """Data for a script element of type application/json: nothing in it can end the element or begin another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def bounds(around: Interval | None) -> str:
    """An interval in words, empty without one."""
    return "" if around is None else f"{number(around.low, 3)} to {number(around.high, 3)}"


def _part(name: str) -> str:
    return resources.files("tasks.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
