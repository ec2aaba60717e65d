"""Self-contained pages: no network, and nothing of the data becomes markup or script."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from minbert.files import write_atomic


@dataclass(frozen=True)
class Figure:
    """A figure: the stem of its file, its title, its SVG, and a note."""

    name: str
    title: str
    svg: bytes
    note: str = ""

    @property
    def source(self) -> str:
        """The SVG as the source of an image, in which no script runs."""
        return "data:image/svg+xml;base64," + b64encode(self.svg).decode()


def write_page(path: Path, html: str, figures: Sequence[Figure] = ()) -> None:
    """Write a page, and its figures as SVG into a folder next to it (`report.html`: `report-figures`)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f"{path.stem}-figures")
    for figure in figures:
        folder.mkdir(exist_ok=True)
        write_atomic(folder / f"{figure.name}.svg", figure.svg)
    write_atomic(path, html)


def rendered(template: str, **values: Any) -> str:
    """A template with the style and the script."""
    page = {"style": Markup(_part("style.css")), "script": Markup(_part("base.js"))}
    return _environment().get_template(template).render(**page, **values)


@cache
def _environment() -> Environment:
    options: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined}
    return Environment(loader=FunctionLoader(_part), trim_blocks=True, lstrip_blocks=True, **options)


def _part(name: str) -> str:
    return resources.files("tasks.report").joinpath(name).read_text(encoding="utf-8")
