"""A run folder as the report, the studies and a notebook see it: manifest, metrics, scores and dev rows.

Importing this module and reading a finished run load no torch.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from minbert.errors import UserError
from minbert.files import expanded, read_json_object
from tasks import record
from tasks.contrastive.settings import slug
from tasks.manifests import RecordedData, data_sets
from tasks.metrics import DEV_NORM
from tasks.record import PredictedRows, TaskScores, json_lines


@dataclass(frozen=True, repr=False)
class Run:
    """Everything that a page shows of one run; `finished` if it has written its scores.

    Its scores are those of `kept_step`; before it is finished, of the best evaluation so far. `selection` is how that
    checkpoint is chosen: `keep`, `metric`, `by_dev_pairs`. `data` has its sets of data by name, as
    `manifests.data_sets`. `changes` holds the numbers of stage one before and after training. `written` is the last
    change of its metrics, in seconds since the epoch.
    """

    folder: Path
    name: str
    manifest: dict[str, Any]
    selection: dict[str, Any]
    data: dict[str, RecordedData]
    train: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    finished: bool
    scores: dict[str, Any]
    tasks: dict[str, TaskScores]
    changes: dict[str, dict[str, float | None]] = field(default_factory=dict)
    written: float = 0.0

    def __repr__(self) -> str:
        return f"Run({self.name}, {'' if self.finished else 'not '}finished, step {self.step:,})"

    def metrics_frame(self) -> pd.DataFrame:
        """`metrics.jsonl` as a frame, a row for each of its lines; `kind` is train or evaluation."""
        rows = [*self.train, *self.evaluations]
        frame = pd.DataFrame(rows, columns=None if rows else ["kind", "step"])
        return frame.sort_values("step", kind="stable", ignore_index=True)

    def score_frame(self) -> pd.DataFrame:
        """The dev scores: a row for each task, and one for the dev norm of stage two. What is unknown is NaN."""
        tasks = self.tasks.values()
        rows: list[tuple[Any, ...]] = [(one.title, one.metric, one.count, one.before, one.score) for one in tasks]
        rows += [(DEV_NORM, "mean", None, None, self.dev_norm)] if self.multitask else []
        frame = pd.DataFrame(rows, columns=["task", "metric", "rows", "before", "score"]).set_index("task")
        return frame.astype({"rows": "Int64", "before": float, "score": float})

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
    def parts(self) -> list[dict[str, Any]]:
        """Each start or resume of the run."""
        return self.manifest.get("parts") or []

    @property
    def planned_steps(self) -> int | None:
        """The number of steps of the plan."""
        return self.manifest.get("plan", {}).get("steps")

    @property
    def dev_norm(self) -> float | None:
        """The mean of the tasks' scores, those of regressions brought to 0..1."""
        return self.scores.get("dev_norm")

    @property
    def kept_step(self) -> int | None:
        """The step whose weights are kept, as far as it is known."""
        return None if not self.finished and self.selection["keep"] == "last" else self.scores.get("step")

    @property
    def seconds(self) -> float:
        """The wall time of all parts of the run, or of what it has logged if that is more."""
        logged = sum(row.get("seconds", 0.0) for row in (*self.train, *self.evaluations))
        return max(sum(part.get("seconds") or 0.0 for part in self.parts), logged)

    @property
    def step(self) -> int:
        """The last step that is known to be made: logged, or at the end of a part of the run."""
        ends = [part.get("to_step") or 0 for part in self.parts]
        return max([*ends, *(row["step"] for row in (*self.train, *self.evaluations))], default=0)

    def task_title(self, name: str) -> str:
        """A task's title, or else its name."""
        return self.tasks[name].title if name in self.tasks else name


def read_run(folder: str | Path, name: str = "") -> Run:
    """Read a run folder; `UserError` if it is none, or if its files are not as the scripts write them."""
    try:
        return _read_run(expanded(folder), name)
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        files = "manifest.json, metrics.jsonl, scores.json or dev/"
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{folder}: its {files} are not as the scripts write them ({what})") from error


def _read_run(folder: Path, name: str) -> Run:
    path, scores_path, metrics_path = (folder / file for file in ("manifest.json", "scores.json", "metrics.jsonl"))
    if not path.is_file():
        raise UserError(f"{folder}: not a run folder: it holds no manifest.json")
    manifest, finished = read_json_object(path), scores_path.is_file()
    metrics = json_lines(metrics_path) if metrics_path.is_file() else []
    train, evaluations = ([row for row in metrics if row["kind"] == kind] for kind in ("train", "evaluation"))
    best: dict[str, Any] = next((row for row in reversed(evaluations) if row.get("best")), {})
    scores = read_json_object(scores_path) if finished else best
    rows = {file.stem: record.read_rows(file) for file in sorted((folder / "dev").glob("*.jsonl"))} if finished else {}
    changes = {
        key: value for key, value in scores.items() if isinstance(value, dict) and {"before", "after"} <= value.keys()
    }
    data = dict(data_sets(manifest.get("data")))
    if "tasks" not in manifest["all_settings"]:
        tasks = _contrastive(data, scores, changes, rows)
    else:
        tasks = task_scores(scores["tasks"], rows) if finished else _unfinished(data, scores)
    written = (metrics_path if metrics_path.is_file() else path).stat().st_mtime
    name, selection = name or folder.resolve().name, manifest["selection"]
    return Run(folder, name, manifest, selection, data, train, evaluations, finished, scores, tasks, changes, written)


def task_scores(scores: dict[str, Any], rows: dict[str, PredictedRows]) -> dict[str, TaskScores]:
    """Stage two's tasks with their scores, as `evaluate.report` gives them."""
    tasks = {}
    for name, one in scores.items():
        classes = tuple(row["label"] for row in one["per_class"])
        about = (name, one["title"], one["metric"], one["score"], one["rows"], classes, tuple(one["per_class"]))
        tasks[name] = TaskScores(*about, rows=rows.get(name))
    return tasks


def _unfinished(data: dict[str, RecordedData], scores: dict[str, Any]) -> dict[str, TaskScores]:
    """Stage two's tasks with the scores of an evaluation."""
    from tasks.registry import TASKS  # loads torch

    tasks = {}
    for name, one in data.items():
        if name.startswith("dev "):
            task = TASKS[name.removeprefix("dev ")]()
            score = scores.get(task.name)
            tasks[task.name] = TaskScores(task.name, task.title, task.metric, score, one.scored, tuple(task.classes))
    return tasks


def _contrastive(
    data: dict[str, RecordedData],
    scores: dict[str, Any],
    changes: dict[str, dict[str, float | None]],
    rows: dict[str, PredictedRows],
) -> dict[str, TaskScores]:
    """Spearman's rho on the dev pairs, and on each of their sets if there are several."""
    sets = {name.removeprefix("sts_dev "): one for name, one in data.items() if name.startswith("sts_dev ")}
    whole = f"similarity, mean of {len(sets)} sets" if sets else "similarity"
    tasks = {}
    for key, title, one in (
        ("sts", whole, data.get("sts_dev", RecordedData())),
        *((slug(name), name, one) for name, one in sets.items()),
    ):
        own, score = rows.get(key), f"{key}_dev_spearman"
        change = changes.get(score) or {"before": None, "after": scores.get(score)}
        count = len(own.labelled()) if own is not None and key == "sts" else one.scored
        about = (key, title, "Spearman's rho", change["after"], count)
        tasks[key] = TaskScores(*about, before=change["before"], rows=own, cosines=True)
    return tasks
