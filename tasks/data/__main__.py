"""Fetch the real data sets, or check the data files of a folder.

    python data/get_data.py course|nli|senteval|chinese|wordnet|all [--data DIR] [--year 2023] [--from-mirror URL|DIR]
    python data/get_data.py check [--data DIR]
    python -m tasks.data ...      the same, from an installed package

Files that are as expected are not fetched again. A set's manifest.json is written last and says whether it is complete.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from minbert.errors import UserError
from minbert.files import expanded
from minbert.training.cli import Parser, demand_writable, run
from tasks.data import FOLDER

SETS = {
    "course": "SST, Quora and STS of the CS 224N default project (--year), CFIMDB where available",
    "nli": "SimCSE's triplets, SNLI 1.0 and MultiNLI 1.0",
    "senteval": "STS12 to STS16, STS-B, SICK, MR, CR, SUBJ, MPQA, SST2, TREC, MRPC in SentEval's layout",
    "chinese": "ATEC, BQ, LCQMC, PAWS-X and STS-B in Chinese",
    "wordnet": "WordNet 3.0 and the English tagger, for NLTK",
}

_DEFAULT = "(default: $DATA_DIR, else the project's data/)"


def _folder() -> str:
    return os.environ.get("DATA_DIR") or str(FOLDER)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    descriptions = {**SETS, "all": "all of these", "check": "rows, labels, duplicates and overlaps of a folder's files"}
    flags = Parser(
        prog="data/get_data.py",
        description="Fetch the real data sets into a folder.\n\n"
        + "\n".join(f"  {name:9} {text}" for name, text in descriptions.items()),
        epilog="Run the same command again to continue where it stopped. HF_ENDPOINT names another model hub.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = flags.add_argument
    add("set", choices=[*descriptions], metavar="SET", help=", ".join(descriptions))
    add("--data", type=expanded, default=_folder(), metavar="DIR", help=f"target folder {_DEFAULT}")
    add("--year", type=int, choices=[2024, 2023], default=2024, help="the course's handout (default: 2024)")
    add("--from-mirror", default="", metavar="URL|DIR", help="fetch from here instead; same layout as --data")
    add("--timeout", type=float, default=30.0, metavar="SECONDS", help="longest wait for data (default: 30)")
    add("--tries", type=int, default=5, metavar="N", help="attempts per file (default: 5)")
    return flags


def main() -> None:
    """Run `check`, or fetch the named sets. Raises `UserError` for invalid flags."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["check"]:
        check(arguments[1:])
        return
    options = parser().parse_args(arguments)
    if options.set == "check":
        raise UserError("check comes first: get_data.py check [--data DIR]")
    for flag in ("timeout", "tries"):
        if (value := getattr(options, flag)) <= 0:
            raise UserError(f"--{flag} {value}: is not above 0")
    mirror = options.from_mirror.rstrip("/")
    if mirror and not mirror.startswith(("http://", "https://")) and not Path(mirror).is_dir():
        raise UserError(f"--from-mirror {mirror}: neither an http address nor a folder")
    fetch(options, mirror)


def fetch(options: argparse.Namespace, mirror: str) -> None:
    """Fetch the requested sets. Raises `UserError` at the end, naming those that are incomplete."""
    from tasks.data.fetch import sources
    from tasks.data.fetch.collect import Fetcher
    from tasks.data.fetch.download import Downloader

    fetcher = Fetcher(options.data, Downloader(options.tries, options.timeout), mirror)
    missing = []
    for name in SETS if options.set == "all" else [options.set]:
        fields = {"year": options.year} if name == "course" else {}
        if not fetcher.collect(sources.load(name, options.year), **fields):
            missing.append(name)
    if missing:
        raise UserError(f"incomplete: {', '.join(missing)} (see above); run the same command again to continue")


def check(arguments: Sequence[str]) -> None:
    """Check the files of a folder, print the tables, and write the whole report to `--json`.

    Raises `UserError` for an invalid flag or folder, and, after printing the tables, if any file is broken.
    """
    from minbert.files import write_json
    from tasks.data.check import render, report

    flags = Parser(
        prog="data/get_data.py check",
        description="Rows, labels, duplicates and overlaps of data files; nothing is downloaded or changed.",
        allow_abbrev=False,
    )
    flags.add_argument("--data", type=expanded, default=_folder(), metavar="DIR", help=f"folder {_DEFAULT}")
    flags.add_argument("--json", type=Path, metavar="FILE", help="write the whole report to this file")
    options = flags.parse_args(list(arguments))
    demand_writable(options.json, "--json")
    content = report(options.data)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.json, content)
    print(render(content))
    broken = [entry["broken"] for entry in content["files"] if entry["broken"] is not None]
    if broken:
        total = len(content["files"])
        raise UserError(f"{options.data}: {len(broken)} of {total} files are broken, the first: {broken[0]}")


if __name__ == "__main__":
    run(main)
