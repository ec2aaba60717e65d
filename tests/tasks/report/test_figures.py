"""Guards: figures are SVG with the same bytes for the same numbers, fit their values, and draw what they are given.

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
from tests.tasks.report.conftest import HOSTILE, made_rows

DRAWS = np.random.default_rng(3)
POSITIVE, NEGATIVE = DRAWS.uniform(0.2, 1.0, 300), DRAWS.uniform(-0.2, 0.9, 300)


def drawings() -> dict[str, Callable[[], bytes]]:
    """Every figure, with names that try to become markup."""
    bad, sts = HOSTILE[0], made_rows("sts", 40, 1, 0.6).labelled()
    steps: dict[str, Any] = {"marks": [1], "kept": 2, "last": 3}
    return {
        "curve": lambda: figures.curve(bad, [(1, 2.0), (2, 3.0)], BLUE, level=(1.0, bad), **steps),
        "one point": lambda: figures.curve(bad, [(1, 2.0)], BLUE, dotted=True, **steps),
        "mix": lambda: figures.mix([[0.8, 0.2, 0], [0.5, 0.3, 0.2]]),
        "confusion": lambda: figures.confusion(np.eye(5, dtype=int), [bad] * 5),
        "scatter": lambda: figures.scatter(sts.gold, sts.predicted, y_label=bad, same_scale=True),
        "gaps": lambda: figures.gaps(POSITIVE, NEGATIVE, 0.2),
        "one gap": lambda: figures.gaps(np.array([0.5]), np.array([0.5]), 0.0),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", drawings())
def test_a_figure_is_xml_with_the_same_bytes_twice(name: str) -> None:
    first, second = drawings()[name](), drawings()[name]()
    assert first == second
    assert ET.fromstring(first).tag.endswith("svg")
    assert b"<script" not in first and b"dc:date" not in first
    assert b"prefers-color-scheme: dark" in first and not re.search(rb"(?:fill|stroke): #0072b2", first)


def test_the_histogram_of_gaps_counts_every_triplet_in_its_group() -> None:
    svg = drawings()["gaps"]().decode()
    for group, name in enumerate(("easy", "semi-hard", "hard")):
        assert f">{name}: {int((difficulty(POSITIVE, NEGATIVE, 0.2) == group).sum())} (" in svg


def test_a_long_curve_is_drawn_by_the_means_of_its_blocks() -> None:
    steps: dict[str, Any] = {"marks": [], "kept": 1, "last": 4000}
    long = figures.curve("loss", [(step, float(step % 2)) for step in range(1, 4001)], BLUE, **steps)
    blocks = figures.curve("loss", [(10 * block + 5.5, 0.5) for block in range(400)], BLUE, **steps)
    assert long == blocks
