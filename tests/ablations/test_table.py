"""Guards: intervals over dev rows are those of the paired comparison, and tables show scores, papers and dashes.

python -m pytest --import-mode=importlib tests/ablations/test_table.py
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import figure, table
from ablations.cells import Cell, cells_of
from ablations.study import Study, read_study
from tasks import compare, intervals
from tasks.record import PredictedRows, TaskScores, write_rows

DRAWS = np.random.default_rng(5)
MANIFEST = {"all_settings": {}, "selection": {"keep": "last"}, "sessions": [{"seconds": 1.0}], "plan": {"steps": 9}}
STEPS = {"step": 9, "last_step": 9}


def finished(cell: Cell, gold: np.ndarray, noise: float) -> TaskScores:
    """Write the scores and dev rows of a run whose predictions are the gold scores with some noise."""
    predicted = np.round(gold + DRAWS.normal(0, noise, len(gold)), 6)
    rows = PredictedRows([str(place) for place in range(len(gold))], [("a", "b")] * len(gold), gold, predicted, None)
    write_rows(cell.folder, "sts", rows)
    score = float(intervals.scores("Pearson's r", predicted, gold))
    task = {"title": "similarity", "metric": "Pearson's r", "score": score, "rows": len(gold), "per_class": []}
    (cell.folder / "manifest.json").write_text(json.dumps(MANIFEST | {"all_settings": {"tasks": "sts"}}))
    scores = {"dev_norm": (score + 1) / 2, "tasks": {"sts": task}}
    (cell.folder / "scores.json").write_text(json.dumps(scores | STEPS))
    return TaskScores("sts", "similarity", "Pearson's r", score, len(gold), rows=rows)


def test_an_interval_over_rows_is_that_of_the_paired_comparison(tmp_path: Path) -> None:
    """Seeds that one of the two arms lacks are left out."""
    study = read_study("pair-input")
    noise = {"cross": 1.0, "paper": 1.3}
    cells = [cell for cell in cells_of(study, [1, 2, 3], "", tmp_path) if cell.arm.name in noise][:-1]
    gold = DRAWS.uniform(0, 5, 200)
    scores = {(cell.arm.name, cell.seed): {"sts": finished(cell, gold, noise[cell.arm.name])} for cell in cells}
    found = table.over_rows(study, cells)
    first, second = ([scores[name, seed] for seed in (1, 2)] for name in noise)
    expected, _ = compare.differences(first, second, resamples=1000)
    assert found["paper", "sts"] == expected.interval
    assert found["paper", "sts"].high < 0 and found["paper", "dev_norm"].high < 0
    values = pd.DataFrame([{"group": name, "seed": 1, "metric": "sts", "value": 0.5} for name in noise])
    paper = table.summary_of(study, values, cells).set_index("group").loc["paper"]
    assert (paper["row_low"], paper["row_high"]) == expected.interval


@pytest.fixture
def grid() -> tuple[Study, pd.DataFrame]:
    """The view grid with a value for every place but one."""
    study = read_study("view-grid")
    rows = [
        {"group": name, "seed": 1, "metric": "sts_dev_spearman", "value": 0.6 + place / 100}
        for place, name in enumerate(study.arms)
        if name != "dropout+dropout"
    ]
    return study, pd.DataFrame(rows)


ABOUT: dict[str, Any] = {"command": "python ablations/run.py view-grid", "seeds": [1], "missing": [], "failed": {}}
ABOUT |= {"before_training": {}, "machines": [], "data_sha256": {}}


def test_a_table_shows_ours_beside_the_papers(grid: tuple[Study, pd.DataFrame]) -> None:
    study, frame = grid
    text = table.markdown(
        study, table.summary_of(study, frame, []), ABOUT | {"missing": ["dropout+dropout seed 1"]}, True
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "| none+none (baseline) | 1 | 60.00 | – | 63.84 |" in lines
    assert "| none+shuffle | 1 | 61.00 | +1.00 | – |" in lines
    assert "Not in the tables: dropout+dropout seed 1." in text
    assert "nan" not in text


def test_arms_whose_interval_to_the_best_contains_0_are_tied_with_it() -> None:
    """The paired t-test at 5% decides; a lower loss is a better one; one seed decides nothing."""
    study = read_study("order")
    values = {"anti": [0.80, 0.90, 0.70], "random": [0.78, 0.91, 0.69], "none": [0.79, 0.885, 0.69]}
    rows = [(arm, seed, "sts_dev_spearman", one) for arm, ones in values.items() for seed, one in enumerate(ones)]
    frame = pd.DataFrame(rows, columns=["group", "seed", "metric", "value"])
    tied = {arm for arm in values if arm == "anti" or stats.ttest_rel(values["anti"], values[arm]).pvalue > 0.05}
    assert tied == {"anti", "random"}
    for metric, sign in (("sts_dev_spearman", 1), ("frozen_loss", -1)):
        found = table.best(study, frame.assign(metric=metric, value=sign * frame["value"]))
        assert set(found["group"][found["best"]]) == tied
    assert not table.best(study, frame[frame["seed"] == 0])["best"].any()
    text = table.markdown(study, table.summary_of(study, frame, []), ABOUT, False)
    assert text.count(" ● |") == 2


def test_an_arm_that_kept_step_0_is_not_trained(tmp_path: Path) -> None:
    study = read_study("selfccl")
    cells = [cell for cell in cells_of(study, [1, 2], "", tmp_path) if cell.arm.name in ("selfccl-bert", "simcse-sup")]
    for cell, (kept, last) in zip(cells, [(0, 16), (125, 160), (0, 16), (0, 160)], strict=True):
        cell.folder.mkdir(parents=True)
        (cell.folder / "scores.json").write_text(json.dumps({"step": kept, "last_step": last}))
    names = [cell.arm.name for cell in cells[:2]]
    steps = table.steps(cells)
    assert steps == {names[0]: "0 of 16, not trained", names[1]: "0 to 125 of 160, 1 not trained"}


def test_a_grid_with_a_hole_is_drawn(grid: tuple[Study, pd.DataFrame]) -> None:
    study, frame = grid
    found = table.summary_of(study, frame, [])
    svg = figure.draw(study, found, table.Score.of("sts_dev_spearman", study))
    assert svg is not None
    shown = [float(value) for value in re.findall(rb">(\d\d\.\d\d)<", svg)]  # row by row, as the arms are
    assert shown == pytest.approx(100 * frame["value"])
    assert b"nan" not in svg
    named = replace(next(iter(study.arms.values())), name="untrained", labels=())
    with_another = replace(study, arms={**study.arms, "untrained": named})
    assert figure.draw(with_another, found, table.Score.of("sts_dev_spearman", study)) == svg


def test_a_line_is_of_the_arms_of_its_setting_without_the_one_they_start_from() -> None:
    study = read_study("few-shot-supervised")
    rows = [(arm, seed, "sts/avg.", 0.7 + seed / 100) for arm in study.arms for seed in (1, 2)]
    frame = pd.DataFrame(rows, columns=["group", "seed", "metric", "value"])
    svg = figure.draw(study, table.summary_of(study, frame, []), table.Score.of("sts/avg.", study))
    assert svg is not None
    assert {b">10,000<", b">1,000<"} <= set(re.findall(rb">[\d,]+<", svg)) and b">2,000<" not in svg


def test_quoted_rows_name_their_source_and_slips_of_the_paper_are_marked() -> None:
    study = read_study("selfccl")
    rows = [("sbert-nli-v2", 1, "sts/avg.", 0.8), ("simcse-sup", 1, "transfer/SUBJ", 0.9)]
    frame = pd.DataFrame(rows, columns=["group", "seed", "metric", "value"])
    found = table.summary_of(study, frame, [])
    text = table.markdown(study, found, ABOUT, False)
    sets = "in the mean's table and in the sets'"
    assert text.count("| GloVe, mean: quoted from SelfCCL, Tables 4 and 5 ") == 3, sets
    assert math.isclose(found["paper"].iloc[0], 0.8160)
    assert "84.81\\*" in text and "simcse-sup, transfer/SUBJ: SimCSE's own table has 94.81." in text
    assert "59.76\\*" in text and "fastText, mean, sts/avg.: the mean of the seven is 65.66." in text


def test_one_set_of_several_has_no_interval_over_rows(tmp_path: Path) -> None:
    """The score of the study is the mean of the sets."""
    study = read_study("scoring")
    cells = [cell for cell in cells_of(study, [1], "", tmp_path) if cell.arm.name in ("margin-0.2", "entailment")]
    gold = DRAWS.uniform(0, 5, 50)
    sets = {"A": {"file": "a"}, "B": {"file": "b"}}
    scores = {f"{name}_dev_spearman": {"before": 0.1, "after": 0.2} for name in ("sts", "a", "b")}
    for cell in cells:
        rows = PredictedRows([*map(str, range(50))], [("a", "b")] * 50, gold, gold + DRAWS.normal(0, 1, 50), None)
        write_rows(cell.folder, "a", rows)
        (cell.folder / "manifest.json").write_text(json.dumps(MANIFEST | {"data": {"train": {}, "sts_dev": sets}}))
        (cell.folder / "scores.json").write_text(json.dumps(scores | STEPS))
    assert table.over_rows(study, cells) == {}


def test_an_arm_that_trains_nothing_has_no_seeds(tmp_path: Path) -> None:
    study = read_study("sick")
    cells = [cell for cell in cells_of(study, [1, 2, 3], "", tmp_path) if cell.arm.measured]
    for cell in cells:
        path = tmp_path / "sick" / cell.arm.name / "seed-1" / "suites" / "sick" / "sts.json"
        path.parent.mkdir(parents=True)
        one = {"set": "SICK-R", "measure": "spearman", "value": 0.5}  # a single set has no average
        path.write_text(json.dumps({"results": [one]}))
    frame = table.long_frame(study, cells)
    assert len(frame) == 1 and frame["seed"].isna().all()
