"""Guards: figures are SVG with the same bytes for the same numbers, and draw every point that they are given.

python -m pytest --import-mode=importlib tests/tasks/report/test_figures.py
"""

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tasks.charts import BLUE
from tasks.contrastive.curriculum import difficulty
from tasks.report import figures
from tests.tasks.conftest import HOSTILE, make_rows

RANDOM = np.random.default_rng(3)
POSITIVE = RANDOM.uniform(0.2, 1.0, 300)
NEGATIVE = RANDOM.uniform(-0.2, 0.9, 300)
STEPS: dict[str, Any] = {"evaluations": [1], "kept": 2, "last": 3}


def draw(points: Any, unit: str = "loss", level: tuple[float, str] | None = None, **steps: Any) -> bytes:
    return figures.draw_curve(figures.Curve("", unit, points, BLUE, level), **steps)


def drawings() -> dict[str, Callable[[], bytes]]:
    """Every figure, with names that try to become markup."""
    markup = HOSTILE[0]
    sts = make_rows("sts", 40, 1, 0.6).labelled()
    return {
        "curve": lambda: draw([(1, 2.0), (2, 3.0)], markup, (1.0, markup), **STEPS),
        "mix": lambda: figures.mix([[0.8, 0.2, 0], [0.5, 0.3, 0.2]]),
        "confusion": lambda: figures.confusion(np.eye(5, dtype=int), [markup] * 5),
        "scatter": lambda: figures.scatter(sts.gold, sts.predicted, y_label=markup, same_scale=True),
        "gaps": lambda: figures.gaps(POSITIVE, NEGATIVE, 0.2),
        "one gap": lambda: figures.gaps(np.array([0.5]), np.array([0.5]), 0.0),
    }


def markers(svg: bytes) -> int:
    """The number of marked points of the curve."""
    styles = [element.get("style", "") for element in ET.fromstring(svg).iter() if element.tag.endswith("use")]
    return sum("stroke: var(--c0)" in style for style in styles)


@pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning")
@pytest.mark.parametrize("name", drawings())
def test_figure_has_the_same_bytes_twice(name: str) -> None:
    first = drawings()[name]()
    assert first == drawings()[name]()
    assert ET.fromstring(first).tag.endswith("svg")
    assert b"<script" not in first and b"dc:date" not in first
    assert b"prefers-color-scheme: dark" in first
    assert not re.search(rb"(?:fill|stroke): #0072b2", first)


def test_scatter_draws_every_row() -> None:
    random = np.random.default_rng(5)
    svgs = []
    for count in (30, 39):
        svgs.append(figures.scatter(*random.uniform(0, 5, (2, count)), y_label="", same_scale=True))
    points = [svg.count(b"<use ") for svg in svgs]
    assert points[1] - points[0] == 9


def test_histogram_counts_triplets_by_group() -> None:
    svg = drawings()["gaps"]().decode()
    groups = difficulty(POSITIVE, NEGATIVE, 0.2)
    for group, name in enumerate(("easy", "semi-hard", "hard")):
        assert f">{name}: {(groups == group).sum()} (" in svg


def test_long_curve_is_averaged_in_blocks() -> None:
    steps: dict[str, Any] = {"evaluations": [], "kept": 1, "last": 4000}
    long = draw([(step, float(step % 2)) for step in range(1, 4001)], **steps)
    blocks = draw([(10 * block + 5.5, 0.5) for block in range(400)], **steps)
    assert long == blocks
    assert markers(long) == 0 and markers(drawings()["curve"]()) == 2


def test_class_without_rows_has_no_shares() -> None:
    svg = figures.confusion(np.array([[3, 1], [0, 0]]), ["no", "yes"]).decode()
    shares = re.findall(r"<text[^>]*>([^<]*%|–)<", svg)
    assert sorted(shares) == ["25%", "75%", "–", "–"]


@pytest.mark.filterwarnings("error::UserWarning")
def test_names_of_classes_are_cut() -> None:
    """Long ones stand upright; of many classes the numbers are left out."""
    for size, longest in ((5, 20), (16, 40)):
        names = [f"{number}: 交通, a_name_of_several_words, of which one is {'long' * 9}" for number in range(size)]
        svg = figures.confusion(np.eye(size, dtype=int), names).decode()
        assert svg.count("rotate(-90)") >= size
        assert (">100%<" in svg) == (size == 5)
        texts = re.findall(r"<text[^>]*>([^<]*)<", svg)
        assert longest - 3 <= max(map(len, texts)) <= longest
    assert figures.confusion(np.eye(3, dtype=int), ["yes", "no", "may be"]).count(b"rotate(-90)") == 0
