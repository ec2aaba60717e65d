"""A run folder as the report page and a notebook see it: manifest, metrics, scores and dev rows. Loads no torch."""

import json
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from minbert.errors import UserError
from minbert.files import expanded, read_json
from tasks import record
from tasks.compare import DEV_NORM
from tasks.contrastive.settings import slug
from tasks.record import Rows, TaskScores

_SILENT = 600  # seconds without a logged row after which an unfinished run counts as stopped


@dataclass(frozen=True, repr=False)
class Run:
    """Everything that a page shows of one run; `finished` if it has written its scores.

    Its scores are those of `kept_step`; before it is finished, of the best evaluation so far.
    """

    folder: Path
    name: str
    manifest: dict[str, Any]
    train: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    finished: bool
    scores: dict[str, Any]  # scores.json, or the best evaluation so far
    tasks: dict[str, TaskScores]
    written: float = 0.0  # last change of its metrics, or else its manifest: seconds since the epoch

    def __repr__(self) -> str:
        return f"Run({self.name}, {self.state(time.time())}, step {self.step:,})"

    def _repr_html_(self) -> str:
        """The table of its scores, for notebooks."""
        return f"<p>{escape(repr(self))}</p>{self.score_frame().to_html(na_rep='')}"

    def metrics_frame(self) -> pd.DataFrame:
        """`metrics.jsonl` as a frame, a row for each of its lines; `kind` is train or evaluation."""
        rows = [*self.train, *self.evaluations]
        found = pd.DataFrame(rows, columns=None if rows else ["kind", "step"])
        return found.sort_values("step", kind="stable", ignore_index=True)

    def score_frame(self) -> pd.DataFrame:
        """The dev scores: a row for each task, and one for the dev norm of stage two. What is unknown is NaN."""
        known = self.tasks.values()
        rows: list[tuple[Any, ...]] = [(one.title, one.metric, one.count, one.before, one.score) for one in known]
        rows += [(DEV_NORM, "mean", None, None, self.dev_norm)] if self.multitask else []
        found = pd.DataFrame(rows, columns=["task", "metric", "rows", "before", "score"]).set_index("task")
        return found.astype({"rows": "Int64", "before": float, "score": float})

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, paths included."""
        return _object(self.manifest["all_settings"])

    @property
    def multitask(self) -> bool:
        """Whether this is a run of stage two."""
        return "tasks" in self.settings

    @property
    def data(self) -> dict[str, Any]:
        """The manifest's account of the data files."""
        return _object(self.manifest.get("data"))

    @property
    def selection(self) -> dict[str, Any]:
        """What the manifest says of how the checkpoint is chosen."""
        return _object(self.manifest.get("selection"))

    @property
    def dev_norm(self) -> float | None:
        """The mean of the tasks' scores, those of regressions brought to 0..1."""
        return self.scores.get("dev_norm")

    @property
    def kept_step(self) -> int | None:
        """The step whose weights are kept, as far as it is known."""
        return None if not self.finished and self.selection.get("keep") == "last" else self.scores.get("step")

    @property
    def changes(self) -> dict[str, dict[str, float | None]]:
        """The numbers of stage one that are known `before` and `after` training."""
        pairs = {name: _object(value) for name, value in self.scores.items()}
        return {name: one for name, one in pairs.items() if {"before", "after"} <= one.keys()}

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The manifest's records of each start or resume."""
        return [part for part in self.manifest.get("parts") or [] if isinstance(part, dict)]

    @property
    def seconds(self) -> float:
        """The time of all parts of the run: the manifest's, or the metrics' if that is more."""
        by_parts = sum(part.get("seconds") or 0.0 for part in self.parts)
        logged = sum(row.get("seconds", 0.0) for row in (*self.train, *self.evaluations))
        return max(by_parts, logged)

    @property
    def step(self) -> int:
        """The last step that is known to be made: logged, or at the end of a part of the run."""
        ends = [part.get("to_step") or 0 for part in self.parts]
        return max([*ends, *(row["step"] for row in (*self.train, *self.evaluations))], default=0)

    def state(self, now: float) -> str:
        """`finished`, `running` or `stopped` at a time in seconds since the epoch.

        An unfinished run counts as running for 10 minutes after its last logged row, unless the manifest says that its
        last part has ended.
        """
        if self.finished:
            return "finished"
        ended = bool(self.parts) and self.parts[-1].get("to_step") is not None
        return "stopped" if ended or now - self.written > _SILENT else "running"

    def task_title(self, name: str) -> str:
        """A task's title, or else its name."""
        return self.tasks[name].title if name in self.tasks else name


def read_run(folder: str | Path, name: str = "") -> Run:
    """Read a run folder; `UserError` if it is none, or if a file in it is not what a run writes."""
    folder = expanded(folder)
    if not (folder / "manifest.json").is_file():
        raise UserError(f"{folder}: not a run folder: it holds no manifest.json")
    manifest = read_json(folder / "manifest.json")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("all_settings"), dict):
        raise UserError(f"{folder / 'manifest.json'}: not the manifest of a run")
    metrics = _metrics(folder / "metrics.jsonl")
    train, evaluations = ([row for row in metrics if row.get("kind") == kind] for kind in ("train", "evaluation"))
    finished = (folder / "scores.json").is_file()
    scores: dict[str, Any] = next((row for row in reversed(evaluations) if row.get("best")), {})
    rows = {}
    if finished:
        scores = _object(read_json(folder / "scores.json"))
        rows = {path.stem: record.read_rows(path) for path in sorted((folder / "dev").glob("*.jsonl"))}
    of_stage = _multitask if "tasks" in manifest["all_settings"] else _contrastive
    tasks = of_stage(folder, _object(manifest.get("data")), scores, rows, finished)
    logged = folder / ("metrics.jsonl" if (folder / "metrics.jsonl").is_file() else "manifest.json")
    name, written = name or folder.resolve().name, logged.stat().st_mtime
    return Run(folder, name, manifest, train, evaluations, finished, scores, tasks, written)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _metrics(path: Path) -> list[dict[str, Any]]:
    """All complete lines; the last one may be cut off if the run goes on or was killed."""
    found = []
    *lines, _ = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else [""]
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not a JSON object: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise UserError(f"{path}:{number}: not a row of a run's metrics: it has no step")
        found.append(row)
    return found


def _multitask(
    folder: Path, data: dict[str, Any], scores: dict[str, Any], rows: dict[str, Rows], finished: bool
) -> dict[str, TaskScores]:
    if finished:
        found = _object(scores.get("tasks"))
        return {name: _scored(folder, name, _object(one), rows.get(name)) for name, one in found.items()}
    unfinished = {}
    for name, account in _object(data.get("dev")).items():
        title, metric, classes = _meaning(name)
        unfinished[name] = TaskScores(name, title, metric, scores.get(name), _labelled(account), classes)
    return unfinished


def _meaning(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Title, metric and classes of a registered task; of any other its name."""
    from tasks.registry import TASKS  # loads torch

    if name not in TASKS:
        return name, "score", ()
    task = TASKS[name]()
    return task.title, task.metric, tuple(task.classes)


def _scored(folder: Path, name: str, one: dict[str, Any], rows: Rows | None) -> TaskScores:
    if not {"metric", "score", "rows"} <= one.keys():
        raise UserError(f"{folder / 'scores.json'}: {name}: not a task's scores")
    per_class = tuple(one.get("per_class") or ())
    classes = tuple(str(row["label"]) for row in per_class)
    if rows is not None and len(rows):
        path, width = folder / "dev" / f"{name}.jsonl", 0 if rows.probabilities is None else rows.probabilities.shape[1]
        if width != len(classes):
            raise UserError(
                f"{path}: {width or 'no'} probabilities a row, but scores.json names {len(classes)} classes"
            )
        if classes and {*rows.predicted.tolist(), *rows.labelled().gold.tolist()} - set(map(float, range(width))):
            raise UserError(f"{path}: a label is not a class from 0 to {width - 1}")
    title = str(one.get("title") or _meaning(name)[0])
    return TaskScores(name, title, str(one["metric"]), one["score"], int(one["rows"]), classes, per_class, rows=rows)


def _contrastive(
    folder: Path, data: dict[str, Any], scores: dict[str, Any], rows: dict[str, Rows], finished: bool
) -> dict[str, TaskScores]:
    """Spearman's rho on the dev pairs, and on each of their sets if there are several."""
    dev = _object(data.get("sts_dev"))
    sets = {name: one for name, one in dev.items() if isinstance(one, dict) and "file" in one}
    whole = f"similarity, mean of {len(sets)} sets" if sets else "similarity"
    found = {}
    for key, title, account in (("sts", whole, dev), *((slug(name), name, one) for name, one in sets.items())):
        value = scores.get(f"{key}_dev_spearman")
        both = _object(value) if finished else {"after": value}
        own = rows.get(key)
        count = len(own.labelled()) if own is not None and key == "sts" else _labelled(account)
        score, before = both.get("after"), both.get("before")
        found[key] = TaskScores(key, title, "Spearman's rho", score, count, before=before, rows=own, cosines=True)
    return found


def _labelled(account: dict[str, Any]) -> int:
    """How many rows of a dev file are scored."""
    return int(account.get("labelled", account.get("kept", 0)))
