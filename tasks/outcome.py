"""Results of a fine-tuning run: prediction files, dev rows and `scores.json`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minbert.files import write_json
from minbert.training.loop import LAST, LoopState
from minbert.training.rundir import RunDir
from tasks import evaluate, predictions, record
from tasks.model import MultitaskModel
from tasks.splits import Paths, Splits

Outputs = Mapping[tuple[str, str], np.ndarray]
"""(task, split) -> the head's outputs, in file order."""


def predict(model: MultitaskModel, data: Splits, paths: Paths, precision: str) -> Outputs:
    """The kept model's outputs for every row of the splits that prediction files are written for."""
    return {
        (name, split): evaluate.outputs(model, model.tasks[name], data.of(split)[name], precision)
        for name, split in paths
    }


def score(model: MultitaskModel, data: Splits, outputs: Outputs) -> dict[str, Any]:
    """Each task's score and per-class metrics over its labelled dev rows."""
    found = {}
    for name, task in model.tasks.items():
        found[name] = evaluate.report(task, task.predict(outputs[name, "dev"]), data.dev[name].labels)
    return found


def save(
    run: RunDir,
    model: MultitaskModel,
    data: Splits,
    outputs: Outputs,
    paths: Paths,
    scores: Mapping[str, Any],
    kept: Mapping[str, Any],
) -> None:
    """Write the leaderboard's prediction files, the dev rows, and `scores.json`, which `kept` is added to."""
    for (name, split), path in paths.items():
        task, examples, made = model.tasks[name], data.of(split)[name], outputs[name, split]
        predictions.write(path, task, examples, task.predict(made))
        if split == "dev":
            record.write_rows(run.path, name, record.task_rows(task, examples, made))
    write_json(run.path / "scores.json", {**kept, "tasks": dict(scores)})


def kept(state: LoopState, rule: str) -> dict[str, Any]:
    """Which model the run has kept, and its dev norm, for `scores.json`."""
    about = {"step": state.kept_step, "keep": rule, "best_step": state.best_step, "last_step": state.step}
    return {"dev_norm": state.kept_score, **about}


def as_text(scores: Mapping[str, Any], state: LoopState, rule: str) -> str:
    """The scores as terminal output."""
    tables = [evaluate.as_text(one["title"], one) for one in scores.values()]
    which = f"step {state.kept_step:,} of {state.step:,}, {'the last' if rule == LAST else 'the best evaluation'}"
    best = f"; the best was {state.best:.4f} at step {state.best_step:,}" if state.kept_step != state.best_step else ""
    return "\n\n".join([*tables, f"dev norm {state.kept_score:.4f} ({which}{best})"])
