"""Fetch the real data sets, or check the data files of a folder.

    python data/get_data.py course|nli|senteval|chinese|wordnet|all [--data DIR] [--year 2023] [--from-mirror URL|DIR]
    python data/get_data.py check [--data DIR]
    python -m tasks.data ...      the same, from an installed package

Files that are as expected are not fetched again. A set's manifest.json is written last and says whether it is complete.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from minbert.errors import UserError
from minbert.files import expanded
from minbert.training.cli import Parser, demand_writable, run
from tasks.data import FOLDER

SETS = {
    "course": "SST, Quora and STS of the CS 224N default project (--year), CFIMDB where it can be had",
    "nli": "SimCSE's triplets, SNLI 1.0 and MultiNLI 1.0",
    "senteval": "STS12 to STS16, STS-B, SICK, MR, CR, SUBJ, MPQA, SST2, TREC, MRPC in SentEval's layout",
    "chinese": "ATEC, BQ, LCQMC, PAWS-X and STS-B in Chinese",
    "wordnet": "WordNet 3.0 and the English tagger, for NLTK",
}


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    about = {**SETS, "all": "all of these", "check": "rows, labels, duplicates and overlaps of a folder's files"}
    made = Parser(
        prog="get_data.py",
        description="Fetch the real data sets into a folder.\n\n"
        + "\n".join(f"  {name:9} {text}" for name, text in about.items()),
        epilog="Run the same command again to continue where it stopped. HF_ENDPOINT names another model hub.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("set", choices=[*about], metavar="SET", help=", ".join(about))
    add(
        *("--data", "--to"),
        dest="to",
        type=expanded,
        default=FOLDER,
        metavar="DIR",
        help="target folder (default: the project's data/)",
    )
    add("--year", type=int, choices=[2024, 2023], default=2024, help="the course's handout (default: 2024)")
    add("--from-mirror", default="", metavar="URL|DIR", help="fetch from here instead; same layout as --data")
    add("--timeout", type=float, default=30.0, metavar="SECONDS", help="longest wait for data (default: 30)")
    add("--tries", type=int, default=5, metavar="N", help="attempts per file (default: 5)")
    return made


def main() -> None:
    """Run `check`, or fetch the named sets. Raises `UserError` for invalid flags."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["check"]:
        check(arguments[1:])
        return
    asked = parser().parse_args(arguments)
    if asked.set == "check":
        raise UserError("check comes first: get_data.py check [--data DIR]")
    if asked.timeout <= 0 or asked.tries < 1:
        raise UserError("--timeout and --tries must be more than 0")
    mirror = asked.from_mirror.rstrip("/")
    if mirror and not mirror.startswith(("http://", "https://")):
        if not Path(mirror).is_dir():
            raise UserError(f"--from-mirror {mirror}: neither an http address nor a folder")
        if Path(mirror).resolve() == asked.to.resolve():
            raise UserError(f"--from-mirror {mirror}: the mirror and --data are the same folder")
    fetch(asked, mirror)


def fetch(asked: argparse.Namespace, mirror: str) -> None:
    """Fetch the requested sets. Raises `UserError` at the end, naming those that are incomplete."""
    from tasks.data.fetch import sources
    from tasks.data.fetch.collect import Fetcher
    from tasks.data.fetch.download import Downloader

    fetcher = Fetcher(asked.to, Downloader(asked.tries, asked.timeout), mirror)
    missing = []
    for name in SETS if asked.set == "all" else [asked.set]:
        facts = {"year": asked.year} if name == "course" else {}
        if not fetcher.collect(sources.load(name, asked.year), **facts):
            missing.append(name)
    if missing:
        raise UserError(f"incomplete: {', '.join(missing)} (see above); run the same command again to continue")


def check(arguments: Sequence[str]) -> None:
    """Check the files of a folder, print the tables, and write the whole report to `--json`.

    Raises `UserError` for an invalid flag or folder, and, after printing the tables, if any file is broken.
    """
    from minbert.files import write_json
    from tasks.data.check.report import report
    from tasks.data.check.screen import render

    made = Parser(
        prog="get_data.py check",
        description="Rows, labels, duplicates and overlaps of data files; nothing is downloaded or changed.",
        allow_abbrev=False,
    )
    data, where = os.environ.get("DATA_DIR") or FOLDER, "folder (default: $DATA_DIR, else the project's data/)"
    made.add_argument("--data", type=expanded, default=data, metavar="DIR", help=where)
    made.add_argument("--json", type=Path, metavar="FILE", help="write the whole report to this file")
    given = made.parse_args(list(arguments))
    demand_writable(given.json, "--json")
    found = report(given.data)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(given.json, found)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that cannot print block characters
    print(render(found))
    broken = [entry["broken"] for entry in found["files"] if entry["broken"] is not None]
    if broken:
        total = len(found["files"])
        raise UserError(f"{given.data}: {len(broken)} of {total} files are broken, the first: {broken[0]}")


if __name__ == "__main__":
    run(main)
