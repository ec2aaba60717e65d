"""Check and pack the prediction files of the course's leaderboard.

python -m tasks.predictions check runs/multitask/predictions --data data
python -m tasks.predictions submit runs/multitask/predictions --data data --out submission.zip
"""

import argparse
import io
import re
import zipfile
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from minbert.errors import UserError, short_repr
from minbert.files import data_path, require_file, write_atomic
from minbert.train import cli
from tasks import TASKS, readers
from tasks.record import prediction_file
from tasks.settings import LEADERBOARD
from tasks.task import Task

_ROW = re.compile(r"(\S|\S.*\S) , (\S+) \n")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_MAX_SIMILARITY = 5.0


def check(folder: Path, data: Path) -> dict[Path, int]:
    """The six prediction files in a run folder's `predictions/`, or in `folder` itself, and their numbers of rows.

    Raises `UserError` at the first line that is not as the data file asks, and if a file is missing.
    """
    if (folder / "predictions").is_dir():
        folder = folder / "predictions"
    files = {}
    for split in ("dev", "test"):
        for name in LEADERBOARD:
            task = TASKS[name]()
            path = require_file(folder / prediction_file(task, split))
            source, ids = expected(task, split, data)
            check_lines(path, task, source.name, ids)
            files[path] = len(ids)
    return files


def expected(task: Task, split: str, data: Path) -> tuple[Path, list[str]]:
    """The course's data file of a split, and the ids of the rows that need a prediction, in its order."""
    source = readers.find_file(data, "course", [getattr(task.files, split)])
    rows = readers.open_as(source, task.kind, split, classes=task.class_count).rows
    return source, [row.id for row in rows]


def check_lines(path: Path, task: Task, source: str, ids: Sequence[str]) -> None:
    """Compare a prediction file line by line with the ids of the data file called `source`.

    Raises `UserError` at the first line that differs.
    """
    # as bytes: a text file would hide carriage returns
    with open(path, "rb") as file:
        lines = [line.decode("utf-8", "backslashreplace") for line in file]
    header = lines[0] if lines else ""
    if header != task.files.header:
        raise UserError(f"{path}:1: the header is {short_repr(header)}, not {task.files.header!r}")
    for line, (row, id_) in enumerate(zip_longest(lines[1:], ids), start=2):
        problem = _problem(task, source, row, id_)
        if problem:
            raise UserError(f"{path}:{line}: {problem}")


def _problem(task: Task, source: str, row: str | None, id_: str | None) -> str:
    """What is wrong with a row where the data file has the row `id_`, or ""; None stands for the end of a file."""
    if id_ is None:
        return f"one row too many: {source} ends before it"
    if row is None:
        return f"the row of id {id_!r} of {source} is missing"
    match = _ROW.fullmatch(row)
    if match is None:
        return f"not '{{id}} , {{value}} \\n' but {short_repr(row)}"
    if match[1] != id_:
        return f"the id is {short_repr(match[1])}, but {source} has {id_!r} here"
    value = match[2]
    if task.classes:
        allowed = [task.format_prediction(float(label)) for label in range(len(task.classes))]
        if value not in allowed:
            return f"value {short_repr(value)} is not one of {', '.join(allowed)}"
    elif not _NUMBER.fullmatch(value):
        return f"value {short_repr(value)} is not a plain number"
    elif not 0 <= float(value) <= _MAX_SIMILARITY:
        return f"value {value!r} is not between 0 and {_MAX_SIMILARITY:g}"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(prog="python -m tasks.predictions", doc=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{check,submit}")
    check = commands.add_parser("check", help="check the six files against the data files")
    submit = commands.add_parser("submit", help="check them, then pack them as the course asks")
    for command in (check, submit):
        command.add_argument("folder", metavar="DIR", type=Path, help="a run folder, or the folder of prediction files")
        command.add_argument("--data", metavar="DIR", default="", help="the data files (default: $DATA_DIR, else data)")
    submit.add_argument("--out", metavar="FILE.zip", type=Path, required=True, help="the zip to write")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Command line: check, then pack; raises `UserError` if a check fails."""
    options = _parser().parse_args(arguments)
    if options.command == "submit":
        cli.require_writable(options.out)
    files = check(options.folder, data_path(options.data))
    for path, rows in files.items():
        print(f"{path}: {rows:,} rows, as expected")
    if options.command == "submit":
        options.out.parent.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                archive.write(path, f"predictions/{path.name}")
        write_atomic(options.out, content.getvalue())
        print(f"{options.out}: {len(content.getvalue()):,} bytes, {len(files)} files under predictions/")


if __name__ == "__main__":
    cli.run(main)
