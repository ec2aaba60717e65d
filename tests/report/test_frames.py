"""Guards: a notebook gets a run's metrics and scores as frames of what its files hold, and names never become markup.

python -m pytest --import-mode=importlib tests/report/test_frames.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tasks.report.collect import read_run

Made = Callable[..., Path]
HOSTILE = "<img src=x onerror=alert(1)>"


def test_the_frame_of_metrics_is_the_file(multitask: Made) -> None:
    folder = multitask()
    expected = pd.read_json(folder / "metrics.jsonl", lines=True)
    found = read_run(str(folder)).metrics_frame()
    pd.testing.assert_frame_equal(found[expected.columns], expected, check_dtype=False)
    (folder / "metrics.jsonl").write_text("")
    assert read_run(folder).metrics_frame().empty


def test_the_frame_of_scores_is_what_was_scored(multitask: Made, contrastive: Made) -> None:
    run = read_run(multitask())
    content = json.loads((run.folder / "scores.json").read_text())
    found = run.score_frame()
    assert list(found["score"]) == [*(one["score"] for one in content["tasks"].values()), content["dev_norm"]]
    assert list(found["rows"])[:3] == [one["rows"] for one in content["tasks"].values()]
    first = read_run(contrastive())
    (row,) = first.score_frame().itertuples()
    both = first.changes["sts_dev_spearman"]
    assert (row.metric, row.before, row.score) == ("Spearman's rho", both["before"], both["after"])


@pytest.mark.parametrize("finished", [True, False])
def test_a_notebook_shows_a_run_as_a_table_without_markup_of_its_own(multitask: Made, finished: bool) -> None:
    run = read_run(multitask(finished=finished), HOSTILE)
    shown = run._repr_html_()
    assert "<img" not in shown and "&lt;img" in shown and shown.count("<tr") >= 5
    assert len(repr(run)) < 80, "a line, without the rows that it holds"
