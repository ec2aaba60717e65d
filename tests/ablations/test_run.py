"""Guards: a study runs its commands, skips what is finished, and writes tables that hold the runs' scores.

python -m pytest --import-mode=importlib tests/ablations/test_run.py
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from ablations import run as script
from ablations.study import read_study, runs_of
from minbert.errors import UserError
from minbert.train import cli
from tests.ablations.test_study import BERT_BASE

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data" / "sample"


def run(*words: str) -> int:
    """The exit code of the command in this process; its runs have processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["run.py", *words])
        try:
            script.main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


@pytest.fixture(scope="module")
def study(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a study with one arm that fails; its other runs are finished."""
    folder = tmp_path_factory.mktemp("ablations")
    head = (ROOT / "ablations" / "studies" / "sample.toml").read_text().partition("[axes]")[0]
    head = head.replace('preset = "sample"', f'preset = "sample"\nweights = "{tiny}"')
    arms = f'[arms]\n"0.05" = {{}}\ngone = {{ weights = "{folder}" }}\n'
    (folder / "sample.toml").write_text(head + arms)
    words = [str(folder / "sample.toml"), "--data", str(SAMPLE), "--runs", str(folder), "--seeds", "1", "--jobs", "2"]
    words += ["--set", "max-steps=2", "--set", "limit=40"]
    assert run(*words) == 1
    return words


def folder_of(study: list[str]) -> Path:
    return Path(study[study.index("--runs") + 1]) / "sample"


def test_tables_hold_the_scores(study: list[str]) -> None:
    folder = folder_of(study)
    content = json.loads((folder / "table.json").read_text())
    scores = json.loads((folder / "0.05" / "seed-1" / "scores.json").read_text())
    values = pd.DataFrame(**content["values"]).set_index(["group", "metric"])["value"]
    assert values["0.05", "sts_dev_spearman"] == pytest.approx(scores["sts_dev_spearman"]["after"], abs=1e-6)
    text = (folder / "table.md").read_text()
    assert "| 0.05 (baseline) | 2 of 2 | 1 |" in text and "Training rows: 40." in text
    assert list(content["failed"]) == content["missing"] == ["gone seed 1"]


def test_finished_runs_are_skipped(
    study: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert run(*study, "--dry-run") == 0
    (command,) = capsys.readouterr().out.splitlines()
    assert "gone/seed-1" in command and command.startswith("OMP_NUM_THREADS=3 python")


def test_other_settings_are_refused(study: list[str]) -> None:
    with pytest.raises(UserError, match="--limit 40, now 50"):
        run(*study, "--set", "limit=50", "--dry-run")


def test_other_data_are_refused(study: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where an environment variable names them."""
    words = [word for word in study if word not in ("--data", str(SAMPLE))]
    monkeypatch.setenv("DATA_DIR", str(SAMPLE))
    assert run(*words, "--dry-run") == 0
    shutil.copytree(SAMPLE / "course", tmp_path / "course")
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    with pytest.raises(UserError, match="--data "):
        run(*words, "--dry-run")


def test_list_and_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("list") == 0
    assert f"\norder: {read_study('order').question}\n" in capsys.readouterr().out
    assert run("order", "--quick", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    for line in lines:
        assert "runs/ablations/quick/order/" in line and "seed-1" in line


def test_course_files_need_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SAMPLE / "course", tmp_path / "data")
    commands: list[object] = []
    monkeypatch.setattr(script.Runner, "run", lambda runner, runs: commands.extend(runs))
    run("sample", "--data", str(tmp_path / "data"), "--runs", str(tmp_path / "runs"))
    assert commands


def test_missing_data_fails_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--data"):
        run("sample", "--data", str(tmp_path), "--runs", str(tmp_path))
    assert not list(tmp_path.iterdir())


# a study of each command
STUDIES: dict[str, str] = {}
for name in BERT_BASE:
    first_arm = next(iter(read_study(name, "bert-base").arms.values()))
    STUDIES[first_arm.command] = name


@pytest.mark.parametrize("name", STUDIES.values())
def test_bert_base_arm_trains(name: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of a study's first arm from a tiny BERT, with the paper's settings otherwise."""
    settings = {"weights": str(tiny), "max_steps": 2, "max_length": 32, "limit_eval": 10}
    study = read_study(name, "bert-base").with_settings(settings)
    first = next(run for run in runs_of(study, [1], str(SAMPLE), tmp_path) if not run.arm.measured)
    program, *words = next(first.pending())
    if program == "-m":
        program, *words = words
    script_of_arm = import_module(Path(program).stem if program.endswith(".py") else program)
    monkeypatch.setattr(sys, "argv", [program, *words])
    # the page of a run is made in a process of its own, which takes longer than the two steps
    monkeypatch.setattr(cli, "run_module", lambda *words: None)
    script_of_arm.main()
    assert first.scores["last_step"] == 2
    assert first.is_trained()


@pytest.mark.slow
def test_stopped_study_is_resumed(study: list[str], tmp_path: Path) -> None:
    words = [str(tmp_path) if word == str(folder_of(study).parent) else word for word in study]
    # a shell starts its background jobs so that they ignore SIGINT
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen([sys.executable, str(ROOT / "ablations" / "run.py"), *words], preexec_fn=ignore)
    arm = tmp_path / "sample" / "0.05" / "seed-1"
    while not (arm / "manifest.json").is_file():
        time.sleep(0.05)
        assert process.poll() is None
    process.terminate()
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not (arm / "scores.json").is_file()
    assert run(*words) == 1, "the arm that fails"
    whole = folder_of(study) / "0.05" / "seed-1"
    assert (arm / "scores.json").read_text() == (whole / "scores.json").read_text()
