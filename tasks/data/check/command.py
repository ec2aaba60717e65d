"""The command line of `get_data.py check`."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from minbert.errors import UserError
from minbert.files import write_json
from minbert.training.cli import Parser
from tasks.data import FOLDER
from tasks.data.check.report import report
from tasks.data.check.screen import render


def main(arguments: Sequence[str]) -> None:
    """Check the files of a folder, print the tables, and write the whole report to `--json`.

    Raises `UserError` for an invalid flag or folder, and, after printing the tables, if any file is broken.
    """
    parser = Parser(
        prog="get_data.py check",
        description="Rows, labels, duplicates and overlaps of data files; nothing is downloaded or changed.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("DATA_DIR") or FOLDER,
        metavar="DIR",
        help="folder (default: $DATA_DIR, else the project's data/)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report to this file")
    given = parser.parse_args(list(arguments))
    if given.json and (given.json.is_dir() or not given.json.absolute().parent.is_dir()):
        raise UserError(f"--json {given.json}: no file can be written there")
    found = report(given.data)
    if given.json:
        write_json(given.json, found)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that cannot print block characters
    print(render(found))
    broken = [entry["broken"] for entry in found["files"] if entry["broken"] is not None]
    if broken:
        raise UserError(
            f"{given.data}: {len(broken)} of {len(found['files'])} files are broken, the first: {broken[0]}"
        )
