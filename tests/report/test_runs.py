"""Guards: a run folder is read as frames of what its files hold, and one with other content ends in one sentence.

python -m pytest --import-mode=importlib tests/report/test_runs.py
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from minbert.errors import UserError
from tasks.report import page
from tasks.runs import files_of_run, read_run
from tests.report.conftest import HOSTILE

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
    assert (row.metric, row.before, row.score) == ("Spearman's rho", both.before, both.after)


@pytest.mark.parametrize("finished", [True, False])
def test_a_notebook_shows_a_run_as_a_table_without_markup_of_its_own(multitask: Made, finished: bool) -> None:
    run = read_run(multitask(finished=finished), HOSTILE[2])
    shown = run._repr_html_()
    assert "<img" not in shown and "&lt;img" in shown and shown.count("<tr") >= 5
    assert len(repr(run)) < 90, "a line, without the rows that it holds"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("manifest.json", "{", "manifest.json: not a JSON file"),
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


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a value of JSON."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from spots(inner)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("stage", ["multitask", "contrastive"])
def test_json_of_wrong_types_ends_in_one_sentence_or_a_page(stage: str, request: pytest.FixtureRequest) -> None:
    """Half of the spots of the three files, each with a value of another type."""
    folder, rng, refused = request.getfixturevalue(stage)(), random.Random(0), 0
    for name in ("manifest.json", "scores.json", "metrics.jsonl"):
        path = folder / name
        text = path.read_text()
        *lines, last = text.splitlines() if name == "metrics.jsonl" else [text]
        for number in range(len(list(spots(json.loads(last))))):
            content = json.loads(last)
            container, key = list(spots(content))[number]
            if rng.random() < 0.5:
                continue
            container[key] = rng.choice(["x", 7, 2.5, [], ["x"], {}, {"x": "y"}, None, True])
            path.write_text("\n".join([*lines, json.dumps(content), ""]))
            try:
                with files_of_run(folder):
                    page.build(read_run(folder), resamples=2)
            except UserError as error:
                refused += 1
                assert str(folder) in str(error) and "\n" not in str(error)
        path.write_text(text)
    assert refused >= 5
