"""Predict with a model, and score it on the development sets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minbert.encoder import batches_by_length
from minbert.fast import packed_weights
from minbert.files import write_json
from minbert.precision import autocast
from minbert.train import distributed
from minbert.train.loop import LoopState
from minbert.train.progress import bar, format_score
from tasks import metrics, record
from tasks.examples import Examples
from tasks.model import MultitaskModel
from tasks.record import Predictions
from tasks.splits import Splits
from tasks.tables import class_table
from tasks.task import Task

HeadOutputs = Mapping[tuple[str, str], np.ndarray]
"""(task, split) -> the head's outputs, in file order."""


@torch.inference_mode()
def outputs(
    model: MultitaskModel, task: Task, examples: Examples, precision: str, *, divided: bool = False
) -> np.ndarray:
    """The head's outputs for every row, in file order: float32 [rows] or [rows, C].

    With `divided`, each rank takes its share of the batches, and all get the outputs of one process, bit for bit.
    """
    device = model.encoder.device
    lengths = examples.lengths()
    batches = batches_by_length(lengths.tolist(), batch_tokens=4096)
    share = batches
    if divided:
        share = batches[distributed.rank() :: distributed.world()]
    results: list[np.ndarray] = []
    model.eval()
    with packed_weights(model, precision, int(lengths.sum())):
        # a rank without a batch computes one all the same, for the shape of its zeros
        for rows in bar(share or batches[:1], f"predicting {task.title}"):
            ragged = task.encode(examples, rows).to(device)
            with autocast(precision, device):
                results.append(model(task.name, ragged).float().cpu().numpy())
    joined = np.concatenate(results)
    in_order = np.zeros((len(lengths), *joined.shape[1:]), dtype=joined.dtype)
    if share:
        in_order[np.concatenate(share)] = joined
    if divided:
        return distributed.sum_over_ranks(torch.from_numpy(in_order).to(device)).cpu().numpy()
    return in_order


@dataclass
class DevEvaluation:
    """The evaluation of a multitask model on its dev sets; it keeps the outputs of the latest one.

    The dev norm, the metric to maximise, is the mean over tasks of the accuracy or macro-F1, or of (r + 1) / 2 for a
    similarity. An undefined r counts as -1 and is reported as None; without any defined score the norm is None.
    """

    model: MultitaskModel
    dev: Mapping[str, Examples]
    precision: str
    latest_outputs: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def __call__(self) -> tuple[float | None, dict[str, Any]]:
        """The dev norm, and the metrics to log: each task's score and `dev_norm`."""
        scores: dict[str, Any] = {}
        by_metric = []
        for name, examples in self.dev.items():
            task = self.model.tasks[name]
            head_outputs = outputs(self.model, task, examples, self.precision, divided=True)
            self.latest_outputs[name, "dev"] = head_outputs
            scores[name] = report(task, task.predict(head_outputs), examples.labels)["score"]
            by_metric.append((task.metric, scores[name]))
        norm = metrics.dev_norm(by_metric)
        return norm, scores | {"dev_norm": norm}

    def outputs_of_kept(self, state: LoopState) -> HeadOutputs:
        """The outputs of the kept weights, if the latest evaluation was theirs, else none."""
        return self.latest_outputs if state.kept_step == state.step else {}


def report(task: Task, predicted: np.ndarray, gold: np.ndarray) -> dict[str, Any]:
    """Score and per-class metrics over the labelled rows, for `scores.json`."""
    scored = ~np.isnan(gold)
    scale = {} if task.classes else {"scale": list(task.scale)}
    return {
        "title": task.title,
        "metric": task.metric,
        "score": task.score(predicted[scored], gold[scored]),
        "rows": int(scored.sum()),
        **scale,
        "per_class": task.per_class(predicted[scored], gold[scored]),
    }


def predict(model: MultitaskModel, data: Splits, precision: str, computed: HeadOutputs) -> Predictions:
    """The dev and test rows of every task, with predictions.

    Outputs in `computed` are taken from there.
    """
    predictions = {}
    for split in ("dev", "test"):
        for name, examples in data[split].items():
            task = model.tasks[name]
            if (name, split) in computed:
                head_outputs = computed[name, split]
            else:
                head_outputs = outputs(model, task, examples, precision)
            predicted = task.predict(head_outputs)
            predictions[name, split] = record.rows_of(examples, predicted, task.probabilities(head_outputs))
    return predictions


def score(tasks: Mapping[str, Task], predictions: Predictions) -> dict[str, Any]:
    """Each task's score and per-class metrics over its labelled dev rows."""
    scores = {}
    for name, task in tasks.items():
        dev = predictions[name, "dev"]
        scores[name] = report(task, dev.predicted, dev.gold)
    return scores


def save_scores(run: Path, scores: Mapping[str, Any], state: LoopState, rule: str, weights: str) -> None:
    """Write `scores.json`: the tasks' scores, which model the run has kept by which `rule`, and its dev norm.

    `weights` describes that model, as `LoopState.describe_kept_weights` does.
    """
    content = {
        "dev_norm": state.kept_score,
        "step": state.kept_step,
        "kept_weights": weights,
        "keep": rule,
        "best_step": state.best_step,
        "last_step": state.step,
        "tasks": dict(scores),
    }
    write_json(run / "scores.json", content)


def as_text(scores: Mapping[str, Any], state: LoopState, weights: str) -> str:
    """The scores of a run as terminal output; `weights` are those of `LoopState.describe_kept_weights`."""
    best = ""
    if state.best is not None and state.kept_step != state.best_step:
        best = f"; the best was {state.best:.4f} at step {state.best_step:,}"
    return f"{tables(scores)}\n\ndev norm {format_score(state.kept_score)} ({weights}{best})"


def tables(scores: Mapping[str, Any], rows: str = "dev rows") -> str:
    """Each task's score and table of classes as terminal output."""
    texts = []
    for task in scores.values():
        score = format_score(task["score"])
        title = f"{task['title']}: {task['metric']} {score} on {task['rows']:,} {rows}"
        texts.append(class_table(title, task["per_class"]).terminal())
    return "\n\n".join(texts)
