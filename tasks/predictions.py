"""The course leaderboard's prediction files, byte for byte: written by a run, checked, compared and packed.

python -m tasks.predictions check runs/multitask/predictions --data data --gold
python -m tasks.predictions check runs/a/predictions --data data --compare runs/b/predictions
python -m tasks.predictions submit runs/multitask/predictions --data data --out submission.zip
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.errors import UserError
from minbert.files import write_atomic
from minbert.training import cli

if TYPE_CHECKING:  # at run time torch would delay `--help`
    import numpy as np

    from tasks.examples import Examples
    from tasks.settings import MultitaskSettings
    from tasks.task import Task

Paths = dict[tuple[str, str], Path]
"""(task, split) -> path of the prediction file."""


def paths(tasks: "Sequence[Task[Any]]", settings: "MultitaskSettings") -> Paths:
    """The path of each prediction file; raises `UserError` if a given path cannot be written."""
    found = {}
    for task in tasks:
        for split in ("dev", "test"):
            given = getattr(settings.files, f"{task.files.short}_{split}_out", "")
            usual = Path(settings.run.run_dir) / "predictions" / file_name(task, split)
            path = found[task.name, split] = Path(given).absolute() if given else usual
            if given and (path.is_dir() or not os.access(path.parent, os.W_OK)):
                raise UserError(f"--{task.files.short}-{split}-out {given}: no file can be written there")
    return found


def content(task: "Task[Any]", examples: "Examples", predicted: "np.ndarray") -> str:
    """Content of a prediction file: the task's header, then `{id} , {value} \\n` for each row, in file order."""
    assert len(predicted) == len(examples)
    rows = (f"{examples.cache.row_id(row)} , {task.written(value)} \n" for row, value in enumerate(predicted.tolist()))
    return task.files.header + "".join(rows)


def write(path: Path, task: "Task[Any]", examples: "Examples", predicted: "np.ndarray") -> None:
    """Write a prediction file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content(task, examples, predicted))


def file_name(task: "Task[Any]", split: str) -> str:
    """Name of a prediction file, such as `para-dev-output.csv`."""
    return f"{task.files.short}-{split}-output.csv"


def _parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.predictions", description=about, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{check,submit}")
    check = commands.add_parser("check", help="check the six files against the data files", allow_abbrev=False)
    submit = commands.add_parser("submit", help="check them, then pack them as the course asks", allow_abbrev=False)
    for one in (check, submit):
        one.add_argument("folder", metavar="DIR", type=Path, help="a run folder, or the folder of prediction files")
        one.add_argument("--data", metavar="DIR", default="", help="the data files (default: $DATA_DIR, else data)")
    check.add_argument("--gold", action="store_true", help="score the rows that have a gold label")
    check.add_argument("--compare", metavar="DIR", type=Path, help="compare with another submission, with intervals")
    submit.add_argument("--out", metavar="FILE.zip", type=Path, required=True, help="the zip to write")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Command line: check, then score, compare or pack; raises `UserError` if a check fails."""
    given = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    if given.command == "submit":
        cli.demand_writable(given.out)
    if given.command == "check" and given.compare is not None and not given.compare.is_dir():
        raise UserError(f"--compare {given.compare}: no such folder")

    from minbert.files import distinct_names
    from minbert.training.start import data_folder
    from tasks import compare, submission

    data = data_folder(given.data)
    files = submission.check(given.folder, data)
    print(submission.as_text(files))
    if given.command == "check" and given.gold:
        print("\n" + submission.scores_text(files))
    submission.demand_clean(given.folder, files)
    if given.command == "submit":
        submission.pack(files, given.out)
        print(f"\n{given.out}: {given.out.stat().st_size:,} bytes, {len(files)} files under predictions/")
    elif given.compare is not None:
        other = submission.check(given.compare, data)
        submission.demand_clean(given.compare, other)
        norms = (submission.norm(files), submission.norm(other))
        found = compare.differences(submission.scored(files), submission.scored(other), norms)
        first, second = distinct_names([given.folder, given.compare])
        print("\n" + compare.as_text((first, second), found))


if __name__ == "__main__":
    cli.run(main)
