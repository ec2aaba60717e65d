"""Guards: an ensemble is the mean of its members' own predictions, its files are the leaderboard's, members are alike.

python -m pytest --import-mode=importlib tests/tasks/test_ensemble.py
"""

import html
import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score

from minbert.errors import UserError
from tasks import TASKS, ensemble, evaluate, manifests, predict, predictions, readers, record
from tasks.settings import LEADERBOARD
from tests.tasks.test_predict import finished_run
from tests.tasks.test_predictions import SAMPLE

COURSE = SAMPLE / "course"


@pytest.fixture(scope="module")
def runs(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three finished runs on the sample that differ in their heads and in how they read pairs."""
    data: dict[str, dict[str, Any]] = {"dev": {}, "test": {}}
    for split, name in itertools.product(data, LEADERBOARD):
        path = COURSE / getattr(TASKS[name]().files, split)
        data[split][name] = {"file": str(path), "sha256": readers.digest(path)}
    folders = []
    for seed, pairs in enumerate(("cross", "bi", "paper")):
        torch.manual_seed(seed)
        folder = tmp_path_factory.mktemp("runs") / f"run-{seed}"
        folders.append(finished_run(folder, tiny, pairs, data=data, selection={"by_dev_pairs": True}))
    return folders


def own(run: Path, name: str, split: str) -> np.ndarray:
    """A run's own probabilities or similarities for a file."""
    predictor = predict.load(run)
    task = predictor.model.tasks[name]
    examples = task.open(COURSE / getattr(task.files, split), split, predictor.tokenizer, 24)
    outputs = evaluate.outputs(predictor.model, task, examples, "fp32")
    shares = task.probabilities(outputs)
    return outputs.astype(np.float64) if shares is None else shares


def test_ensemble_is_mean_of_members(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "ensemble"
    ensemble.main([*map(str, runs[:2]), "--out", str(out)])
    assert len(predictions.check(out, SAMPLE)) == 6
    scores = json.loads((out / "scores.json").read_text())
    expected = {}
    for name, split in itertools.product(LEADERBOARD, ("dev", "test")):
        task = TASKS[name]()
        values = np.mean([own(run, name, split) for run in runs[:2]], axis=0)
        predicted = values if name == "sts" else values.argmax(1)
        _, *lines = (out / "predictions" / record.prediction_file(task, split)).read_text().splitlines()
        np.testing.assert_allclose([float(line.split(" , ")[1]) for line in lines], predicted)
        if split == "test":
            continue
        rows = record.read_rows(out / "dev" / f"{name}.jsonl")
        if name == "sts":
            np.testing.assert_allclose(rows.predicted, values, atol=1e-6)
            expected[name] = pearsonr(rows.gold, predicted).statistic
        else:
            np.testing.assert_allclose(rows.probabilities, values, atol=1e-6)
            expected[name] = accuracy_score(rows.gold, predicted)
        task_scores = scores["tasks"][name]
        assert task_scores["score"] == pytest.approx(expected[name])
        low, high = task_scores["interval"]
        assert low <= task_scores["score"] <= high
        supports = [int((rows.gold == label).sum()) for label in range(len(task.classes))]
        assert [row["support"] for row in task_scores["per_class"]] == supports
    assert scores["dev_norm"] == pytest.approx((expected["sst"] + expected["quora"] + (expected["sts"] + 1) / 2) / 3)
    assert [scores["members"][name]["step"] for name in ("run-0", "run-1")] == [4, 4]
    page = (out / "report.html").read_text()
    assert f">{scores['dev_norm']:.4f}<" in page
    assert f">{scores['members']['run-1']['dev_norm']:.4f}<" in page
    command = re.sub("</?span>", "", page)
    assert f"python -m tasks.ensemble {runs[0]} {runs[1]} --out {out}" in command
    similar = record.read_rows(out / "dev" / "sts.jsonl")
    assert any(html.escape(texts[0]) in page for texts in similar.texts), "the largest errors, with their texts"
    member = ensemble.table(scores | {"interval": None, "members": {}}).rows
    assert list(member) == ["run", "step", "sentiment", "paraphrase", "similarity", "dev norm", "dev norm, 95%"]


def test_ensemble_without_texts(runs: list[Path], tmp_path: Path) -> None:
    ensemble.main([*map(str, runs[:2]), "--out", str(tmp_path), "--no-texts"])
    page = html.unescape((tmp_path / "report.html").read_text())
    for line in (COURSE / "ids-sst-dev.csv").read_text().splitlines()[1:]:
        assert readers.clean_sentence(line.split("\t")[2]) not in page
    assert not any(record.read_rows(tmp_path / "dev" / "sst.jsonl").texts)


def test_page_says_how_checkpoints_were_chosen(runs: list[Path], tmp_path: Path) -> None:
    sentence = "The checkpoint was chosen on the same rows."
    members = []
    for run, steps in zip(runs, ([4], [4], [4, 8]), strict=True):
        member = tmp_path / run.name
        shutil.copytree(run, member)
        rows = [json.dumps({"kind": "evaluation", "step": step}) for step in steps]
        (member / "metrics.jsonl").write_text("\n".join(rows) + "\n")
        members.append(str(member))
    for chosen, number in ((False, 1), (True, 2)):
        out = tmp_path / f"ensemble-{chosen}"
        ensemble.main([members[0], members[number], "--out", str(out)])
        assert (sentence in (out / "report.html").read_text()) == chosen


def test_members_must_be_alike(runs: list[Path], tiny: Path, tmp_path: Path) -> None:
    def message(*arguments: Path | str) -> str:
        with pytest.raises(UserError) as raised:
            ensemble.main([*map(str, arguments), "--out", str(tmp_path / "out")])
        assert not (tmp_path / "out").exists()
        return str(raised.value)

    text = (runs[0] / "manifest.json").read_text()
    first = finished_run(tmp_path / "first", tiny)
    second = finished_run(tmp_path / "second", tiny)
    (first / "manifest.json").write_text(text)
    manifest = {"all_settings": {**json.loads(text)["all_settings"], "tasks": "sst"}}
    (second / "manifest.json").write_text(json.dumps(manifest | {"data": {"dev": {"sst": {"sha256": "0"}}}}))
    assert message(first, second).startswith(f"{second} and {first} differ in the ")
    changed = json.loads(text)
    changed["data"]["test"]["quora"]["sha256"] = "0"
    (second / "manifest.json").write_text(json.dumps(changed))
    assert message(first, second) == f"{second} and {first} differ in the test file of quora"
    (first / "manifest.json").write_text(json.dumps(changed))
    assert "not the file that" in message(first, second)
    with pytest.raises(UserError, match="not an empty folder"):
        ensemble.main([*map(str, runs), "--out", str(runs[0])])
    with pytest.raises(UserError, match="no file can be written there"):
        ensemble.main([*map(str, runs), "--out", "/proc/ensemble"])


def test_moved_file_is_found(runs: list[Path], tmp_path: Path) -> None:
    """In the data folder or in its `course`; another task's file may have the same name."""
    name = "ids-sst-dev.csv"
    manifest = json.loads((runs[0] / "manifest.json").read_text())
    manifest["data"]["dev"]["sst"]["file"] = str(tmp_path / "gone" / name)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    folders = [tmp_path / "data", tmp_path / "data" / "course"]
    for moved, other in (folders, reversed(folders)):
        moved.mkdir(parents=True, exist_ok=True)
        other.mkdir(parents=True, exist_ok=True)
        shutil.copy(COURSE / name, moved / name)
        (other / name).write_text("another task's")
        assert manifests.recorded_file(tmp_path, "sst", "dev", tmp_path / "data") == moved / name


def test_members_define_own_tasks_alike(runs: list[Path], tmp_path: Path) -> None:
    names = ("name", "kind", "title", "label", "id", "metric", "source")
    definition = {**dict.fromkeys(names, ""), "texts": ["text"], "scale": [0, 5], "weight": 1, "files": {}}
    folders = []
    for number, labels in enumerate((["a", "b"], ["b", "a"])):
        folder = tmp_path / str(number)
        shutil.copytree(runs[0], folder)
        path = folder / "manifest.json"
        own_tasks = {"reviews": {**definition, "labels": labels, "draws_dev": False}}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"own_tasks": own_tasks}))
        folders.append(folder)
    ensemble.check_alike([folders[0], folders[0]])
    with pytest.raises(UserError, match="differ in the definition of reviews"):
        ensemble.check_alike(folders)
