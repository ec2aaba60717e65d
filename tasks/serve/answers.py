"""What the page asks of a run: the answers of its heads, cosines of its encoder, and the nearest training rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minbert.encode import Encoder
from minbert.errors import UserError
from minbert.files import read_json, read_json_object
from minbert.training import plan
from tasks import evaluate, predict
from tasks.predict import Predictor
from tasks.readers import clean_pair, clean_sentence
from tasks.task import Task

SEARCHED = 2000  # rows of each task that are searched: the first ones that the run was trained on
_SHOWN = 5


@dataclass(frozen=True)
class _Searched:
    """The training rows of a task that are searched, and their vectors; `note` says how many, or why there are none."""

    note: str
    examples: Any = None
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    vectors: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))


@dataclass
class Answers:
    """A finished run of either stage; without heads (stage one) it answers with cosines alone."""

    name: str
    run: Path
    encoder: Encoder
    predictor: Predictor | None
    _training: dict[str, _Searched] = field(default_factory=dict)  # by task

    @classmethod
    def load(cls, run: Path, name: str) -> "Answers":
        """Load a run. Raises `UserError` if it is none, or if it is not finished."""
        if not all((run / name).exists() for name in ("manifest.json", "scores.json", "encoder")):
            raise UserError(f"{run}: not the folder of a finished run")
        heads = "tasks" in (read_json_object(run / "manifest.json").get("all_settings") or {})
        return cls(name, run, Encoder.load(run), predict.load(run) if heads else None)

    def about(self, texts: Sequence[str]) -> dict[str, Any]:
        """One sentence or two: the answer of every head for them, their cosine, and the nearest training rows."""
        found: dict[str, Any] = {"run": self.name, "heads": [], "nearest": [], "searched": []}
        if len(texts) == 2:
            found["cosine"] = self.encoder.similarity(*texts)
        for task in self._tasks(len(texts)):
            if task.name not in self._training:
                self._training[task.name] = self._read(task)
            found["heads"].append(self._head(task, tuple(texts)))
            found["searched"].append(self._training[task.name].note)
            found["nearest"] += self._nearest(task, texts)
        return found

    def rank(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        """The texts by their cosine to the query, the highest first."""
        cosines = np.asarray(self.encoder.similarity(query, list(texts)))
        order = np.argsort(-cosines, kind="stable")
        return {"run": self.name, "ranked": [{"text": texts[row], "cosine": float(cosines[row])} for row in order]}

    def _tasks(self, columns: int) -> list[Task]:
        tasks = self.predictor.model.tasks.values() if self.predictor else ()
        return [task for task in tasks if task.columns == columns]

    def _head(self, task: Task, texts: tuple[str, ...]) -> dict[str, Any]:
        assert self.predictor is not None
        examples = self.predictor.examples(task, [texts])
        outputs = evaluate.outputs(self.predictor.model, task, examples, self.predictor.precision)
        shares = task.probabilities(outputs)
        if shares is None:
            return {"title": task.title, "value": float(task.predict(outputs)[0])}
        return {"title": task.title, "classes": list(zip(task.classes, map(float, shares[0]), strict=True))}

    def _nearest(self, task: Task, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The training rows of a task whose vectors are nearest; a pair's vector is the sum of its unit vectors."""
        training = self._training[task.name]
        if not len(training.rows):
            return []
        clean = clean_sentence if task.columns == 1 else clean_pair
        query = _unit(self.encoder.encode(list(map(clean, texts)), normalize=True).sum(0))
        cosines = training.vectors @ query
        nearest = np.argsort(-cosines, kind="stable")[:_SHOWN]
        return [
            {
                "task": task.title,
                "texts": [training.examples.cache.text(row, column) for column in range(task.columns)],
                "label": _label(task, training.examples.labels[row]),
                "cosine": cosine,
            }
            for row, cosine in zip(training.rows[nearest].tolist(), cosines[nearest].tolist(), strict=True)
        ]

    def _read(self, task: Task) -> _Searched:
        """The first rows that the run was trained on, if their file is as it was."""
        assert self.predictor is not None
        try:
            examples = self.predictor.recorded(self.run, task, "train")
        except UserError as error:
            return _Searched(f"{task.title}: {error}")
        settings = read_json(self.run / "manifest.json")["all_settings"]
        drawn = plan.drawn(len(examples), settings["limit"], settings["seed"], task.name)
        rows = drawn[:SEARCHED]
        sides = [[examples.cache.text(row, column) for row in rows.tolist()] for column in range(task.columns)]
        vectors = _unit(np.sum([self.encoder.encode(side, normalize=True) for side in sides], axis=0))
        return _Searched(f"{task.title}: {len(rows):,} of {len(drawn):,} training rows", examples, rows, vectors)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))


def _label(task: Task, value: float) -> str:
    return task.classes[int(value)] if task.classes else f"{value:g}"
