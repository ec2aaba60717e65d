"""Average finished fine-tuning runs: the mean of their class probabilities and similarities, for dev and test rows.

python -m tasks.ensemble runs/a runs/b runs/c --out runs/ensemble
python -m tasks.ensemble runs/a runs/b runs/c --out runs/ensemble --no-texts
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.files import distinct_names, write_json
from minbert.train import cli
from tasks import compare, evaluate, manifests, metrics, predict, record
from tasks.definitions import recorded_definition
from tasks.examples import Examples
from tasks.intervals import RESAMPLES
from tasks.record import Predictions, TaskScores
from tasks.report import page
from tasks.runs import task_scores
from tasks.tables import MISSING, Table, number
from tasks.task import Task


@dataclass(frozen=True)
class Member:
    """A finished run, or the ensemble: its name, its tasks by name, and its predictions for the dev and test rows."""

    name: str
    tasks: Mapping[str, Task]
    rows: Predictions

    @cached_property
    def reports(self) -> dict[str, dict[str, Any]]:
        """Score and per-class metrics of each task over the dev rows."""
        return evaluate.score(self.tasks, self.rows)

    @cached_property
    def dev_scores(self) -> dict[str, TaskScores]:
        """Scores and dev rows of each task, as `tasks.compare` takes them."""
        return task_scores(self.reports, {name: self.rows[name, "dev"] for name in self.tasks})


def check_alike(runs: Sequence[Path]) -> None:
    """Raise `UserError` unless all runs are finished and have the same tasks and data, by their hashes."""
    first_hashes: dict[str, str] = {}
    for run in runs:
        manifest, _ = manifests.fine_tuned(run)
        hashes = {}
        for split, entries in manifest["data"].items():
            for task, entry in entries.items():
                hashes[f"{split} file of {task}"] = entry["sha256"]
        for task, definition in manifest.get("own_tasks", {}).items():
            hashes[f"definition of {task}"] = str(recorded_definition(definition).reading)
        if run == runs[0]:
            first_hashes = hashes
        for name in first_hashes | hashes:
            if hashes.get(name) != first_hashes.get(name):
                raise UserError(f"{run} and {runs[0]} differ in the {name}")


def predict_member(run: Path, name: str, data: Path | None = None) -> Member:
    """Predict the dev and test rows with the model that a run has kept.

    Data files are those that the manifest names, or the files of the same names in `data`. Raises `UserError` if one
    is missing or has changed.
    """
    predictor = predict.load(run)
    tasks = predictor.model.tasks
    splits: dict[str, dict[str, Examples]] = {"dev": {}, "test": {}}
    for task in tasks.values():
        for split in task.splits:
            if split != "train":
                path = manifests.recorded_file(run, task.name, split, data)
                splits[split][task.name] = task.open(path, split, predictor.tokenizer, predictor.max_length)
    return Member(name, tasks, evaluate.predict(predictor.model, splits, predictor.precision, {}))


def average(members: Sequence[Member]) -> Member:
    """The ensemble: mean probabilities and the class that they make most probable, or mean similarities."""
    rows = {}
    for key, first in members[0].rows.items():
        if first.probabilities is None:
            predicted = np.mean([member.rows[key].predicted for member in members], axis=0)
            rows[key] = replace(first, predicted=predicted)
        else:
            each: list[Any] = [member.rows[key].probabilities for member in members]
            probabilities = np.mean(each, axis=0)
            predicted = probabilities.argmax(1).astype(np.float64)
            rows[key] = replace(first, predicted=predicted, probabilities=probabilities)
    return Member("ensemble", members[0].tasks, rows)


def scores(member: Member) -> dict[str, Any]:
    """The dev norm and each task's scores, as in a run's `scores.json`, with 95% intervals as [low, high]."""
    by_task, whole = compare.score_intervals(member.dev_scores, norm=True)
    norm = metrics.dev_norm([(report["metric"], report["score"]) for report in member.reports.values()])
    tasks = {name: report | {"interval": by_task[name]} for name, report in member.reports.items()}
    return {"dev_norm": norm, "interval": whole, "tasks": tasks}


def table(content: Mapping[str, Any]) -> Table:
    """A row for each member, and one for the ensemble."""
    rows = []
    for name, result in [*content["members"].items(), ("ensemble", content)]:
        row = {"run": name, "step": f"{result['step']:,}" if "step" in result else MISSING}
        for report in result["tasks"].values():
            row[report["title"]] = number(report["score"], 4, missing="undefined")
        row[metrics.DEV_NORM] = number(result["dev_norm"], 4, missing="undefined")
        row[f"{metrics.DEV_NORM}, 95%"] = result["interval"].text() if result["interval"] else MISSING
        rows.append(row)
    return Table("Dev scores", pd.DataFrame(rows), left=2)


def differences(ensemble: Member, members: Sequence[Member]) -> Table:
    """The ensemble minus each member, over the same dev rows, with the 95% interval of each difference."""
    rows = []
    titles = {name: task.title for name, task in ensemble.dev_scores.items()}
    for member in members:
        row = {"run": member.name}
        for difference in compare.differences([member.dev_scores], [ensemble.dev_scores]):
            interval = difference.interval
            text = MISSING if interval is None else interval.text(sign=True)
            row[titles.get(difference.name, difference.name)] = f"{number(difference.value, 4, sign=True)} {text}"
        rows.append(row)
    note = f"Intervals hold the middle 95% of {RESAMPLES:,} paired bootstrap resamples of the dev rows."
    return Table("The ensemble minus each run", pd.DataFrame(rows), (note,))


def main(arguments: list[str] | None = None) -> None:
    """Command line: check the runs, predict with each, average, score and write."""
    parser = cli.Parser(prog="python -m tasks.ensemble", doc=__doc__)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="finished runs of multitask_train.py")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="the folder to write")
    parser.add_argument("--data", metavar="DIR", type=Path, help="where the data are now (default: as in the runs)")
    parser.add_argument("--no-texts", action="store_true", help="leave the sentences out of dev/ and the page")
    words = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(words)

    # check
    names = distinct_names(options.runs)
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise UserError(f"--out {options.out}: exists, and is not an empty folder")
    cli.require_writable(options.out / "scores.json")
    check_alike(options.runs)

    # predict and average
    members: list[Member] = []
    for run, name in zip(options.runs, names, strict=True):
        cli.say(f"predicting with {name}")
        member = predict_member(run, name, options.data)
        if members:
            # tasks of a file may have another title or metric in another run; the first run's hold for all
            member = replace(member, tasks=members[0].tasks)
        members.append(member)
    ensemble = average(members)
    content = scores(ensemble)
    content["members"] = {}
    for run, member in zip(options.runs, members, strict=True):
        content["members"][member.name] = {"step": manifests.fine_tuned(run)[1]["step"], **scores(member)}

    # write
    rows = dict(ensemble.rows)
    paths = {}
    for name, split in rows:
        paths[name, split] = options.out / "predictions" / record.prediction_file(ensemble.tasks[name], split)
        if options.no_texts:
            rows[name, split] = replace(rows[name, split], texts=[()] * len(rows[name, split]))
    record.save(options.out, ensemble.tasks, rows, paths)
    write_json(options.out / "scores.json", content)
    compared = differences(ensemble, members)
    page.write_ensemble(
        options.out / "report.html",
        ensemble.dev_scores,
        content["dev_norm"],
        [table(content), compared],
        options.runs,
        shlex.join(["python", "-m", "tasks.ensemble", *words]),
        texts=not options.no_texts,
    )
    cli.say(f"{evaluate.tables(content['tasks'])}\n\n{table(content).terminal()}")
    cli.say(f"\n{compared.terminal()}\n")
    cli.say(f"predictions in {options.out / 'predictions'}, report: {options.out / 'report.html'}")


if __name__ == "__main__":
    cli.run(main)
