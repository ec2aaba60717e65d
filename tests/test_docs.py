"""Guards: no dead link in any page, and the figure's numbers stand in the tables.

python -m pytest --import-mode=importlib tests/test_docs.py
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "ablations").rglob("*.md"))]


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_no_link_is_dead(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: there is no {target}"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_the_figure_shows_the_numbers_of_the_tables() -> None:
    lines = [line.lstrip("| ") for line in (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").splitlines()]
    figure = (ROOT / "docs" / "results.svg").read_text(encoding="utf-8")
    for name, value, _, _, start in json.loads((ROOT / "docs" / "results.json").read_text())["rows"]:
        (row,) = [line for line in lines if line.startswith(start) and f"| {value:.4f}".replace("0.", ".") in line]
        assert row and f"{name}: {value:.4f}" in figure
