"""A run folder as the report page sees it: manifest, metrics, scores, dev rows and pictures. Loads no torch."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import read_json
from tasks import record
from tasks.contrastive.settings import slug
from tasks.record import Rows, TaskScores

_LARGEST_PICTURE = 2_000_000  # bytes
_SILENT = 600  # seconds without a logged row after which an unfinished run counts as stopped


@dataclass(frozen=True)
class Run:
    """Everything a page shows of one run. `finished` says whether it has written its scores.

    Its scores are those of `kept_step`; before it is finished, of the best evaluation so far.
    """

    folder: Path
    name: str
    stage: str  # multitask or contrastive
    manifest: dict[str, Any]
    train: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    tasks: dict[str, TaskScores]
    finished: bool
    dev_norm: float | None
    kept_step: int | None
    selection: dict[str, Any] = field(default_factory=dict)  # what the manifest says of it
    scores: dict[str, Any] = field(default_factory=dict)  # scores.json
    changes: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)  # before and after stage one
    pictures: list[tuple[str, bytes]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    written: float = 0.0  # when its metrics, or else its manifest, changed last: seconds since the epoch

    @property
    def parts(self) -> list[dict[str, Any]]:
        """What was done from each start or resume to the next stop, where the manifest has it."""
        return [part for part in self.manifest.get("parts") or [] if isinstance(part, dict)]

    @property
    def seconds(self) -> float:
        """The time of all parts of the run: as the manifest has it, or as the metrics do where that is more."""
        by_parts = sum(part.get("seconds") or 0.0 for part in self.parts)
        ends = {row["step"] for row in self.train}
        logged = sum(row.get("seconds", 0.0) for row in self.train)
        logged += sum(row.get("seconds", 0.0) for row in self.evaluations[-1:] if row["step"] in ends)
        return max(by_parts, logged)

    @property
    def step(self) -> int:
        """The last step that was logged."""
        return max((row["step"] for row in (*self.train, *self.evaluations)), default=0)

    def state(self, now: float) -> str:
        """`finished`, `running` or `stopped` at a time in seconds since the epoch.

        A run that has not written its scores counts as running for 10 minutes after it has logged something, unless
        the manifest says that its last part has ended.
        """
        if self.finished:
            return "finished"
        ended = bool(self.parts) and self.parts[-1].get("to_step") is not None
        return "stopped" if ended or now - self.written > _SILENT else "running"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, paths included."""
        return _object(self.manifest.get("all_settings"))


def read(folder: Path, name: str = "") -> Run:
    """Read a run folder; `UserError` where it is none, or where a file in it is not what a run writes."""
    if not (folder / "manifest.json").is_file():
        raise UserError(f"{folder}: not a run folder: it holds no manifest.json")
    manifest = read_json(folder / "manifest.json")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("all_settings"), dict):
        raise UserError(f"{folder / 'manifest.json'}: not the manifest of a run")
    stage = "multitask" if "tasks" in manifest["all_settings"] else "contrastive"
    metrics = _metrics(folder / "metrics.jsonl")
    evaluations = [row for row in metrics if row.get("kind") == "evaluation"]
    path = folder / "scores.json"
    scores = _object(read_json(path)) if path.is_file() else None
    best: dict[str, Any] = next((row for row in reversed(evaluations) if row.get("best")), {})
    rows = {task: record.read(file) for task, file in record.paths(folder)} if scores is not None else {}
    of_stage = _multitask if stage == "multitask" else _contrastive
    tasks = of_stage(folder, manifest, scores, best, rows)
    selection = _object(manifest.get("selection"))
    so_far = best.get("step") if selection.get("keep") != "last" else None
    step = scores.get("step") if scores is not None else so_far
    norm = scores.get("dev_norm") if scores is not None else best.get("dev_norm")
    pictures, left_out = _pictures(folder / "pictures")
    changed = [path.stat().st_mtime for name in ("metrics.jsonl", "manifest.json") if (path := folder / name).is_file()]
    return Run(
        folder, name or folder.resolve().name, stage, manifest, [row for row in metrics if row.get("kind") == "train"],
        evaluations, tasks, scores is not None, norm, step, selection, scores or {}, _changes(scores or {}), pictures,
        left_out, changed[0],
    )  # fmt: skip


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines; the last one may be cut off where a run goes on or was killed."""
    if not path.is_file():
        return []
    *lines, _ = path.read_text(encoding="utf-8", errors="replace").split("\n")
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not a JSON object: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise UserError(f"{path}:{number}: not a row of a run's metrics: it has no step")
        found.append(row)
    return found


def _meaning(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Title, metric and classes of a task by its name, as far as this version knows it."""
    from tasks.registry import TASKS

    if name not in TASKS:
        return name, "score", ()
    task = TASKS[name]("cross")
    return task.title, task.metric, tuple(task.classes)


def _multitask(
    folder: Path,
    manifest: dict[str, Any],
    scores: dict[str, Any] | None,
    best: dict[str, Any],
    rows: dict[str, Rows],
) -> dict[str, TaskScores]:
    if scores is None:
        dev = _object(_object(manifest.get("data")).get("dev"))
        found = {}
        for name in dev:
            title, metric, classes = _meaning(name)
            found[name] = TaskScores(name, title, metric, best.get(name), _labelled(dev[name]), classes)
        return found
    return {
        name: _scored(folder, name, _object(one), rows.get(name)) for name, one in _object(scores.get("tasks")).items()
    }


def _scored(folder: Path, name: str, one: dict[str, Any], rows: Rows | None) -> TaskScores:
    if not {"metric", "score", "rows"} <= one.keys():
        raise UserError(f"{folder / 'scores.json'}: {name}: not a task's scores")
    per_class = tuple(one.get("per_class") or ())
    classes = tuple(str(row["label"]) for row in per_class)
    title, metric = one.get("title") or _meaning(name)[0], str(one.get("metric"))
    if rows is not None:
        _check(folder, name, rows, classes)
    return TaskScores(name, str(title), metric, one.get("score"), int(one["rows"]), classes, per_class, rows=rows)


def _check(folder: Path, name: str, rows: Rows, classes: tuple[str, ...]) -> None:
    """Dev rows belong to the task that `scores.json` describes."""
    path, width = folder / "dev" / f"{name}.jsonl", None if rows.probabilities is None else rows.probabilities.shape[1]
    if (width or 0) != len(classes) and len(rows):
        raise UserError(f"{path}: {width or 'no'} probabilities a row, but scores.json names {len(classes)} classes")
    labels = set(rows.predicted.tolist()) | set(rows.labelled().gold.tolist())
    if classes and labels - set(map(float, range(len(classes)))):
        raise UserError(f"{path}: a label is not a class from 0 to {len(classes) - 1}")


def _contrastive(
    folder: Path, manifest: dict[str, Any], scores: dict[str, Any] | None, best: dict[str, Any], rows: dict[str, Rows]
) -> dict[str, TaskScores]:
    values = _object((scores or {}).get("sts_dev_spearman"))
    after = values.get("after") if scores is not None else best.get("sts_dev_spearman")
    dev = _object(_object(manifest.get("data")).get("sts_dev"))
    sets = {name: one for name, one in dev.items() if isinstance(one, dict) and "file" in one}
    title = f"similarity, mean of {len(sets)} sets" if sets else "similarity"
    recorded = rows.get("sts")
    count = len(recorded.labelled()) if recorded is not None else _labelled(dev)
    before = values.get("before")
    found = {"sts": TaskScores("sts", title, "Spearman's rho", after, count, before=before, rows=recorded)}
    for name, one in sets.items():
        key = slug(name)
        both = _object((scores or {}).get(f"{key}_dev_spearman"))
        own = both.get("after") if scores is not None else best.get(f"{key}_dev_spearman")
        before, recorded = both.get("before"), rows.get(key)
        found[key] = TaskScores(key, name, "Spearman's rho", own, _labelled(one), before=before, rows=recorded)
    return found


def _labelled(account: dict[str, Any]) -> int:
    """How many rows of a dev file are scored."""
    return int(account.get("labelled", account.get("kept", 0)))


def _changes(scores: dict[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    pairs = {name: _object(value) for name, value in scores.items()}
    return {name: (one["before"], one["after"]) for name, one in pairs.items() if {"before", "after"} <= one.keys()}


def _pictures(folder: Path) -> tuple[list[tuple[str, bytes]], list[str]]:
    """The SVG files of a folder, and the names of those that are too large to embed."""
    found, left_out = [], []
    for path in sorted(folder.glob("*.svg")):
        if path.stat().st_size > _LARGEST_PICTURE:
            left_out.append(path.name)
        else:
            found.append((path.stem, path.read_bytes()))
    return found, left_out
