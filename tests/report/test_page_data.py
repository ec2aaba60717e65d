"""Guards: the page says what data a run was made of, what of it stands in test files, and the command to repeat it.

python -m pytest --import-mode=importlib tests/report/test_page_data.py
"""

import hashlib
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.report import card, collect, facts, page, papers
from tasks.report.collect import Run

Made = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("undrawn")


def build(runs: list[Run]) -> str:
    return page.build(runs, Path("report.html"), resamples=2)[0]


def changed(folder: Path, **more: object) -> Run:
    """A run whose manifest holds more."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return collect.read_run(folder)


def test_the_command_names_the_data_folder_that_the_environment_named(multitask: Made) -> None:
    folder = multitask()
    assert facts.command(collect.read_run(folder).manifest).startswith("OMP_NUM_THREADS=2 python multitask_train.py ")
    run = changed(folder, variables={"DATA_DIR": "it's; mine"}, command="multitask_train.py --resume --seed 3")
    words = shlex.split(facts.command(run.manifest))
    assert words == ["DATA_DIR=it's; mine", "OMP_NUM_THREADS=2", "python", "multitask_train.py", "--seed", "3"]
    assert "DATA_DIR=" in build([run])
    installed = changed(folder, variables={}, command="minbert-train --resume --seed 3")
    assert facts.command(installed.manifest) == "OMP_NUM_THREADS=2 minbert-train --seed 3"
    unclosed = changed(folder, variables={}, command="""x.py --data 'a b""")
    assert shlex.split(facts.command(unclosed.manifest)) == ["OMP_NUM_THREADS=2", "python", "x.py", "--data", "'a", "b"]


def texts_account(transductive: bool) -> dict[str, object]:
    """What a manifest says of unlabelled texts."""
    skipped = [{"line": 7, "why": "sentence1: empty", "file": "somewhere/sts-train.csv"}]
    files = [
        {"file": "sts-train.csv", "sha256": "ef" * 32, "split": "train", "read": 2000, "kept": 1999, "texts": 3998}
    ]
    return {
        "files": files,
        "texts": 3998,
        "distinct": 3900,
        "duplicates": 98,
        "kept": 3900,
        "transductive": transductive,
        "also_in_test": {"STS12": 1000, "any": 1234},
        "dev_pairs_seen": 583,
        "skipped": skipped,
        "absent": ["STS12 train"],
    }


@pytest.mark.parametrize(
    ("settings", "shown", "hidden"),
    [
        ({}, {"order": "curriculum"}, {"texts", "views", "punctuation"}),
        ({"objective": "triplet"}, {"objective": "triplet", "order": "curriculum"}, {"views"}),
        ({"objective": "softmax"}, {"objective": "softmax"}, {"order", "views", "weights averaged"}),
        ({"average": 0.25}, {"weights averaged": "over the last 25% of the steps"}, {"texts"}),
        (
            {"objective": "views", "texts": "sts", "views": "shuffle,none"},
            {"objective": "views", "texts": "sts", "views": "shuffle,none"},
            {"order", "punctuation"},
        ),
        (
            {"objective": "simcse", "texts": "a.txt", "marks": "chinese", "marks_most": 3, "eda_weight": 0.6},
            {"objective": "simcse", "punctuation": "1 to 3, chinese, weight 0.6"},
            {"order", "views"},
        ),
    ],
)
def test_the_page_says_what_is_minimised_and_an_order_where_there_is_one(
    contrastive: Made, settings: dict[str, object], shown: dict[str, str], hidden: set[str]
) -> None:
    folder = contrastive()
    known = json.loads((folder / "manifest.json").read_text())["all_settings"]
    text = build([changed(folder, all_settings=known | settings)])
    for name, value in shown.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert not [name for name in hidden if f"<dt>{name}</dt>" in text]


@pytest.mark.parametrize(
    ("transductive", "said"),
    [
        (True, "hold test sentences (transductive); 583 dev pairs are made of them"),
        (False, "1,234 of 3,900 are in a test file too; 583 dev pairs are made of them"),
    ],
)
def test_texts_that_stand_in_test_files_are_said(contrastive: Made, transductive: bool, said: str) -> None:
    text = build([changed(contrastive(), data={"train": texts_account(transductive)})])
    assert f"<dt>training texts</dt><dd>{said}</dd>" in text
    account = texts_account(transductive) | {"weights_transductive": True}
    chained = build([changed(contrastive("chained"), data={"train": account})])
    assert "; the weights come from a run on test sentences (transductive); 583" in chained
    for line in (
        "not in the data folder: STS12 train",
        "texts: 3,998",
        "duplicates: 98",
        "kept texts that are in a test file of STS12: 1,000",
        "kept texts that are in a test file: 1,234",
        "sts-train.csv: line 7: sentence1: empty",
    ):
        assert f"<li>{line}</li>" in text
    assert "training texts" not in build([collect.read_run(contrastive("other"))])
    run = changed(contrastive("carded"), data={"train": account}, weights={"folder": "elsewhere"})
    (run.folder / "encoder").mkdir()
    (run.folder / "encoder" / "config.json").write_text('{"num_hidden_layers": 1, "hidden_size": 8}')
    (run.folder / "encoder" / "minbert.json").write_text('{"pooler": "mean"}')
    said = card.write_card(run.folder, resamples=2).read_text()
    assert (
        f"- Training texts: {facts.in_tests(account)}." in said
        and "base_model: sentence-transformers/all-MiniLM-L6-v2" in said
    )
    changed(run.folder, all_settings=run.settings | {"encoder": "elsewhere"})
    assert "base_model" not in card.write_card(run.folder, resamples=2).read_text()


def hashed(folder: Path, **accounts: dict[str, object]) -> Run:
    """A run whose dev files are accounted for in another way."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for task, account in accounts.items():
        manifest["data"]["dev"][task] |= account
    return changed(folder, data=manifest["data"])


SST_DEV = "a186ce94577635fbe10beaaddd50f16cccf6c30973221cefdf90deed2a584bfe"
STS_DEV = "ce3cad6f16062586ac7ba462c28b010a9be10c530fd5074165860d7b7ab4e93d"


def test_the_papers_scores_stand_beside_the_papers_dev_rows_only(
    multitask: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = build([collect.read_run(multitask("invented"))])
    assert "0.501" not in text and "F1 of CBCL" not in text and "on other dev rows than these" in text
    run = hashed(multitask("two"), sst={"sha256": SST_DEV}, sts={"sha256": STS_DEV})
    text = build([run])
    assert "0.501" in text and "0.853" in text and "0.900" not in text and text.count("F1 of CBCL</th>") == 1
    assert "other dev rows" not in text and '<th class="n">dev norm</th>' not in text
    content = b"any rows"
    blob = hashlib.sha1(b"blob 8\0" + content).hexdigest()
    monkeypatch.setitem(papers._CBCL_DEV_FILES, "quora", (blob, ""))
    (tmp_path / "dev.csv").write_bytes(content)
    account = {"file": str(tmp_path / "dev.csv"), "sha256": hashlib.sha256(content).hexdigest()}
    text = build([hashed(multitask("three"), quora=account)])
    assert "0.900" in text and "0.501" not in text
    (tmp_path / "dev.csv").write_bytes(b"changed ")
    assert not papers.on_cbcl_rows("quora", account)


@pytest.mark.realdata
def test_the_papers_dev_files_are_known_by_either_hash(real_data: Path) -> None:
    for task, name in (("sst", "ids-sst-dev.csv"), ("sts", "sts-dev.csv")):
        path = real_data / "course" / name
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert papers.on_cbcl_rows(task, {"file": "gone", "sha256": digest})
        known = papers._CBCL_DEV_FILES[task]
        assert known == (hashlib.sha1(b"blob %d\0" % path.stat().st_size + path.read_bytes()).hexdigest(), digest)


def test_the_time_is_that_of_all_parts_of_a_resumed_run(multitask: Made) -> None:
    folder = multitask()
    alone = collect.read_run(folder)
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    assert alone.seconds == sum(row["seconds"] for row in rows if row["kind"] in ("train", "evaluation"))
    parts = [
        {"started": "2026-01-01T08:30:00+0000", "from_step": 0, "to_step": 7, "seconds": 4000.0},
        {"started": "2026-01-02T03:04:05+0000", "from_step": 7, "to_step": 60, "seconds": 200.0},
    ]
    text = build([changed(folder, parts=parts)])
    assert "1 h 10 min in all" in text and "<dt>time</dt><dd>1 h 10 min</dd>" in text
    assert "<dt>started</dt><dd>2026-01-01 08:30, resumed once</dd>" in text


def test_an_unfinished_run_is_said_to_run_or_to_have_stopped(multitask: Made) -> None:
    folder = multitask(finished=False)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "st')  # a line in writing
    run = collect.read_run(folder)
    assert run.state(run.written + 30) == "running" and run.state(run.written + 3600) == "stopped"
    assert "Running, last logged at" in build([run])
    os.utime(folder / "metrics.jsonl", (1e9, 1e9))
    assert "Stopped, last logged at 2001" in build([collect.read_run(folder)])
    ended = changed(folder, parts=[{"from_step": 0, "to_step": 40, "seconds": 1.0}])
    assert ended.state(ended.written) == "stopped"
    assert collect.read_run(multitask("done")).state(1e12) == "finished"


def test_a_run_that_stopped_before_a_row_was_logged_shows_its_step_and_no_scores(multitask: Made) -> None:
    folder = multitask(finished=False)
    (folder / "metrics.jsonl").write_text("")
    run = changed(folder, parts=[{"from_step": 0, "to_step": 6, "seconds": 1.0}])
    text = build([run])
    assert "<dt>steps</dt><dd>6 of" in text
    assert "not evaluated yet" in text and ">undefined<" not in text and "best evaluation so far" not in text


def test_rows_that_are_trained_on_and_those_that_are_scored_are_counted(multitask: Made, contrastive: Made) -> None:
    folder = multitask(finished=False)
    known = json.loads((folder / "manifest.json").read_text())["all_settings"]
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["data"]["dev"]["sst"] |= {"kept": 60, "labelled": 51}
    run = changed(folder, data=manifest["data"], all_settings=known | {"limit": 2000})
    text = build([run])
    assert "<dt>training rows</dt><dd>48 sentiment, 160 paraphrase, 64 similarity</dd>" in text
    assert "<dt>limit</dt><dd>2,000 rows, drawn by seed</dd>" in text
    assert run.tasks["sst"].count == 51 and "on 51 rows" in text and 'data-label="labelled">51</td>' in text
    text = build([collect.read_run(contrastive(recorded=1))])
    assert "<dt>training rows</dt><dd>1,200</dd>" in text and "on 49 rows" in text and "<dt>limit</dt>" not in text
