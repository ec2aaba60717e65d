"""Guards: the page escapes what comes from data, says what is undefined, fetches nothing, and shows what runs leave.

python -m pytest --import-mode=importlib tests/tasks/report/test_page.py
"""

import json
import re
import shlex
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import UserError
from tasks.record import TaskScores
from tasks.report import __main__ as command
from tasks.report import details, facts, page
from tasks.runs import Run, read_run
from tests.tasks.report.conftest import HOSTILE, changed, made_rows

Made = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("undrawn")


def build(run: Run) -> str:
    return page.build(run, resamples=20)


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def spoiled(folder: Path) -> Path:
    """A run whose every place for free text tries to become markup."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["command"] = f"multitask_train.py --data '{HOSTILE[2].replace(chr(39), '')}'"
    manifest["preset"] = manifest["precision"] = manifest["all_settings"]["weights"] = HOSTILE[0]
    manifest["sessions"][0]["started"] = HOSTILE[1]
    for data in manifest["data"]["dev"].values():
        data["file"], data["skipped"] = HOSTILE[1], [{"line": 1, "why": HOSTILE[2]}]
    path.write_text(json.dumps(manifest))
    scores = json.loads((folder / "scores.json").read_text())
    scores["tasks"]["sst"]["title"] = HOSTILE[2]
    scores["tasks"]["sst"]["per_class"][0]["label"] = HOSTILE[4]
    (folder / "scores.json").write_text(json.dumps(scores))
    lines = [json.loads(line) for line in (folder / "dev" / "quora.jsonl").read_text().splitlines()]
    for number, text in enumerate(HOSTILE):
        lines[number] |= {"id": text}
    (folder / "dev" / "quora.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_nothing_of_the_data_becomes_markup_and_nothing_is_fetched(multitask: Made) -> None:
    tame = Elements(build(read_run(multitask("tame", skill=0.4))))
    folder = spoiled(multitask("<img src=x onerror=window.owned=6>", texts=HOSTILE, skill=0.4))
    wild = Elements(build(read_run(folder)))
    assert sum(tag == "script" for tag, _ in wild.found) == 1
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in wild.found)
    assert {tag for tag, _ in wild.found} <= {tag for tag, _ in tame.found} | {"details", "summary", "li", "ul"}
    assert not [name for _, attributes in wild.found for name in attributes if name.startswith("on") or name == "style"]
    for tag, attributes in wild.found:
        for name in ("src", "href", "srcset", "action", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)


def test_numbers_of_the_page_are_those_of_the_run(multitask: Made) -> None:
    folder = multitask()
    scores = json.loads((folder / "scores.json").read_text())
    text = re.sub(r"<style>.*?</style>|<script.*?</script>", "", build(read_run(folder)), flags=re.DOTALL)
    for score in (scores["dev_norm"], *(task["score"] for task in scores["tasks"].values())):
        assert f'<p class="big">{score:.4f}</p>' in text
    for row in (row for task in scores["tasks"].values() for row in task["per_class"]):
        assert f'<td class="n">{row["f1"]:.3f}</td>' in text
    assert "nan" not in text.lower().replace("finan", "")
    assert "captions of Flickr30k" in text, "what the first weights have seen"


def test_what_is_undefined_is_said(multitask: Made, contrastive: Made) -> None:
    folder = multitask()
    scores = json.loads((folder / "scores.json").read_text())
    scores["tasks"]["sts"]["score"] = None
    scores["tasks"]["sst"]["per_class"][0] |= {"precision": None, "f1": None, "support": 0}
    (folder / "scores.json").write_text(json.dumps(scores))
    rows = [json.loads(line) | {"predicted": 2.5} for line in (folder / "dev" / "sts.jsonl").read_text().splitlines()]
    (folder / "dev" / "sts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = build(read_run(folder))
    assert '<p class="big">undefined</p>' in text and "Pearson&#39;s r undefined" in text
    assert '<p class="big">undefined</p>' in build(read_run(contrastive(after=None)))


def test_the_page_of_stage_one_is_of_its_cosines(contrastive: Made) -> None:
    text = build(read_run(contrastive(recorded=1)))
    assert text.count("95% interval") == 1 and "on 49 rows" in text
    assert '<td class="n">1,300</td>' in text and '<td class="n">1,200</td>' in text
    assert "<li>train: duplicates: 7</li>" in text and "<dt>training rows</dt><dd>1,200</dd>" in text


def test_several_runs_make_a_comparison(
    multitask: Made, contrastive: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [multitask("a/run", skill=0.3), multitask("b/run", skill=0.95), contrastive()]
    assert page.write_report(folders) == Path("runs/comparison.html")
    text = Path("runs/comparison.html").read_text()
    assert "3 runs compared" in text and "The baseline is a/run." in text and ">95%, over rows</th>" in text
    anchors = [attributes["id"] for _, attributes in Elements(text).found if "id" in attributes]
    assert len(anchors) == len(set(anchors)) and "sentence number" not in text


def test_the_command_line_writes_where_it_is_told(
    multitask: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = multitask()
    command.main([str(folder)])
    assert capsys.readouterr().out.strip() == f"report: {folder / 'report.html'}"
    assert "sentence number" in (folder / "report.html").read_text()
    command.main([str(folder), "--out", str(tmp_path / "new" / "folder" / "x.html"), "--no-texts"])
    assert "sentence number" not in (tmp_path / "new" / "folder" / "x.html").read_text()
    unfinished = multitask("unfinished")
    (unfinished / "scores.json").unlink()
    for arguments, message in (
        ([str(tmp_path / "no")], "no manifest.json"),
        ([str(unfinished)], "unfinished: has no scores.json"),
        (["--wrong"], "required"),
        ([str(folder), "--out", str(tmp_path)], f"--out {tmp_path}: no file can be written there"),
        (["no run", "--out", str(folder / "manifest.json" / "x.html")], "--out .*: no file can be written there"),
    ):
        with pytest.raises(UserError, match=message):
            command.main(arguments)


def test_the_command_names_the_data_folder_that_the_environment_named(multitask: Made) -> None:
    folder = multitask(seed=0)
    run = changed(folder, variables={"DATA_DIR": "it's; mine"}, command="multitask_train.py --resume --seed 3")
    words = shlex.split(facts.command(run.manifest))
    assert words == ["DATA_DIR=it's; mine", "OMP_NUM_THREADS=2", "python", "multitask_train.py", "--seed", "3"]
    installed = changed(folder, variables={}, command="minbert-train --resume --seed 3")
    assert facts.command(installed.manifest) == "OMP_NUM_THREADS=2 minbert-train --seed 3"
    settings = installed.manifest["settings"] | {"number of processes": 2}
    several = changed(folder, variables={}, command="multitask_train.py --seed 3", settings=settings)
    launched = "OMP_NUM_THREADS=2 torchrun --nproc-per-node 2"
    by_name = changed(folder, variables={}, command="minbert-train --seed 3", settings=settings)
    assert facts.command(by_name.manifest) == f"{launched} --no-python minbert-train --seed 3"
    assert facts.command(several.manifest) == f"{launched} multitask_train.py --seed 3"
    assert ("processes", "2") in facts.run_facts(several)


TEXTS = {
    "files": [{"file": "sts-train.csv", "sha256": "ef" * 32, "read": 2000, "kept": 1999}],
    "kept": 3900,
    "also_in_test": {"STS12": 1000, "any": 1234},
    "dev_pairs_seen": 583,
    "skipped": [{"line": 7, "why": "sentence1: empty", "file": "somewhere/sts-train.csv"}],
    "absent": ["STS12 train"],
}


@pytest.mark.parametrize(
    ("more", "leaks"),
    [
        ({"transductive": True}, "hold test sentences (transductive); 583 dev pairs are made of them"),
        ({}, "1,234 of 3,900 are in a test file too; 583 dev pairs are made of them"),
        ({"transductive": True, "weights_transductive": True}, "the weights come from a run on test sentences"),
    ],
)
def test_texts_that_stand_in_test_files_are_said(contrastive: Made, more: dict[str, bool], leaks: str) -> None:
    text = build(changed(contrastive(), data={"train": TEXTS | more}))
    assert leaks in text
    for line in ("train: not in the data folder: STS12 train", "train: sts-train.csv: line 7: sentence1: empty"):
        assert f"<li>{line}</li>" in text


def test_the_worst_errors_have_the_least_probable_gold_classes() -> None:
    rows = made_rows("sst", 81, seed=1, skill=0.4).labelled()
    task = TaskScores("sst", "sentiment", "accuracy", 0.6, 80, tuple("abcde"), rows=rows)
    assert rows.probabilities is not None
    gold = rows.probabilities[np.arange(80), rows.gold.astype(int)]
    wrong = np.flatnonzero(rows.gold != rows.predicted)
    worst = wrong[np.argsort(gold[wrong], kind="stable")][:25]
    listed = details.worst_errors(task, rows, texts=True).rows
    assert listed["id"].tolist() == [rows.ids[row] for row in worst]
    assert listed["p(gold)"].tolist() == [f"{share:.3f}" for share in gold[worst]]
    assert "text" not in details.worst_errors(task, rows, texts=False).rows


def test_the_worst_errors_of_a_similarity_are_the_largest_distances() -> None:
    rows = made_rows("sts", 81, seed=1, skill=0.4).labelled()
    distances = np.sort(np.abs(rows.predicted - rows.gold))[::-1][:25]
    listed = details.worst_errors(TaskScores("sts", "similarity", "Pearson's r", 0.6, 80, rows=rows), rows, texts=True)
    assert listed.rows["off by"].tolist() == [f"{distance:.3f}" for distance in distances]


@pytest.mark.parametrize(
    ("name", "text"), [("manifest.json", '{"all_settings": {}}'), ("scores.json", '{"tasks": []}')]
)
def test_a_damaged_run_folder_is_a_users_mistake(multitask: Made, name: str, text: str) -> None:
    folder = multitask()
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=f"^{re.escape(str(folder))}: its manifest.* not as the scripts write them"):
        read_run(folder)
