"""The command line of the check."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from data.check.report import report
from data.check.screen import render
from data.check.tables import BLOCKS
from minbert.errors import UserError
from minbert.files import write_json
from minbert.training.cli import Parser


def run(arguments: Sequence[str]) -> int:
    """Check the files of a folder, print the tables, write the whole report where `--json` says; 0, or 2 if broken."""
    parser = Parser(
        prog="python data/get_data.py check",
        description="What the data files hold, and which rows they share: nothing is downloaded or changed.",
        allow_abbrev=False,
    )
    data = os.environ.get("DATA_DIR") or str(Path(__file__).resolve().parent.parent)
    parser.add_argument(
        "--data", default=data, metavar="DIR", help="the folder (default: $DATA_DIR, else the project's data/)"
    )
    parser.add_argument("--json", default="", metavar="FILE", help="write everything there, as JSON")
    given = parser.parse_args(list(arguments))
    target = Path(given.json) if given.json else None
    if target and not target.parent.is_dir():
        raise UserError(f"--json: {target.parent} is no folder")
    if target and target.is_dir():
        raise UserError(f"--json: {target} is a folder")
    found = report(Path(given.data))
    if target:
        try:
            write_json(target, found)
        except OSError as error:
            raise UserError(f"--json: {target} cannot be written: {error.strerror or error}") from error
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
        print(render(found))
    except UnicodeEncodeError:
        print(render(found, "12345678").encode("ascii", "replace").decode("ascii"))
    if not found["broken"]:
        return 0
    first = next(entry["broken"] for entry in found["files"] if entry["broken"] is not None)
    many = f"{found['broken']} of {len(found['files'])} files broken"
    print(f"error: {given.data}: {many}, the first: {first}", file=sys.stderr)
    return 2
