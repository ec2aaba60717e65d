"""The folder of a finished run as the report and the studies see it: manifest, metrics, scores and dev rows.

Importing this module and reading a run load no torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import expand_user, read_json_object
from tasks import record
from tasks.manifests import RecordedData, data_sets
from tasks.record import PredictedRows, TaskScores, file_name, json_lines


@dataclass(frozen=True)
class Run:
    """Everything that a page shows of one run.

    Its scores are those of `kept_step`. `selection` is how that checkpoint is chosen: `keep`, `metric`, `by_dev_pairs`.
    `data` has its sets of data by name, as `manifests.data_sets`. `changes` holds the numbers of stage one before and
    after training. `parts` are its start and each resume, which took `seconds` together. `planned_steps` are those of
    the plan.
    """

    folder: Path
    name: str
    manifest: dict[str, Any]
    selection: dict[str, Any]
    data: dict[str, RecordedData]
    train: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    scores: dict[str, Any]
    tasks: dict[str, TaskScores]
    changes: dict[str, dict[str, float | None]]
    parts: list[dict[str, Any]]
    planned_steps: int
    last_step: int
    kept_step: int
    seconds: float

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, paths included."""
        settings: dict[str, Any] = self.manifest["all_settings"]
        return settings

    @property
    def multitask(self) -> bool:
        """Whether this is a run of stage two."""
        return "tasks" in self.settings

    @property
    def dev_norm(self) -> float | None:
        """The mean of the tasks' scores, those of regressions brought to 0..1."""
        return self.scores.get("dev_norm")


def read_run(folder: str | Path, name: str = "") -> Run:
    """Read the folder of a finished run; `UserError` if it is none, or its files are not as the scripts write them."""
    try:
        return _read_run(expand_user(folder), name)
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        files = "manifest.json, metrics.jsonl, scores.json or dev/"
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{folder}: its {files} are not as the scripts write them ({what})") from error


def finished(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest and the scores of a finished run. Raises `UserError` if `folder` is not one."""
    manifest, scores = folder / "manifest.json", folder / "scores.json"
    if not manifest.is_file():
        raise UserError(f"{folder}: not a run folder: it holds no manifest.json")
    if not scores.is_file():
        raise UserError(f"{folder}: has no scores.json, which a run writes at its end: let it finish first (--resume)")
    return read_json_object(manifest), read_json_object(scores)


def _read_run(folder: Path, name: str) -> Run:
    manifest, scores = finished(folder)
    metrics_path = folder / "metrics.jsonl"
    metrics = json_lines(metrics_path) if metrics_path.is_file() else []
    train, evaluations = ([row for row in metrics if row["kind"] == kind] for kind in ("train", "evaluation"))
    rows = {file.stem: record.read_rows(file) for file in sorted((folder / "dev").glob("*.jsonl"))}
    changes = {
        key: value for key, value in scores.items() if isinstance(value, dict) and {"before", "after"} <= value.keys()
    }
    data = dict(data_sets(manifest.get("data")))
    if "tasks" in manifest["all_settings"]:
        tasks = task_scores(scores["tasks"], rows)
    else:
        tasks = _contrastive(data, changes, rows)
    return Run(
        folder,
        name or folder.resolve().name,
        manifest,
        manifest["selection"],
        data,
        train,
        evaluations,
        scores,
        tasks,
        changes,
        parts=manifest["parts"],
        planned_steps=manifest["plan"]["steps"],
        last_step=scores["last_step"],
        kept_step=scores["step"],
        seconds=sum(part["seconds"] for part in manifest["parts"]),
    )


def task_scores(scores: dict[str, Any], rows: dict[str, PredictedRows]) -> dict[str, TaskScores]:
    """Stage two's tasks with their scores, as `evaluate.report` gives them."""
    tasks = {}
    for name, one in scores.items():
        classes = tuple(row["label"] for row in one["per_class"])
        about = (name, one["title"], one["metric"], one["score"], one["rows"], classes, tuple(one["per_class"]))
        tasks[name] = TaskScores(*about, rows=rows.get(name))
    return tasks


def _contrastive(
    data: dict[str, RecordedData], changes: dict[str, dict[str, float | None]], rows: dict[str, PredictedRows]
) -> dict[str, TaskScores]:
    """Spearman's rho on the dev pairs, and on each of their sets if there are several."""
    sets = {name.removeprefix("sts_dev "): one for name, one in data.items() if name.startswith("sts_dev ")}
    whole = f"similarity, mean of {len(sets)} sets" if sets else "similarity"
    tasks = {}
    for key, title, one in (
        ("sts", whole, data.get("sts_dev", RecordedData())),
        *((file_name(name), name, one) for name, one in sets.items()),
    ):
        own, score = rows.get(key), f"{key}_dev_spearman"
        change = changes[score]
        count = len(own.labelled()) if own is not None and key == "sts" else one.scored
        about = (key, title, "Spearman's rho", change["after"], count)
        tasks[key] = TaskScores(*about, before=change["before"], rows=own, cosines=True)
    return tasks
