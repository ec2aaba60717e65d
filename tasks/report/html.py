"""Self-contained pages: no network, and nothing of the data becomes markup or script."""

from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Figure:
    """A figure: its title, its SVG, and a note."""

    title: str
    svg: bytes
    note: str = ""

    @property
    def source(self) -> str:
        """The SVG as the source of an image, in which no script runs."""
        return "data:image/svg+xml;base64," + b64encode(self.svg).decode()


def rendered(template: str, **values: Any) -> str:
    """A template of this folder with some values."""
    return _TEMPLATES.get_template(template).render(**values)
