"""Guards: figures are SVG that a page can hold, marks say what they are, long curves keep their mean.

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
from tasks.report import collect, figures, measures, training
from tasks.report.figures import Mix, Series
from tests.report.conftest import HOSTILE, made_rows

Made = Callable[..., Path]


@given(st.integers(1, 2000))
def test_a_thinned_curve_keeps_its_sum_and_is_short(count: int) -> None:
    points = [(float(x), float(x % 7)) for x in range(count)]
    found = figures.thinned(points, 50)
    size = -(-count // 50)
    assert len(found) <= 50
    weights = [min(size, count - start) for start in range(0, count, size)]
    assert np.dot(weights, [y for _, y in found]) == pytest.approx(sum(y for _, y in points))


def hints(drawn: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(drawn).iter() if node.tag.endswith("title")]


@pytest.mark.parametrize("count", [1, 60, 61, 240, 1000])
def test_many_evaluations_are_thinned_and_not_left_out(count: int) -> None:
    points = [(float(step), float(step)) for step in range(1, count + 1)]
    drawn = figures.curves("t", [Series("a", points)], y_label="y", marks=[x for x, _ in points], dots=True)
    found = hints(drawn)
    assert len(found) == count if count <= 60 else 30 <= len(found) <= 60
    circles = [node for node in ET.fromstring(drawn).iter() if node.tag.endswith("circle") and len(node)]
    assert len(circles) == len(found), "a pointer that rests on a dot is told its value"
    assert found[0] == "step 1: y 1.0000" or count > 300


def test_parts_have_the_colours_they_are_given_and_say_what_they_count() -> None:
    made = Mix(("a", "b"), (1, 2), ((3, 4), (1, 6)))
    for slots in ((), (2, 5)):
        drawn = figures.shares("t", made, ["a", "b"], x_label="x", y_label="y", apart=True, slots=slots)
        marks = [node for node in ET.fromstring(drawn).iter() if len(node) and node.tag.endswith("path")]
        assert [node.get("fill") for node in marks] == [f"var(--c{slot})" for slot in (slots or (0, 1)) for _ in (1, 2)]
        assert hints(drawn) == ["x 1: a 3", "x 2: a 1", "x 1: b 4", "x 2: b 6"]


def test_cells_of_a_confusion_matrix_say_which_they_are() -> None:
    drawn = figures.confusion("t", np.array([[8, 2], [0, 0]]), ["no", "yes"])
    assert hints(drawn) == [
        *("no predicted as no: 8 (80.0%)", "no predicted as yes: 2 (20.0%)"),
        *("yes predicted as no: 0 (0.0%)", "yes predicted as yes: 0 (0.0%)"),
    ]


def attributes(drawn: str) -> set[str]:
    return {name for node in ET.fromstring(drawn).iter() for name in node.attrib}


def test_every_figure_is_xml_and_escapes_names() -> None:
    bad, sst, sts = HOSTILE[0], made_rows("sst", 40, 1, 0.6).labelled(), made_rows("sts", 40, 1, 0.6).labelled()
    lines = [Series(bad, [(1, 2.0), (2, 3.0)], 0), Series("b", [(1, 2.0)], 1)]
    made = Mix((bad, "b"), (1, 2), ((3, 4), (0, 7)))
    drawn = [
        figures.curves(bad, lines, y_label=bad, marks=[1], kept=2),
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
        assert tags <= {"svg", "path", "circle", "text", "title"}
        assert "nan" not in figure and not {"id", "style", "clip-path"} & attributes(figure)


def test_the_task_mix_is_that_of_the_plan(multitask: Made) -> None:
    run = collect.read_run(multitask())
    found = training.task_mix(run)
    assert found is not None
    plan = schedule.plan("round-robin", {"sst": 48, "quora": 160, "sts": 64}, epochs=2, batch_size=16, seed=1)
    expected = Counter(plan.at(step).task for step in range(plan.total))
    assert found.ends[-1] == plan.total
    assert dict(zip(found.parts, np.sum(found.counts, axis=0).tolist(), strict=True)) == expected
    run.manifest["plan"]["steps_per_epoch"][0] += 1
    assert training.task_mix(run) is None


def test_the_mix_of_a_curriculum_is_the_manifests(contrastive: Made) -> None:
    found = training.curriculum_mix(collect.read_run(contrastive()))
    assert found is not None
    assert found.counts == ((64, 16, 0), (58, 38, 0), (64, 43, 21))
    assert found.parts == curriculum.GROUPS
