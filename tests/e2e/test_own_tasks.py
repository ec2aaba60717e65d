"""Guards: from a user's own files to scores, predictions and a page; stopped and resumed with the same bits.

python -m pytest --import-mode=importlib tests/e2e/test_own_tasks.py
"""

import csv
import json
import re
import shlex
import shutil
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import accuracy_score

from minbert import UserError
from tasks import ensemble, predict
from tests.e2e.conftest import ROOT, Run, Script

OWN = ROOT / "data" / "sample" / "own"
MULTITASK = "multitask_train.py"
FLAGS = ("--batch-size", 16, "--lr", 1e-3, "--max-steps", 8, "--save-every", 3)


def copy_own(parent: Path) -> Path:
    """A copy of the sample's own files, with a task file for the reviews."""
    folder = parent / "own"
    shutil.copytree(OWN, folder)
    (folder / "reviews.toml").write_text(
        'kind = "classification"\ntrain = "reviews.csv"\ntext = "comment"\nlabel = "mood"\nid = "number"\n'
        'labels = ["angry", "neutral", "happy"]\nweight = 0.5\ntitle = "moods"\n'
    )
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return copy_own(tmp_path)


@pytest.fixture(scope="module")
def finished(runner: Script, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of three tasks, two of them a user's own, beside the folder `own`, whose task file is gone since."""
    parent = tmp_path_factory.mktemp("finished")
    own = copy_own(parent)
    flags = (*FLAGS, "--tasks", f"sst,{own / 'reviews.toml'},{own / 'questions.toml'}", "--pairs", "joint")
    run: Run = runner(parent, MULTITASK, *flags, report=True)
    assert run.code == 0, run.err
    (own / "reviews.toml").unlink()
    return run


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def dev_rows(folder: Path) -> list[dict[str, str]]:
    return csv_rows((folder / "predictions" / "reviews-dev-output.csv").read_text())


def test_own_tasks_are_scored_and_shown(finished: Run) -> None:
    assert "by mood: angry, neutral, happy; dev: 10% of the training rows" in finished.out
    folder = finished.folder
    scores = json.loads((folder / "scores.json").read_text())["tasks"]
    assert [row["label"] for row in scores["reviews"]["per_class"]] == ["angry", "neutral", "happy"]
    assert (scores["reviews"]["title"], scores["questions"]["scale"]) == ("moods", [0.0, 1.0])
    files = {"sst-dev-output.csv", "sst-test-output.csv", "reviews-dev-output.csv", "questions-dev-output.csv"}
    assert {path.name for path in (folder / "predictions").iterdir()} == files
    dev = dev_rows(folder)
    assert len(dev) == 12
    assert list(dev[0]) == ["number", "comment", "mood", "prediction", "p(angry)", "p(neutral)", "p(happy)"]
    right = accuracy_score([row["mood"] for row in dev], [row["prediction"] for row in dev])
    assert scores["reviews"]["score"] == pytest.approx(right)
    for row in csv_rows((folder / "predictions" / "questions-dev-output.csv").read_text()):
        assert 0 <= float(row["prediction"]) <= 1
    entry = finished.manifest()["data"]["dev"]["reviews"]
    assert (entry["kept"], entry["in_train"]) == (12, 0)
    assert "every tenth training row" in entry["drawn"]
    page = (folder / "report.html").read_text()
    for text in ("Moods", ">neutral<", "more than 0.2 points off"):
        assert text in page
    assert "dev reviews: every tenth training row, sorted by label, is a dev row" in page


def test_run_predicts_without_task_file(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reviews = finished.folder.parent / "own" / "reviews.csv"
    predict.main([str(finished.folder), "--task", "reviews", str(reviews)])
    printed = capsys.readouterr()
    rows = {row["number"]: row for row in csv_rows(printed.out)}
    assert len(rows) == 120
    for row in dev_rows(finished.folder):
        assert rows[row["number"]]["prediction"] == row["prediction"]
    assert re.search(r"^moods: accuracy \S+ on 120 labelled rows$", printed.err, re.MULTILINE)
    assert "the run was trained on rows of this file" in printed.err
    (tmp_path / "new.txt").write_text("I like it.\n")
    predict.main([str(finished.folder), "--task", "reviews", str(tmp_path / "new.txt")])
    (row,) = csv_rows(capsys.readouterr().out)
    assert row["comment"] == "I like it." and row["prediction"] in ("angry", "neutral", "happy")
    with pytest.raises(UserError, match="no column 'question1'"):
        predict.main([str(finished.folder), "--task", "questions", str(reviews)])


def test_ensemble_takes_first_runs_metrics(finished: Run, tmp_path: Path) -> None:
    second = tmp_path / "second"
    shutil.copytree(finished.folder, second)
    manifest = finished.manifest()
    manifest["own_tasks"]["reviews"]["metric"] = "macro-F1"
    (second / "manifest.json").write_text(json.dumps(manifest))
    ensemble.main([str(finished.folder), str(second), "--out", str(tmp_path / "both")])
    members = json.loads((tmp_path / "both" / "scores.json").read_text())["members"]
    first, other = [member["tasks"]["reviews"]["score"] for member in members.values()]
    assert first == other
    predictions = [row["prediction"] for row in dev_rows(finished.folder)]
    assert [row["prediction"] for row in dev_rows(tmp_path / "both")] == predictions


def test_stopped_run_resumes_bit_equal(script: Script, own: Path) -> None:
    flags = (*FLAGS, "--tasks", f"{own / 'reviews.toml'},{own / 'questions.toml'}")
    whole = script(MULTITASK, *flags, run_dir="whole")
    assert whole.code == 0, whole.err
    stopped = script(MULTITASK, *flags, signal=(signal.SIGTERM, 4))
    assert stopped.code == 128 + signal.SIGTERM, stopped.err
    toml = (own / "reviews.toml").read_text()
    (own / "reviews.toml").write_text(toml.replace("weight = 0.5", "weight = 0.25"))
    refused = script(MULTITASK, *flags, "--resume")
    assert refused.code == 2 and len(refused.errors) == 1, refused.err
    assert f"data definition of reviews ({own / 'reviews.toml'} is not what it was" in refused.errors[0]
    (own / "reviews.toml").write_text(f"# the same\n{toml}")
    # elsewhere since
    moved = own.rename(own.with_name("moved"))
    resumed = script(MULTITASK, *FLAGS, "--tasks", f"{moved / 'reviews.toml'},{moved / 'questions.toml'}", "--resume")
    assert resumed.code == 0, resumed.err
    assert resumed.rows() == whole.rows() and resumed.bits() == whole.bits()


def test_worked_example_of_page(runner: Script, tiny: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8").partition("## Your own data")[2]
    block, toml = re.findall(r"```\w*\n(.*?)```", page, re.DOTALL)[:2]
    new, train, predict_command = block.splitlines()
    shutil.copytree(OWN, tmp_path / "data" / "sample" / "own")

    def execute(line: str, *more: Any) -> Any:
        words = shlex.split(line.partition(" > ")[0])[1:]
        if words[0] == "-m":
            words = ["tasks/predict.py", *words[2:]]
        words[0] = str(ROOT / words[0])
        run = runner(tmp_path, words[0], argv=[*words, *map(str, more)])
        assert run.code == 0, run.err
        return run

    execute(new)
    written = (tmp_path / "reviews.toml").read_text()
    settings = [line for line in written.splitlines() if not line.startswith("#")]
    assert settings == textwrap.dedent(toml).strip().splitlines()
    execute(train, "--weights", tiny, "--max-length", 32, "--max-steps", 4)
    rows = csv_rows(execute(predict_command).out)
    assert len(rows) == 120 and {row["prediction"] for row in rows} <= {"angry", "happy", "neutral"}


def test_run_goes_on_with_heads(script: Script, own: Path) -> None:
    first = script(MULTITASK, *FLAGS, "--tasks", f"sst,{own / 'questions.toml'}", "--pairs", "joint", run_dir="first")
    assert first.code == 0, first.err
    # without updates the heads predict what they did
    tasks = f"{own / 'questions.toml'},{own / 'reviews.toml'}"
    flags = (*FLAGS, "--tasks", tasks, "--from", first.folder.name, "--max-steps", 1, "--lr", 0)
    second = script(MULTITASK, *flags, weights=False, run_dir="second")
    assert second.code == 0, second.err
    assert "the heads of questions go on; new: reviews" in second.out
    for name in ("dev/questions.jsonl", "predictions/questions-dev-output.csv"):
        assert (second.folder / name).read_bytes() == (first.folder / name).read_bytes()
    manifest = second.manifest()
    assert manifest["from_run"].items() >= {"folder": first.folder.name, "heads": ["questions"]}.items()
    # a page may be written from another folder
    assert manifest["weights"]["folder"] == str(first.folder / "encoder")
    assert manifest["all_settings"]["pairs"] == "joint"

    def refusal(*more: Any) -> str:
        run = script(MULTITASK, *flags, *more, weights=False, run_dir="third")
        assert run.code == 2 and len(run.errors) == 1, run.err
        return str(run.errors[0])

    assert "its heads read pairs by --pairs joint, not bi" in refusal("--pairs", "bi")
    toml = (own / "questions.toml").read_text()
    (own / "questions.toml").write_text(toml.replace("scale = [0, 1]", "scale = [0, 2]"))
    assert "its head of questions has 0.0, 1.0, the task has 0.0, 2.0" in refusal()
