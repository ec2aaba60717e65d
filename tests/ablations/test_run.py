"""Guards: a study runs the public scripts, skips what is finished, and ends in tables that hold the runs' scores.

python -m pytest --import-mode=importlib tests/ablations/test_run.py
"""

import io
import json
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import pytest

from ablations import run as script
from minbert.errors import UserError

ROOT = Path(__file__).parent.parent.parent
SAMPLE = str(ROOT / "data" / "sample")


def command(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "ablations" / "run.py"), *words]


def run(*words: str) -> tuple[int, str]:
    """The exit code and the output of the command, in this process; its runs have processes of their own."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", command(*words)[1:])
        try:
            script.main()
        except UserError as error:
            return 2, str(error)
        except SystemExit as end:
            return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.fixture(scope="module")
def study(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two arms of the sample study, one seed and two steps, as words of a command; its runs are finished."""
    runs = tmp_path_factory.mktemp("ablations")
    text = (ROOT / "ablations" / "studies" / "sample.toml").read_text()
    (runs / "sample.toml").write_text(text.replace("[0.02, 0.05, 0.1]", "[0.05, 0.1]"))
    words = [str(runs / "sample.toml"), "--set", f"weights={tiny}", "--data", SAMPLE, "--runs", str(runs)]
    words += ["--seeds", "1", "--set", "max-steps=2", "--jobs", "2"]
    code, out = run(*words)
    assert not code, out
    return words


def folder_of(study: list[str]) -> Path:
    return Path(study[study.index("--runs") + 1]) / "sample"


def test_the_tables_hold_the_scores_of_the_runs(study: list[str]) -> None:
    folder = folder_of(study)
    content = json.loads((folder / "table.json").read_text())
    scores = json.loads((folder / "0.1" / "seed-1" / "scores.json").read_text())
    values = pd.DataFrame(**content["values"]).set_index(["group", "metric"])["value"]
    assert values["0.1", "sts_dev_spearman"] == pytest.approx(scores["sts_dev_spearman"]["after"], abs=1e-6)
    assert "--data DIR" in content["command"] and "--set max-steps=2" in content["command"]
    text = (folder / "table.md").read_text()
    assert str(ROOT) not in text and "--set max-steps=2, in place of: 150 triplets" in text
    assert "| 0.1 | 2 of 2 | 1 |" in text
    assert (folder / "figure.svg").is_file() and (folder / "0.1" / "seed-1.log").read_text()


def test_what_is_finished_is_not_run_again(study: list[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder_of(study).rglob("manifest.json")}
    assert "2 of 2 runs are finished; nothing is left" in run(*study)[1]
    assert {path: path.stat().st_mtime_ns for path in folder_of(study).rglob("manifest.json")} == before


def test_other_settings_are_not_taken_for_the_same_run(study: list[str]) -> None:
    code, out = run(*study, "--set", "limit=40")
    assert code == 2 and "a run with other settings (limit 150, now 40)" in out
    code, out = run(*study, "--data", "elsewhere")
    assert code == 2 and "now 'elsewhere'" in out
    path = next(folder_of(study).rglob("manifest.json"))
    manifest = json.loads(text := path.read_text())
    manifest["all_settings"] |= {"mask": True, "keep_checkpoints": False}  # of an older version
    path.write_text(json.dumps(manifest))
    assert run(*study)[0] == 0, "flags without an effect on the results may differ"
    manifest["settings"]["mask"] = True
    path.write_text(json.dumps(manifest))
    code, out = run(*study)
    path.write_text(text)
    assert code == 2 and "a run with other settings (mask True, now None)" in out


def test_a_dry_run_prints_what_would_be_run(study: list[str]) -> None:
    code, out = run(*study, "--seeds", "2", "--dry-run")
    commands = [line for line in out.splitlines() if "pretrain_cbcl.py" in line]
    assert code == 0 and "2 of 4 runs are finished\n" in out
    assert len(commands) == 2 and all("--seed 2" in line and "--max-steps 2" in line for line in commands)
    assert not list(folder_of(study).rglob("seed-2"))


def test_a_quick_study_of_stage_two_runs_to_its_end(tiny: Path, tmp_path: Path) -> None:
    """Two of its arms; the fixture's study is of stage one."""
    name, arms = "pair-input", ["cross", "joint"]
    head, axes = (ROOT / "ablations" / "studies" / f"{name}.toml").read_text().split("[axes]\n")
    (tmp_path / f"{name}.toml").write_text(f"{head}[axes]\n{axes.partition(' = ')[0]} = {arms}\n")
    words = ["--quick", "--set", f"weights={tiny}", "--data", SAMPLE, "--runs", str(tmp_path), "--jobs", "2"]
    code, out = run(str(tmp_path / f"{name}.toml"), *words, "--set", "max-steps=1", "--set", "max-length=32")
    assert not code, out
    content = json.loads((tmp_path / "quick" / name / "table.json").read_text())
    summary = pd.DataFrame(**content["summary"])
    assert {*summary["group"]} == {*arms} and not content["missing"]
    assert {*summary["step"]} == {"1 of 1"}


@pytest.mark.slow
def test_a_failed_run_is_listed_and_the_rest_goes_on(tmp_path: Path, tiny: Path) -> None:
    """A suite judges each encoder, and one that is not trained."""
    text = (ROOT / "ablations" / "studies" / "sample.toml").read_text()
    text = text[: text.index("[axes]")].replace('x = "temperature"', "").replace('"0.05"', '"whole"')
    text = text.replace('"triplet_accuracy"]', '"weat/effect"]')
    text += f"""
[suites]
weat = "probes --probes weat --resamples 0"
[arms]
whole = {{ weights = "{tiny}" }}
gone = {{ weights = "{tmp_path / "gone"}" }}
next = {{ from = "gone" }}
untrained = {{ measured = "{tiny}" }}
"""
    (tmp_path / "broken.toml").write_text(text)
    runs = ["--data", SAMPLE, "--runs", str(tmp_path), "--jobs", "3", "--seeds", "1", "--set", "max-steps=1"]
    code, out = run(str(tmp_path / "broken.toml"), *runs)
    assert code == 1
    assert "failed: gone seed 1: exit code 2" in out and "failed: next seed 1: gone seed 1 failed" in out
    content = json.loads((tmp_path / "broken" / "table.json").read_text())
    values = pd.DataFrame(**content["summary"]).set_index(["group", "metric"])["mean"]
    assert values.index.get_level_values("group").unique().tolist() == ["whole", "untrained"]
    probes = json.loads((tmp_path / "broken" / "whole" / "seed-1" / "suites" / "weat" / "probes.json").read_text())
    effects = [row["value"] for row in probes["weat"]["results"]]
    assert values["whole", "weat/effect"] == pytest.approx(sum(effects) / len(effects), abs=1e-6)


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
    code, out = run(*words)
    assert not code, out
    whole = folder_of(study) / "0.1" / "seed-1"
    assert (folder / "scores.json").read_text() == (whole / "scores.json").read_text()
