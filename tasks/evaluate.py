"""Predict with a model and score it on the development sets."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from scipy import special

from minbert.cpu import packed_weights
from minbert.encode import batches_by_length
from minbert.precision import autocast
from tasks.examples import Examples, Pair, Single
from tasks.model import MultitaskModel
from tasks.task import Task


@torch.inference_mode()
def outputs(model: MultitaskModel, task: Task[Any], examples: Single | Pair, precision: str) -> np.ndarray:
    """The head's outputs for every row, in file order: float32 [rows] or [rows, C]."""
    device = model.encoder.device
    results: list[np.ndarray] = []
    lengths = examples.lengths()
    order = batches_by_length(lengths.tolist(), batch_tokens=4096)
    model.eval()
    with packed_weights(model.encoder, precision, int(lengths.sum())):
        for rows in order:
            ragged = task.encode(examples, rows).to(device)
            with autocast(precision, device):
                results.append(model(task.name, ragged).float().cpu().numpy())
    joined = np.concatenate(results)
    in_order = np.empty_like(joined)
    in_order[np.concatenate(order)] = joined
    return in_order


def predictions(model: MultitaskModel, task: Task[Any], examples: Single | Pair, precision: str) -> np.ndarray:
    """A prediction for every row, in file order: float64 [rows]."""
    return task.predict(outputs(model, task, examples, precision))


def probabilities(task: Task[Any], outputs: np.ndarray) -> np.ndarray | None:
    """Class probabilities from the head's outputs: float64 [rows, classes]; None for a task without classes.

    The softmax of C logits; for a single logit, its sigmoid is the probability of class 1.
    """
    if not task.classes:
        return None
    logits = outputs.astype(np.float64)
    if logits.ndim == 2:
        return special.softmax(logits, axis=1)
    return np.stack([special.expit(-logits), special.expit(logits)], axis=1)


def dev_scores(model: MultitaskModel, dev: Mapping[str, Examples], precision: str) -> tuple[float, dict[str, Any]]:
    """The dev norm (the metric to maximise), and the metrics to log: each task's score and `dev_norm`.

    The dev norm is the mean over tasks of the accuracy, or of (r + 1) / 2 for similarity. An undefined r counts as 0
    and is reported as None.
    """
    scores: dict[str, Any] = {}
    parts = []
    for name, examples in dev.items():
        task = model.tasks[name]
        scored = ~np.isnan(examples.labels)
        predicted = predictions(model, task, examples, precision)  # type: ignore[arg-type]
        scores[name] = task.score(predicted[scored], examples.labels[scored])
        parts.append(task.normalised(scores[name]))
    norm = sum(parts) / len(parts)
    return norm, scores | {"dev_norm": norm}


def report(task: Task[Any], predicted: np.ndarray, gold: np.ndarray) -> dict[str, Any]:
    """Score and per-class metrics over the labelled rows, for `scores.json`."""
    scored = ~np.isnan(gold)
    return {
        "title": task.title,
        "metric": task.metric,
        "score": task.score(predicted[scored], gold[scored]),
        "rows": int(scored.sum()),
        "per_class": [asdict(row) for row in task.per_class(predicted[scored], gold[scored])],
    }


def as_text(title: str, scores: Mapping[str, Any]) -> str:
    """A task's scores as terminal output."""
    score = "undefined" if scores["score"] is None else f"{scores['score']:.3f}"
    lines = [f"{title}: {scores['metric']} {score} on {scores['rows']:,} dev rows"]
    if scores["per_class"]:
        lines.append(f"  {'class':<14} {'precision':>9} {'recall':>9} {'F1':>9} {'support':>9}")
    for row in scores["per_class"]:
        cells = ["-" if row[key] is None else f"{row[key]:.3f}" for key in ("precision", "recall", "f1")]
        lines.append(f"  {row['label']:<14} {cells[0]:>9} {cells[1]:>9} {cells[2]:>9} {row['support']:>9,}")
    return "\n".join(lines)
