"""Self-contained pages: no network, and nothing of the data becomes markup or script."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from minbert.files import write_atomic

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


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
    """A template of this folder with some values."""
    return _TEMPLATES.get_template(template).render(**values)
