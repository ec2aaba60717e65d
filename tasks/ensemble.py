"""Average finished fine-tuning runs: the mean of their class probabilities and similarities, for dev and test rows.

python -m tasks.ensemble runs/a runs/b runs/c --out runs/ensemble
python -m tasks.ensemble runs/a runs/b runs/c --out runs/ensemble --no-texts
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.files import distinct_names, write_json
from minbert.train import cli
from tasks import compare, metrics, predict, record
from tasks.intervals import RESAMPLES
from tasks.record import Predictions, TaskScores
from tasks.runs import task_scores
from tasks.tables import MISSING, Table, number

if TYPE_CHECKING:  # at run time torch would delay `--help`
    from tasks.task import Task


@dataclass(frozen=True)
class Member:
    """A finished run, or the ensemble: its name, its tasks by name, and its predictions for the dev and test rows."""

    name: str
    tasks: Mapping[str, "Task"]
    rows: Predictions

    @cached_property
    def reports(self) -> dict[str, dict[str, Any]]:
        """Score and per-class metrics of each task over the dev rows."""
        from tasks import evaluate

        return evaluate.score(self.tasks, self.rows)

    @cached_property
    def dev_scores(self) -> dict[str, TaskScores]:
        """Scores and dev rows of each task, as `tasks.compare` takes them."""
        return task_scores(self.reports, {name: self.rows[name, "dev"] for name in self.tasks})


def check_alike(runs: Sequence[Path]) -> None:
    """Raise `UserError` unless all runs are finished and have the same tasks and data, by their hashes."""
    read = {}
    for run in runs:
        manifest, _ = predict.kept(run)
        named = ((f"{split} file of {task}", one) for split, of in manifest["data"].items() for task, one in of.items())
        read[run] = manifest["all_settings"]["tasks"], dict(named)
    tasks, files = read[runs[0]]
    for run, (own_tasks, own_files) in read.items():
        if own_files.keys() != files.keys():
            raise UserError(f"{run}: was trained on {own_tasks}, but {runs[0]} on {tasks}")
        differing = [what for what, one in files.items() if one["sha256"] != own_files[what]["sha256"]]
        if differing:
            raise UserError(f"{run}: the {differing[0]} is not that of {runs[0]}")


def load(run: Path, name: str, data: Path | None = None) -> Member:
    """Predict the dev and test rows with the model that a run has kept.

    Data files are those that the manifest names, or the files of the same names in `data`. Raises `UserError` if one
    is missing or has changed.
    """
    predictor, rows = predict.load(run), {}
    for task in predictor.model.tasks.values():
        for split in ("dev", "test"):
            path = predict.recorded_file(run, task.name, split, data)
            examples = task.open(path, split, predictor.tokenizer, predictor.max_length)
            rows[task.name, split] = record.task_rows(task, examples, predictor.outputs(task, examples))
    return Member(name, predictor.model.tasks, rows)


def average(members: Sequence[Member]) -> Member:
    """The ensemble: mean probabilities and the class that they make most probable, or mean similarities."""
    rows = {}
    for key, first in members[0].rows.items():
        every = [member.rows[key] for member in members]
        if first.probabilities is None:
            rows[key] = replace(first, predicted=np.mean([one.predicted for one in every], axis=0))
            continue
        probabilities = np.mean([one.probabilities for one in every if one.probabilities is not None], axis=0)
        rows[key] = replace(first, predicted=probabilities.argmax(1).astype(np.float64), probabilities=probabilities)
    return Member("ensemble", members[0].tasks, rows)


def scores(member: Member) -> dict[str, Any]:
    """The dev norm and each task's scores, as in a run's `scores.json`, with 95% intervals as [low, high]."""
    own, whole = compare.own_intervals(member.dev_scores, norm=True)
    norm = metrics.dev_norm((one["metric"], one["score"]) for one in member.reports.values())
    with_intervals = {name: one | {"interval": own[name]} for name, one in member.reports.items()}
    return {"dev_norm": norm, "interval": whole, "tasks": with_intervals}


def table(content: Mapping[str, Any]) -> Table:
    """A row for each member, and one for the ensemble."""
    rows = []
    for name, one in [*content["members"].items(), ("ensemble", content)]:
        interval = one["interval"].text(4) if one["interval"] else MISSING
        scores = {task: metrics.shown(score["score"]) for task, score in one["tasks"].items()}
        rows.append({"run": name, **scores, metrics.DEV_NORM: metrics.shown(one["dev_norm"]), "95% interval": interval})
    return Table("Dev scores", pd.DataFrame(rows))


def differences(ensemble: Member, members: Sequence[Member]) -> Table:
    """The ensemble minus each member, over the same dev rows, with the 95% interval of each difference."""
    rows = []
    for member in members:
        row = {"run": member.name}
        for one in compare.differences([member.dev_scores], [ensemble.dev_scores]):
            interval = MISSING if one.interval is None else one.interval.text(4, sign=True)
            row[one.name] = f"{number(one.value, 4, sign=True)} {interval}"
        rows.append(row)
    note = f"Intervals hold the middle 95% of {RESAMPLES:,} paired bootstrap resamples of the dev rows."
    return Table("The ensemble minus each run", pd.DataFrame(rows), (note,))


def main(arguments: list[str] | None = None) -> None:
    """Command line: check the runs, predict with each, average, score and write."""
    about = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.ensemble", description=about, allow_abbrev=False)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="finished runs of multitask_train.py")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="the folder to write")
    parser.add_argument("--data", metavar="DIR", type=Path, help="where the data are now (default: as in the runs)")
    parser.add_argument("--no-texts", action="store_true", help="leave the sentences of the data out")
    options = parser.parse_args(arguments)
    from tasks import evaluate

    names = distinct_names(options.runs)
    if len(names) < 2:
        raise UserError(f"{options.runs[0]}: an ensemble needs at least two runs")
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise UserError(f"--out {options.out}: exists, and is not an empty folder")
    check_alike(options.runs)
    members = [load(run, name, options.data) for run, name in zip(options.runs, names, strict=True)]
    ensemble = average(members)
    content = {**scores(ensemble), "members": {member.name: scores(member) for member in members}}
    rows = ensemble.rows
    if options.no_texts:
        rows = {key: replace(one, texts=[()] * len(one)) for key, one in rows.items()}
    folder = options.out / "predictions"
    paths = {(name, split): folder / record.prediction_file(ensemble.tasks[name], split) for name, split in rows}
    record.save(options.out, ensemble.tasks, rows, paths)
    write_json(options.out / "scores.json", content)
    cli.say(f"{evaluate.tables(content['tasks'])}\n\n{table(content).terminal()}")
    cli.say(f"\n{differences(ensemble, members).terminal()}\n")
    cli.say(f"predictions in {folder}")


if __name__ == "__main__":
    cli.run(main)
