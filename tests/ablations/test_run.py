"""Guards: a study runs the public scripts, skips what is finished, and ends in tables that hold the runs' scores.

python -m pytest --import-mode=importlib tests/ablations/test_run.py
"""

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ablations import estimate
from ablations import run as script
from ablations.runner import Runner
from ablations.study import Arm
from minbert.errors import UserError

ROOT = Path(__file__).parent.parent.parent
SAMPLE = str(ROOT / "data" / "sample")


def command(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "ablations" / "run.py"), *words]


def run(*words: str) -> tuple[int, str]:
    """The exit code and the output of the command, in this process; its runs have processes of their own."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said:
        patch.setattr(sys, "argv", command(*words)[1:])
        try:
            script.main()
        except UserError as error:
            return 2, str(error)
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


@pytest.fixture(scope="module")
def study(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two arms of the sample study, one seed and two steps, as words of a command; its runs are finished."""
    runs = tmp_path_factory.mktemp("ablations")
    text = (ROOT / "ablations" / "studies" / "sample.toml").read_text()
    (runs / "sample.toml").write_text(text.replace("[0.02, 0.05, 0.1]", "[0.05, 0.1]"))
    words = [str(runs / "sample.toml"), "--weights", str(tiny), "--data", SAMPLE, "--runs", str(runs)]
    words += ["--seeds", "1", "--max-steps", "2", "--jobs", "2"]
    code, said = run(*words)
    assert not code, said
    return words


def test_the_tables_hold_the_scores_of_the_runs(study: list[str]) -> None:
    folder = Path(study[study.index("--runs") + 1]) / "sample"
    content = json.loads((folder / "table.json").read_text())
    scores = json.loads((folder / "0.1" / "seed-1" / "scores.json").read_text())
    values = pd.DataFrame(content["values"]).set_index(["group", "metric"])["value"]
    assert values["0.1", "sts_dev_spearman"] == scores["sts_dev_spearman"]["after"]
    assert "--data DIR" in content["command"]
    text = (folder / "table.md").read_text()
    assert str(ROOT) not in text and "Limits: --max-steps 2, in place of: 150 triplets" in text
    assert {"table.md", "table.csv", "figure.svg", "report.html"} <= {path.name for path in folder.iterdir()}
    assert (folder / "0.1" / "seed-1.log").read_text()


def test_what_is_finished_is_not_run_again(study: list[str]) -> None:
    folder = Path(study[study.index("--runs") + 1]) / "sample"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")}
    assert "2 of 2 runs are finished" in run(*study)[1]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")} == before


def test_other_settings_are_not_taken_for_the_same_run(study: list[str]) -> None:
    code, said = run(*study, "--limit", "40")
    assert code == 2 and "made with other settings (limit 150, now 40)" in said
    code, said = run(*study, "--data", "elsewhere")
    assert code == 2 and "now 'elsewhere'" in said


def test_only_a_whole_study_is_published(study: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    place = study.index("--seeds") + 1
    more = [*study[:place], "2", *study[place + 1 :]]
    code, said = run(*more, "--budget", "0.0001", "--publish")
    assert code == 2 and "runs that are not finished" in said and not list(tmp_path.iterdir())
    folder = Path(study[study.index("--runs") + 1]) / "sample"
    assert not list(folder.glob("*/seed-2")), "no run was begun after the budget"
    assert run(*study, "--publish")[0] == 0
    names = {path.name for path in (tmp_path / "sample").iterdir()}
    assert names == {"table.md", "table.json", "figure.svg"}
    for name in names:
        assert (tmp_path / "sample" / name).read_bytes() == (folder / name).read_bytes()


def test_a_dry_run_prints_what_would_be_run(study: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "measure", lambda arm, data: estimate.Rate(1, 1, 1))
    place, folder = study.index("--seeds") + 1, Path(study[study.index("--runs") + 1])
    code, said = run(*study[:place], "2", *study[place + 1 :], "--dry-run")
    commands = [line for line in said.splitlines() if "pretrain_cbcl.py" in line]
    assert code == 0 and "2 of 4 runs are finished" in said
    assert len(commands) == 2 and all("--seed 2" in line and "--max-steps 2" in line for line in commands)
    assert not list(folder.rglob("seed-2"))


COURSE = {"sst": 8544, "quora": 41654, "sts": 6040}


@pytest.mark.parametrize(
    ("script", "flags", "rows", "steps"),
    [
        ("multitask_train", {"preset": "best"}, COURSE, 3 * (267 + 1302 + 189)),
        ("multitask_train", {"preset": "best", "sampling": "round-robin"}, COURSE, 3 * 3 * 1302),
        ("multitask_train", {"preset": "best", "max-steps": 9}, COURSE, 9),
        ("multitask_train", {"preset": "best", "limit": 320}, {}, 3 * 3 * 10),
        ("multitask_train", {"preset": "best"}, {}, 0),
        ("pretrain_cbcl", {"preset": "intermediate"}, {"": 154971}, 4843),
        ("pretrain_cbcl", {"preset": "minilm", "order": "none"}, {"": 10970}, 3 * 172),
        ("pretrain_cbcl", {"preset": "minilm", "power": 1.0, "epochs": 2}, {"": 6400}, 50 + 100),
    ],
)
def test_an_estimate_counts_the_steps_of_the_plan(
    script: str, flags: dict[str, Any], rows: dict[str, int], steps: int
) -> None:
    assert estimate.training_steps(Arm("arm", script, flags), rows) == steps


@pytest.mark.parametrize(
    ("script", "flags", "rows"),
    [
        ("multitask_train", {}, {"sst": 150, "quora": 150, "sts": 150}),
        ("pretrain_cbcl", {}, {"": 120}),
        ("pretrain_cbcl", {"objective": "simcse", "texts": "lines.txt"}, {"": 30}),
        ("pretrain_cbcl", {"objective": "simcse", "texts": "lines.txt", "keep-duplicates": True}, {"": 40}),
    ],
)
def test_a_short_run_tells_the_sizes_of_the_training_sets(
    script: str,
    flags: dict[str, Any],
    rows: dict[str, int],
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"a cat sat {number % 30}\n" for number in range(40)))
    monkeypatch.chdir(tmp_path)
    arm = Arm("arm", script, {"preset": "sample", "weights": str(tiny), "max-length": 24, **flags})
    assert estimate.measure(arm, str(ROOT / "data" / "sample")).rows == rows


def test_a_list_without_a_measured_speed_says_why_and_measures_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(estimate, "ROOT", tmp_path)  # where there are no scripts
    for _ in range(2):
        script.list_studies(tmp_path)
        assert "time not known: no estimate, as a short run of" in capsys.readouterr().out
        assert not (tmp_path / "rates.json").exists()


@pytest.mark.slow
def test_a_failed_run_is_listed_and_the_rest_goes_on(tmp_path: Path, tiny: Path) -> None:
    """A suite judges each encoder, and one that is not trained."""
    text = (ROOT / "ablations" / "studies" / "sample.toml").read_text()
    text = text[: text.index("[axes]")].replace('x = "temperature"', "").replace('"0.05"', '"whole"')
    text = text.replace('"triplet_accuracy"]', '"length/change"]')
    pairs = ROOT / "data" / "sample" / "course" / "sts-dev.csv"
    text += f"""
[suites]
length = "probes --probes length --pairs {pairs} --append ' ...' --resamples 0"
[arms]
whole = {{ weights = "{tiny}" }}
gone = {{ weights = "{tmp_path / "gone"}" }}
next = {{ from = "gone" }}
untrained = {{ measured = "{tiny}" }}
"""
    (tmp_path / "broken.toml").write_text(text)
    runs = ["--data", SAMPLE, "--runs", str(tmp_path), "--jobs", "3", "--seeds", "1", "--max-steps", "1"]
    code, said = run(str(tmp_path / "broken.toml"), *runs)
    assert code == 1
    assert "failed: gone seed 1: exit code 2" in said and "failed: next seed 1: gone seed 1 failed" in said
    values = pd.read_csv(tmp_path / "broken" / "table.csv").set_index(["group", "metric"])["mean"]
    assert values.index.get_level_values("group").unique().tolist() == ["whole", "untrained"]
    probes = json.loads((tmp_path / "broken" / "whole" / "seed-1" / "suites" / "length" / "probes.json").read_text())
    changes = {row["measure"]: row["value"] for row in probes["length"]["results"]}
    assert values["whole", "length/change"] == pytest.approx(changes["change"])


@pytest.mark.slow
def test_ctrl_c_leaves_runs_that_are_resumed(tmp_path: Path, study: list[str]) -> None:
    """The same bits as without it."""
    words = [*study[: study.index("--runs")], "--runs", str(tmp_path), *study[study.index("--seeds") :]]
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    folder = tmp_path / "sample" / "0.1" / "seed-1"
    while not (folder / "manifest.json").is_file():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    code, said = run(*words)
    assert not code, said
    whole = Path(study[study.index("--runs") + 1]) / "sample" / "0.1" / "seed-1"
    assert (folder / "scores.json").read_text() == (whole / "scores.json").read_text()


def test_a_run_of_another_runner_is_waited_for(study: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is held by a command that finishes the run in the meantime."""
    folder = Path(study[study.index("--runs") + 1]) / "sample" / "0.05" / "seed-1"
    scores, later, look, turns = folder / "scores.json", folder / "later", Runner.look, count()
    lock = open(folder.with_name("seed-1.lock"), "w")  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(scores, later)

    def looked(runner: Runner) -> None:
        if next(turns) == 3:
            os.rename(later, scores)
            lock.close()
        look(runner)

    monkeypatch.setattr(Runner, "look", looked)
    code, said = run(*study)
    assert not code and "1 of 2 runs are finished" in said
    assert "0.05 seed 1: finished by another runner" in said and next(turns) > 4
