"""Guards: a run folder is read as frames of what its files hold, and one with other content ends in one sentence.

python -m pytest --import-mode=importlib tests/report/test_runs.py
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from minbert.errors import UserError
from tasks.runs import read_run

Made = Callable[..., Path]


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


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("manifest.json", "{", "manifest.json: not a JSON file"),
        ("manifest.json", '{"all_settings": {"tasks": "sst"}}', "are not as the scripts write them"),
        ("scores.json", "[]", "scores.json: holds"),
        ("metrics.jsonl", '{"kind": "train", "step": 1}\nnonsense\n', "metrics.jsonl:2: not JSON"),
        ("dev/sst.jsonl", "{not json}\n", "sst.jsonl:1: not JSON"),
    ],
)
def test_a_damaged_run_folder_is_a_users_mistake(multitask: Made, name: str, text: str, message: str) -> None:
    folder = multitask()
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        read_run(folder)
