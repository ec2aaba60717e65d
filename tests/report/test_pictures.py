"""Guards: pictures show what they are given, open as SVG and PNG, and have the same bytes for the same numbers.

python -m pytest --import-mode=importlib tests/report/test_pictures.py
"""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tasks.contrastive.curriculum import difficulty
from tasks.report import pictures

RNG = np.random.default_rng(3)
POSITIVE, NEGATIVE = RNG.uniform(0.2, 1.0, 300), RNG.uniform(-0.2, 0.9, 300)
ROWS = [
    *({"kind": "train", "step": step, "epoch": 1, "lr": 1e-5, "nli/loss": 3 - step / 400} for step in (50, 100, 150)),
    {"kind": "evaluation", "step": 100, "epoch": 1, "score": 0.7, "best": True, "sts_dev_spearman": 0.7},
    {"kind": "evaluation", "step": 150, "epoch": 2, "score": -1.0, "best": False, "sts_dev_spearman": None},
    {"kind": "evaluation", "step": 200, "epoch": 2, "score": 0.65, "best": False, "sts_dev_spearman": 0.65},
]
DRAW: dict[str, Callable[[Path], None]] = {
    "gaps": lambda path: pictures.gaps(path, POSITIVE, NEGATIVE, 0.2),
    "loss": lambda path: pictures.losses(path, ROWS, math.log(64)),
    "sts": lambda path: pictures.spearman(path, ROWS, 0.6, (200, 0.65, "last")),
    "sts not helped": lambda path: pictures.spearman(path, ROWS, 0.75, (0, 0.75, "best")),
    "cosines": lambda path: pictures.cosines(path, (POSITIVE, NEGATIVE), (POSITIVE, NEGATIVE - 0.3)),
    "mix": lambda path: pictures.mix(path, np.array([[1, 0, 0], [0.6, 0.4, 0], [0.5, 0.3, 0.2]])),
}


@pytest.mark.parametrize("name", DRAW)
def test_both_files_are_written_with_the_same_bytes_twice(name: str, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        DRAW[name](tmp_path / folder / name)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [f"{name}.png", f"{name}.svg"]
    for kind in ("svg", "png"):
        first, second = ((tmp_path / folder / f"{name}.{kind}").read_bytes() for folder in ("one", "two"))
        assert first == second
    assert ElementTree.parse(tmp_path / "one" / f"{name}.svg").getroot().tag.endswith("svg")
    with Image.open(tmp_path / "one" / f"{name}.png") as image:
        assert image.size == (1600, 900) and len(image.convert("RGB").getcolors(1 << 20) or []) > 10
    assert b"dc:date" not in (tmp_path / "one" / f"{name}.svg").read_bytes()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """A function that draws a picture and gives its axes."""
    from matplotlib.figure import Figure

    seen: list[Figure] = []
    real = Figure.savefig

    def spy(self: Figure, *arguments: Any, **more: Any) -> None:
        seen.append(self)
        real(self, *arguments, **more)

    monkeypatch.setattr(Figure, "savefig", spy)

    def draw(name: str) -> Any:
        DRAW[name](tmp_path / name)
        return seen[-1].axes[0]

    return draw


def labels(axes: Any) -> list[str]:
    return [text.get_text() for legend in axes.figure.legends for text in legend.get_texts()]


def test_the_histogram_of_gaps_counts_every_triplet_in_its_group(drawn: Callable[[str], Any]) -> None:
    axes = drawn("gaps")
    hard, semi, easy = (int((difficulty(POSITIVE, NEGATIVE, 0.2) == group).sum()) for group in (2, 1, 0))
    assert [label.split(" (")[0] for label in labels(axes)] == [f"hard: {hard}", f"semi-hard: {semi}", f"easy: {easy}"]
    assert sum(bar.get_height() for bar in axes.patches) == 300
    assert sorted(line.get_xdata()[0] for line in axes.lines) == [0.0, 0.2]
    coloured = {bar.get_facecolor() for bar in axes.patches if bar.get_height() and bar.get_x() >= 0.2 - 1e-9}
    assert len(coloured) == 1, "bins end at the margin"


def test_the_loss_has_its_points_and_the_chance_level(drawn: Callable[[str], Any]) -> None:
    curve, chance = drawn("loss").lines
    assert curve.get_xdata().tolist() == [50, 100, 150] and curve.get_ydata() == pytest.approx([2.875, 2.75, 2.625])
    assert set(chance.get_ydata()) == {math.log(64)}
    assert labels(curve.axes) == ["loss", "chance: 4.16"]


def test_spearman_marks_before_and_the_kept_encoder_and_leaves_out_the_undefined(drawn: Callable[[str], Any]) -> None:
    axes = drawn("sts")
    assert axes.lines[0].get_xydata() == pytest.approx(np.array([[0, 60], [100, 70], [200, 65]]))
    assert labels(axes) == ["before: 60.00", "kept: 65.00, last at step 200"]
    assert labels(drawn("sts not helped")) == ["before: 75.00", "kept: 75.00, before training"]


def test_the_mix_is_stacked_to_one(drawn: Callable[[str], Any]) -> None:
    axes = drawn("mix")
    tops = [patch.get_data().values.tolist() for patch in axes.patches]
    assert np.array(tops) == pytest.approx(np.array([[1, 0.6, 0.5], [1, 1, 0.8], [1, 1, 1]]))
    assert axes.patches[0].get_data().edges.tolist() == [0.5, 1.5, 2.5, 3.5]


@pytest.mark.filterwarnings("error")
def test_empty_runs_are_drawn_too(tmp_path: Path) -> None:
    pictures.losses(tmp_path / "a", [], 1.0)
    pictures.spearman(tmp_path / "b", [])
    pictures.gaps(tmp_path / "d", np.array([0.5]), np.array([0.5]), 0.0)
    pictures.losses(tmp_path / "e", [{"kind": "train", "step": 1, "nli/loss": 0.0}], None)  # one text has no negatives
    assert len(list(tmp_path.iterdir())) == 8


def test_importing_loads_no_matplotlib() -> None:
    code = "import sys; from tasks.report import pictures; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
