"""Guards: intervals over dev rows are those of the paired comparison, and tables show scores, papers, steps and ties.

python -m pytest --import-mode=importlib tests/ablations/test_table.py
"""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import table
from ablations.run import parse_arguments, settings_of
from ablations.study import ROOT, ArmRun, read_study, runs_of
from minbert.errors import UserError
from minbert.files import sha256_of
from tasks import compare, metrics
from tasks.record import PredictedRows, TaskScores, write_rows

MANIFEST = {"all_settings": {"tasks": "sts"}}
ABOUT: dict[str, Any] = {
    "command": "python ablations/run.py STUDY",
    "seeds": [1],
    "missing": [],
    "failed": {},
    "before_training": {},
    "training_rows": ["nli 2,000"],
    "machines": [],
    "data_sha256": {},
}


def write_run(
    run: ArmRun, gold: np.ndarray, noise: float, random: np.random.Generator, metric: str = "Pearson's r"
) -> TaskScores:
    """Write a finished run whose predictions are the gold scores with some noise."""
    predicted = np.round(gold + random.normal(0, noise, len(gold)), 6)
    rows = PredictedRows([str(row) for row in range(len(gold))], [("a", "b")] * len(gold), gold, predicted, None)
    write_rows(run.folder, "sts", rows)
    score = float(metrics.batched_score(metric, predicted, gold))
    task = {"title": "similarity", "metric": metric, "score": score, "rows": len(gold), "per_class": []}
    (run.folder / "manifest.json").write_text(json.dumps(MANIFEST))
    scores = {"dev_norm": (score + 1) / 2, "tasks": {"sts": task}, "step": 9, "last_step": 9}
    (run.folder / "scores.json").write_text(json.dumps(scores))
    return TaskScores("sts", "similarity", metric, score, len(gold), rows=rows)


def frame_of(*rows: tuple[str, int, str, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["group", "seed", "metric", "value"])


@pytest.mark.parametrize("metric", ["Pearson's r", "Spearman's rho"])
def test_interval_over_rows_is_paired(tmp_path: Path, metric: str) -> None:
    study = read_study("pair-input")
    noise = {"cross": 1.0, "paper": 1.3}
    # one arm lacks the last seed
    runs = [run for run in runs_of(study, [1, 2, 3], "", tmp_path) if run.arm.name in noise][:-1]
    random = np.random.default_rng(5)
    gold = random.uniform(0, 5, 200)
    tasks: dict[str, list[dict[str, TaskScores]]] = {"cross": [], "paper": []}
    for run in runs:
        arm = run.arm.name
        tasks[arm].append({"sts": write_run(run, gold, noise[arm], random, metric)})
    assert len(tasks["cross"]) != len(tasks["paper"])
    expected, _ = compare.differences(tasks["cross"], tasks["paper"])
    by_score = table.intervals_over_rows(study, runs)
    assert by_score["paper", "sts"] == expected.interval
    assert by_score["paper", "dev_norm"].high < 0


def test_stage_one_has_intervals_over_rows(tmp_path: Path) -> None:
    study = read_study("order")
    runs = [run for run in runs_of(study, [1], "", tmp_path) if run.arm.name in ("anti", "none")]
    random = np.random.default_rng(5)
    for run in runs:
        write_run(run, np.arange(40.0) % 6, 1.0, random)
        manifest = {"all_settings": {}, "data": {"train": {}, "sts_dev": {"labelled": 40}}}
        (run.folder / "manifest.json").write_text(json.dumps(manifest))
        scores = {"sts_dev_spearman": {"before": 0.5, "after": 0.6}, "step": 9, "last_step": 9}
        (run.folder / "scores.json").write_text(json.dumps(scores))
    (other,) = {run.arm.name for run in runs} - {study.baseline}
    assert [*table.intervals_over_rows(study, runs)] == [(other, "sts_dev_spearman")]


def test_ties_are_paired_t_tests() -> None:
    study = read_study("order")
    values = {"anti": [0.80, 0.90, 0.70], "random": [0.78, 0.91, 0.69], "none": [0.79, 0.885, 0.69]}
    assert stats.ttest_rel(values["anti"], values["random"]).pvalue > 0.05
    assert stats.ttest_rel(values["anti"], values["none"]).pvalue < 0.05
    for score, sign in (("sts_dev_spearman", 1), ("frozen_loss", -1)):
        rows = []
        for arm in values:
            rows += [(arm, seed, score, sign * value) for seed, value in enumerate(values[arm])]
        frame = frame_of(*rows)
        assert table.best_arms(study, frame) == {("anti", score), ("random", score)}
        assert not table.best_arms(study, frame[frame["seed"] == 0]), "one seed decides nothing"


@pytest.mark.parametrize("name", ["batch-size", "selfccl", "sick", "task-curriculum"])
def test_published_table_is_of_its_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among them tables of several sets, with the paper's rows and quoted ones."""
    folder = ROOT / "ablations" / "results" / name
    content = json.loads((folder / "table.json").read_text())
    monkeypatch.setattr("sys.argv", shlex.split(content["command"])[1:])
    options = parse_arguments()
    study = read_study(options.study, options.model).with_settings(settings_of(options.set))
    rows = pd.DataFrame(**content["summary"])
    rows = rows.where(rows.notna(), np.nan)
    assert table.markdown(study, rows, content, figure=True) == (folder / "table.md").read_text()


def test_table_shows_paper_and_difference() -> None:
    study = replace(read_study("batch-size-views"), scores=("sts/avg.", "uniformity"))
    values = frame_of(("96", 1, "sts/avg.", 0.60), ("48", 1, "sts/avg.", 0.61))
    summary = table.summarise(study, values, [])
    lines = table.markdown(study, summary, ABOUT, figure=False).splitlines()
    assert "| 96 (baseline) | 1 | 60.00 | – | 72.74 |" in lines
    assert "| 48 | 1 | 61.00 | +1.00 | 72.60 |" in lines
    assert "No finished run has the score `uniformity`." in lines
    differs = "Differs from the paper's settings, which are in brackets. consert: weights minilm (bert-base-uncased)."
    assert differs in lines
    assert "Training rows: nli 2,000." in lines
    figure = table.draw(study, summary)
    assert figure is not None and b"<svg" in figure


def test_figure_names_values_and_fits() -> None:
    """One seed has no interval; the label of the dev norm is the longest."""
    for name, model, axis in (("batch-size-views", "minilm-short", "batch size "), ("sampling", "", "")):
        study = read_study(name, model)
        score = study.scores[0]
        other = next(arm for arm in study.arms if arm != study.baseline)
        values = frame_of((study.baseline, 1, score, 0.8), (other, 1, score, 0.7))
        figure = table.draw(study, table.summarise(study, values, []))
        assert figure is not None
        lines = re.findall(r"<text[^>]*>([^<]*)</text>", figure.decode())
        assert any(f"difference to {axis}{study.baseline}" in line for line in lines)
        assert not any("over seeds" in line for line in lines)
        assert max(map(len, lines)) <= 58


def test_step_0_is_not_trained(tmp_path: Path) -> None:
    runs = [run for run in runs_of(read_study("selfccl"), [1, 2], "", tmp_path) if run.arm.name == "simcse-sup"]
    for run, kept in zip(runs, (0, 125), strict=True):
        run.folder.mkdir(parents=True)
        (run.folder / "scores.json").write_text(json.dumps({"step": kept, "last_step": 160}))
    assert table.steps_of(runs) == {"simcse-sup": "0 to 125 of 160, 1 not trained"}
    assert table.steps_of(runs[:1]) == {"simcse-sup": "0 of 160, not trained"}


def test_other_starting_weights_are_refused(tmp_path: Path) -> None:
    """A run is not taken for finished if the folder that it started from has other weights now."""
    run = runs_of(read_study("pacing"), [1], "", tmp_path)[0]
    write_run(run, np.arange(9.0), 0.1, np.random.default_rng(1))
    start = tmp_path / "weights"
    for folder in (start, run.folder / "encoder"):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"as it was")
    entry = {"folder": str(start), "sha256": sha256_of(start / "model.safetensors")}
    (run.folder / "manifest.json").write_text(json.dumps(MANIFEST | {"weights": entry}))
    assert run.is_trained()
    (start / "model.safetensors").write_bytes(b"as it is")
    with pytest.raises(UserError, match=r"did not start from .*/weights as it is now"):
        run.is_trained()


def test_provenance_has_the_runs_behind_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are in no table, as they have none of the scores."""
    study = read_study("synonym-stage")
    runs = runs_of(study, [1], "", tmp_path)
    for run in runs:
        write_run(run, np.arange(9.0), 0.1, np.random.default_rng(1))
    seen: list[str] = []

    def provenance(runs: list[ArmRun]) -> dict[str, Any]:
        seen.extend(run.arm.name for run in runs)
        return {name: ABOUT[name] for name in ("training_rows", "machines", "data_sha256")}

    monkeypatch.setattr(ArmRun, "is_finished", lambda run: True)
    monkeypatch.setattr(table, "provenance", provenance)
    assert table.write_results(study, runs, tmp_path / "tables", "run.py", {})
    assert {"plain-encoder", "synonyms-encoder", "neither"} <= set(seen)


def test_probe_has_means_over_sets() -> None:
    geometry = [("alignment", 0.25), ("alignment", 0.75), ("uniformity", -2.0), ("uniformity", None)]
    results = [{"measure": measure, "value": value} for measure, value in geometry]
    content = {"complete": True, "geometry": {"results": results}}
    assert table.suite_scores(content) == {"alignment": 0.5, "uniformity": -2.0}
    results = [{"measure": "spearman", "removed": removed, "value": 0.5 + removed} for removed in (0, 4)]
    assert table.suite_scores({"frequency": {"results": results}}) == {"0": 0.5, "4": 4.5}


def test_measured_arm_has_no_seed(tmp_path: Path) -> None:
    study = read_study("sick")
    runs = [run for run in runs_of(study, [1, 2, 3], "", tmp_path) if run.arm.measured]
    path = tmp_path / "untrained" / "seed-1" / "suites" / "sick" / "sts.json"
    path.parent.mkdir(parents=True)
    relations = [{"relation": "contradiction", "pairs": 720, "human score": 3.58, "cosine (minilm, mean)": 0.76}]
    results = [{"set": "SICK-R", "measure": "spearman", "value": 0.5}]
    path.write_text(json.dumps({"results": results, "sick": {"relations": relations}}))
    frame = table.values_frame(study, runs)
    values = dict(zip(frame["metric"], frame["value"], strict=True))
    assert values == {"sick/SICK-R": 0.5, "sick/cosine contradiction": 0.76}
    assert frame["seed"].isna().all()
