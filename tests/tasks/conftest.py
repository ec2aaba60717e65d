"""Run folders as the scripts leave them, small and made up, with texts that try to become markup."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert.train.plan import manifest_entry
from tasks import TASKS, evaluate, record
from tasks.record import PredictedRows
from tasks.runs import Run, read_run
from tasks.sampling import plan as sampling_plan

HOSTILE = (
    "<script>window.owned = 1</script>",
    "</script><script>window.owned = 2</script>",
    "<img src=x onerror='window.owned = 3'>",
    "\"quotes\" & 'quotes' \u2028 \u2029 &lt;b&gt;",
    "]]><!-- <svg onload=window.owned=4> -->",
)


def make_rows(name: str, count: int, seed: int, skill: float, texts: tuple[str, ...] = ()) -> PredictedRows:
    """Dev rows of which about `skill` are right; gold and ids do not depend on the seed. The last has no label."""
    gold_draws = np.random.default_rng(5)
    draws = np.random.default_rng(seed)
    ids = [f"{name}-{row}" for row in range(count)]
    words = [f"sentence number {row} of {name}" for row in range(count)]
    words[: len(texts)] = texts
    rows: list[tuple[str, ...]] = [(text,) for text in words]
    if name != "sst":
        rows = [(text, f"the other side of {text}") for text in words]
    if name == "sts":
        gold = np.round(gold_draws.uniform(0, 5, count), 1)
        predicted = np.clip(gold + draws.normal(0, 3 * (1 - skill), count), 0, 5)
        shares = None
    else:
        size = len(TASKS[name].classes)
        gold = gold_draws.integers(size, size=count).astype(np.float64)
        logits = draws.normal(0, 1, (count, size))
        logits[np.arange(count), gold.astype(int)] += 6 * skill - 2
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        predicted = shares.argmax(1).astype(np.float64)
    gold[-1] = np.nan
    return PredictedRows(ids, rows, gold, predicted, shares)


def _write(folder: Path, settings: dict[str, Any], data: dict[str, Any], metrics: list[Any], **more: Any) -> None:
    """Write the manifest and the metrics of a run."""
    folder.mkdir(parents=True)
    manifest = {
        "command": "python multitask_train.py --data 'my data' --resume --run-dir runs/x",
        "preset": "default",
        "settings": {name: value for name, value in settings.items() if name != "run_dir"},
        "all_settings": settings,
        "precision": "fp32",
        "selection": {"keep": "best", "metric": "dev score", "patience": 0, "by_dev_pairs": True},
        "environment": {"threads": 2, "device": "cpu"},
        "sessions": [{"started": "2026-01-02T03:04:05+0000", "from_step": 0, "to_step": 30, "seconds": 9.0}],
        "data": data,
        **more,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))


def _file(name: str, count: int) -> dict[str, Any]:
    """The entry of a data file in a manifest."""
    entry = {"file": f"data/{name}.csv", "sha256": "ab" * 32, "read": count, "kept": count, "warnings": []}
    entry["skipped"] = [{"line": 3, "why": "sentence2: empty"}] if name == "quora" else []
    return entry


@pytest.fixture
def multitask(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes the run folder of the second stage."""

    def make(
        name: str = "run", *, seed: int = 1, skill: float = 0.7, rows: int = 60, texts: tuple[str, ...] = ()
    ) -> Path:
        folder = tmp_path / name
        sizes = {"sst": 48, "quora": 160, "sts": 64}
        settings = {"tasks": "sst,quora,sts", "sampling": "round-robin", "epochs": 2, "batch_size": 16, "lr": 1e-4}
        settings |= {"seed": seed, "power": 0.5, "weights": "minilm", "run_dir": str(folder)}
        plan = sampling_plan("round-robin", sizes, epochs=2, batch_size=16, seed=seed)
        data = {
            "train": {task: _file(task, size) for task, size in sizes.items()},
            "dev": {task: _file(task, rows) for task in sizes},
        }
        metrics: list[dict[str, Any]] = []
        for step in range(10, plan.total + 1, 10):
            losses = {f"{task}/loss": 2.0 / step + 0.1 * seed for task in sizes}
            metrics.append({"kind": "train", "step": step, "lr": 1e-3, **losses, "seconds": 1.0})
            if step % 20 == 0:
                scores = {**dict.fromkeys(sizes, 0.5 + step / 1000), "dev_norm": 0.6}
                evaluation = {"kind": "evaluation", "step": step, "score": 0.5, "best": step == 20, "seconds": 1.0}
                metrics.append(evaluation | scores)
        _write(folder, settings, data, metrics, plan=manifest_entry(plan), training_rows=sizes)
        rows_of_tasks = {task: make_rows(task, rows, seed, skill, texts) for task in sizes}
        scores = {}
        for task, dev_rows in rows_of_tasks.items():
            scores[task] = evaluate.report(TASKS[task](), dev_rows.predicted, dev_rows.gold)
        parts = [scores["sst"]["score"], scores["quora"]["score"], (scores["sts"]["score"] + 1) / 2]
        steps = {"step": 20, "kept_weights": "the best", "best_step": 20, "last_step": plan.total}
        (folder / "scores.json").write_text(json.dumps({"dev_norm": sum(parts) / 3, **steps, "tasks": scores}))
        for task in sizes:
            record.write_rows(folder, task, rows_of_tasks[task])
        return folder

    return make


@pytest.fixture
def contrastive(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes the run folder of the first stage."""

    def make(name: str = "cbcl", *, after: float | None = 0.85, recorded: int = 0) -> Path:
        folder = tmp_path / name
        settings = {"order": "curriculum", "power": 0.5, "epochs": 3, "weights": "minilm", "lr": 2e-5, "seed": 1}
        counts = {"read": 1300, "skipped": 4, "triplets": 1200, "duplicates": 7}
        files = [{"file": "a.csv", "sha256": "cd" * 32}]
        train = {"files": files, "kept": 1200, "counts": counts, "skipped": []}
        mix = {"mix_per_epoch": [[0.8, 0.2, 0], [0.6, 0.4, 0], [0.5, 1 / 3, 1 / 6]]}
        metrics = [
            {"kind": "train", "step": 5, "lr": 2e-5, "nli/loss": 2.0, "seconds": 1.0, "examples_per_second": 80.0},
            {"kind": "evaluation", "step": 5, "score": -1.0, "best": True, "sts_dev_spearman": None, "seconds": 0.1},
        ]
        more = {"curriculum": mix, "plan": {"steps": 19, "steps_per_epoch": [5, 6, 8]}, "training_rows": {"nli": 1200}}
        _write(folder, settings, {"train": train, "sts_dev": {"name": "sts", **_file("sts", 50)}}, metrics, **more)
        scores = {"sts_dev_spearman": {"before": 0.8, "after": after}, "uniformity": {"before": -1.5, "after": -2}}
        more = {
            "step": 5,
            "kept_weights": "the last",
            "best_step": 5,
            "last_step": 5,
            "keep": "last",
            "chance_loss": 3.0,
        }
        (folder / "scores.json").write_text(json.dumps(scores | more))
        if recorded:  # cosines that follow gold, by a seed
            dev = make_rows("sts", 50, recorded, 0.6)
            record.write_rows(folder, "sts", PredictedRows(dev.ids, dev.texts, dev.gold, dev.predicted / 5, None))
        return folder

    return make


def change_manifest(folder: Path, **more: object) -> Run:
    """A run whose manifest holds more."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return read_run(folder)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not drawn, which takes most of the time of a page."""
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>'
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, out, **options: out.write(drawing))
