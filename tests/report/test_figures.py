"""Guards: figures are well-formed SVG that escapes names, ticks are round, long curves keep their mean.

python -m pytest --import-mode=importlib tests/report/test_figures.py
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import schedule
from tasks.contrastive import curriculum
from tasks.intervals import Interval
from tasks.report import collect, figures, measures, mix
from tasks.report.figures import Series
from tasks.report.svg import ticks
from tests.report.conftest import HOSTILE, made_rows

Made = Callable[..., Path]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_inside_even_and_few(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 1 <= len(found) <= 11
    assert all(low - span * 1e-6 <= value <= low + span * (1 + 1e-6) for value in found)
    gaps = np.diff(found)
    assert len(gaps) == 0 or np.allclose(gaps, gaps[0], rtol=1e-3)


@given(st.integers(1, 2000))
def test_a_thinned_curve_keeps_its_sum_and_is_short(count: int) -> None:
    points = [(float(x), float(x % 7)) for x in range(count)]
    found = figures.thinned(points, 50)
    size = -(-count // 50)
    assert len(found) <= 50
    weights = [min(size, count - start) for start in range(0, count, size)]
    assert np.dot(weights, [y for _, y in found]) == pytest.approx(sum(y for _, y in points))


@pytest.mark.parametrize("count", [1, 60, 61, 240, 1000])
def test_many_evaluations_are_thinned_and_not_left_out(count: int) -> None:
    steps = [float(step) for step in range(1, count + 1)]
    drawn = figures.curves("t", [Series("a", [(x, x) for x in steps])], y_label="y", marks=steps, dots=True)
    nodes = list(ET.fromstring(drawn).iter())
    for kind in ("mark", "dot s0"):
        found = sum(node.get("class") == kind for node in nodes)
        assert found == count if count <= 60 else 30 <= found <= 60


def test_parts_have_the_colours_they_are_given() -> None:
    made = mix.Mix(("a", "b"), (1,), ((3, 4),))
    for slots in ((), (2, 5)):
        drawn = figures.shares("t", made, ["a", "b"], x_label="x", y_label="y", apart=True, slots=slots)
        nodes = [node.get("class") for node in ET.fromstring(drawn).iter()]
        for slot in slots or (0, 1):
            assert nodes.count(f"bar f{slot}") == nodes.count(f"label n{slot}") == 1


@pytest.mark.parametrize("name", ["sst", "similarity, Spearman's rho", "x" * 60])
def test_the_names_of_differences_begin_inside_the_figure(name: str) -> None:
    drawn = ET.fromstring(figures.forest("t", [(name, 0.1, None)], "difference"))
    (label,) = [node for node in drawn.iter() if node.get("text-anchor") == "end"]
    assert label.get("class") == "label" and name.startswith((label.text or "x").rstrip("…"))
    assert float(label.get("x", "0")) >= 6 * len(label.text or ""), "about 6 pixels a letter"


def test_every_figure_is_xml_and_escapes_names() -> None:
    bad, sst, sts = HOSTILE[0], made_rows("sst", 40, 1, 0.6).labelled(), made_rows("sts", 40, 1, 0.6).labelled()
    lines = [Series(bad, [(1, 2.0), (2, 3.0)], 0), Series("b", [(1, 2.0)], 1)]
    made = mix.Mix((bad, "b"), (1, 2), ((3, 4), (0, 7)))
    drawn = [
        figures.curves(bad, lines, y_label=bad, marks=[1], best=2),
        figures.curves(bad, [], y_label="y"),
        figures.shares(bad, made, [bad, "b"], x_label="x", y_label="y", apart=False),
        figures.shares(bad, made, [bad, "b"], x_label="x", y_label="y", apart=True),
        figures.confusion(bad, np.eye(5, dtype=int), [bad] * 5),
        figures.reliability(bad, measures.calibration(sst, 10), 0.0),
        figures.scatter(bad, sts.gold, sts.predicted, y_label=bad, same_scale=True),
        figures.strip(bad, None, None, [(bad, 0.5)]),
        figures.forest(bad, [(bad, 0.1, Interval(0, 0.2)), ("b", None, None)], "x"),
    ]
    for figure in drawn:
        tags = {node.tag.split("}")[-1] for node in ET.fromstring(figure).iter()}
        assert "script" not in tags
        assert "nan" not in figure


def test_the_task_mix_is_that_of_the_plan(multitask: Made) -> None:
    run = collect.read(multitask())
    found = mix.of_tasks(run)
    assert found is not None
    plan = schedule.plan("round-robin", {"sst": 48, "quora": 160, "sts": 64}, epochs=2, batch_size=16, seed=1)
    expected = Counter(plan.at(step).task for step in range(plan.total))
    assert found.ends[-1] == plan.total
    assert dict(zip(found.parts, np.sum(found.counts, axis=0).tolist(), strict=True)) == expected
    run.manifest["plan"]["steps_per_epoch"][0] += 1
    assert mix.of_tasks(run) is None


def test_the_mix_of_a_curriculum_is_the_manifests(contrastive: Made) -> None:
    found = mix.of_curriculum(collect.read(contrastive()))
    assert found is not None
    assert found.counts == ((64, 16, 0), (58, 38, 0), (64, 43, 21))
    assert found.parts == curriculum.GROUPS
