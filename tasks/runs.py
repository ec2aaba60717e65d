"""The folder of a finished run as the report and the studies read it: manifest, metrics, scores and dev rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.files import expand_user
from tasks import manifests, record
from tasks.record import PredictedRows, TaskScores


@dataclass(frozen=True)
class Run:
    """The files of a finished run.

    `train` and `evaluations` are the rows of `metrics.jsonl`; `scores` is `scores.json`, of the weights of `kept_step`.
    `tasks` has the dev score of each task, for stage one of the dev pairs. `changes` has the metrics of stage one
    `before` and `after` training.
    """

    folder: Path
    name: str
    manifest: dict[str, Any]
    train: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    scores: dict[str, Any]
    tasks: dict[str, TaskScores]
    changes: dict[str, dict[str, float | None]]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, paths included."""
        return self.manifest["all_settings"]

    @property
    def multitask(self) -> bool:
        """Whether this is a run of stage two."""
        return manifests.is_multitask(self.manifest)

    @property
    def kept_step(self) -> int:
        """The step whose weights are kept and scored."""
        return self.scores["step"]

    @property
    def dev_norm(self) -> float | None:
        """The mean of the tasks' scores, a correlation r as (r + 1) / 2; None for stage one."""
        return self.scores.get("dev_norm")


def read_run(folder: str | Path, name: str = "") -> Run:
    """Read the folder of a finished run. Raises `UserError` if it is none."""
    folder = expand_user(folder)
    manifest, scores = manifests.finished(folder)
    metrics_file = folder / "metrics.jsonl"
    metrics = record.json_lines(metrics_file) if metrics_file.is_file() else []
    dev_rows = {}
    for file in sorted((folder / "dev").glob("*.jsonl")):
        dev_rows[file.stem] = record.read_rows(file)
    changes = {}
    for key, value in scores.items():
        if isinstance(value, dict) and {"before", "after"} <= value.keys():
            changes[key] = value
    if manifests.is_multitask(manifest):
        tasks = task_scores(scores["tasks"], dev_rows)
    else:
        tasks = _dev_pair_scores(manifest, changes, dev_rows)
    return Run(
        folder=folder,
        name=name or folder.resolve().name,
        manifest=manifest,
        train=[row for row in metrics if row["kind"] == "train"],
        evaluations=[row for row in metrics if row["kind"] == "evaluation"],
        scores=scores,
        tasks=tasks,
        changes=changes,
    )


def task_scores(scores: Mapping[str, Any], dev_rows: Mapping[str, PredictedRows]) -> dict[str, TaskScores]:
    """Stage two's tasks with their scores, as `evaluate.report` gives them."""
    tasks = {}
    for name, report in scores.items():
        tasks[name] = TaskScores(
            name=name,
            title=report["title"],
            metric=report["metric"],
            score=report["score"],
            count=report["rows"],
            classes=tuple(row["label"] for row in report["per_class"]),
            per_class=tuple(report["per_class"]),
            rows=dev_rows.get(name),
            scale=tuple(report.get("scale", (0.0, 5.0))),
        )
    return tasks


def _dev_pair_scores(
    manifest: dict[str, Any], changes: dict[str, dict[str, float | None]], dev_rows: dict[str, PredictedRows]
) -> dict[str, TaskScores]:
    """Stage one's Spearman's rho on the dev pairs, and on each of their sets if there are several."""
    entries = manifests.data_entries(manifest)
    if "sts_dev_spearman" not in changes:  # a run without scored pairs
        return {}
    sets = []
    for name, entry in entries.items():
        if name.startswith("sts_dev "):
            dev_set = name.removeprefix("sts_dev ")
            sets.append((record.file_name(dev_set), dev_set, entry))
    all_pairs = f"similarity, mean of {len(sets)} sets" if sets else "similarity"
    tasks = {}
    for key, title, entry in [("sts", all_pairs, entries["sts_dev"]), *sets]:
        rows = dev_rows.get(key)
        if rows is not None:
            count = len(rows.labelled())
        else:
            count = entry.get("labelled") or entry.get("kept") or 0
        change = changes[f"{key}_dev_spearman"]
        tasks[key] = TaskScores(
            name=key,
            title=title,
            metric="Spearman's rho",
            score=change["after"],
            count=count,
            before=change["before"],
            rows=rows,
            cosines=True,
        )
    return tasks
