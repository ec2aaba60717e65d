"""Guards: a search stops what is below the median, which is no failure, lists what fails, and makes each trial once.

python -m pytest --import-mode=importlib tests/ablations/test_search.py
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from ablations.cells import Cell
from ablations.estimate import Estimates
from ablations.runner import Runner
from ablations.search import search
from ablations.study import Arm, Study, read_study

FEWEST = 5  # trials that Optuna's median pruner lets end before it prunes


class Instant(Runner):
    """A runner whose runs take no time: three evaluations each.

    One trial is worse than the others, one at its end only, one fails, and one has a score that is undefined.
    """

    def run(self) -> None:
        for cell in self.cells:
            cell.folder.mkdir(parents=True)
            (cell.folder / "manifest.json").write_text(json.dumps({"plan": {"steps": 3}}))
            scores: list[float | None] = [0.5, 0.5, 0.5]
            if cell.arm.name == f"trial-{FEWEST + 1}":
                scores = [0.1, 0.1, 0.1]
            elif cell.arm.name == f"trial-{FEWEST + 2}":
                scores = [0.5, None, 0.1]
            for step, score in enumerate(scores, start=1):
                with open(cell.folder / "metrics.jsonl", "a") as file:
                    file.write(json.dumps({"kind": "evaluation", "step": step, "score": score}) + "\n")
                if self.watch(cell):
                    self.pruned.add(cell.folder)
                    break
            if cell.arm.name == "trial-2":
                self.failed[cell.name] = "exit code 1"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two settings of the sample preset, in eight trials."""
    text = (Path(__file__).parents[2] / "ablations" / "studies" / "sample.toml").read_text()
    text += """
[search]
arm = "0.1"
trials = 8
[search.settings]
margin = { low = 0.1, high = 0.2 }
epochs = { low = 1, high = 3 }
"""
    (tmp_path / "tried.toml").write_text(text)
    return read_study(str(tmp_path / "tried.toml"))


def test_a_trial_below_the_median_is_stopped_and_the_search_goes_on(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(Cell, "finished", True)
    runner = Instant([], Estimates([]))
    search(study, 1, "", tmp_path, runner)
    found = pd.read_csv(tmp_path / "tried" / "search.csv").set_index("trial").sort_index()
    complete = ["complete"] * (FEWEST - 2)
    assert found["state"].tolist() == ["complete", "complete", "fail", *complete, "pruned", "complete"]
    assert runner.failed == {"trial-2 seed 1": "exit code 1"}
    assert found["margin"].between(0.1, 0.2).all() and set(found["epochs"]) <= {1, 2, 3}
    looks = [(tmp_path / f"tried/trial-{trial}/seed-1/metrics.jsonl").read_text().count("\n") for trial in range(8)]
    assert looks == [3] * (FEWEST + 1) + [1, 3]
    search(study, 1, "", tmp_path, runner)  # all trials are made
    assert len(list(tmp_path.glob("tried/trial-*"))) == 8


class Endless(Cell):
    """A cell whose command does not end by itself."""

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        yield "", ["-c", "import time; time.sleep(60)"]


def test_a_pruned_run_is_stopped_and_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = Endless(Arm("slow", measured="x"), 1, tmp_path / "slow" / "seed-1", None, "")
    runner, begun = Runner([cell], Estimates([cell]), watch=lambda cell: True), time.monotonic()
    runner.run()
    assert time.monotonic() - begun < 30 and runner.pruned == {cell.folder} and not runner.failed
    assert "slow seed 1: pruned" in capsys.readouterr().out
