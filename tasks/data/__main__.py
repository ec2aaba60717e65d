"""Fetch the real data sets, or check the data files of a folder.

    python data/get_data.py course|nli|senteval|chinese|wordnet|all [--data DIR] [--year 2023]
    python data/get_data.py check [--data DIR]
    python -m tasks.data ...      the same, from an installed package

Files that are as expected are not fetched again. A set's manifest.json is written last and says whether it is complete.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from minbert.errors import UserError
from minbert.files import expanded
from minbert.training.cli import Parser, run

SETS = {
    "course": "SST, Quora and STS of the CS 224N default project (--year), CFIMDB where available",
    "nli": "SimCSE's triplets, SNLI 1.0 and MultiNLI 1.0",
    "senteval": "STS12 to STS16, STS-B, SICK, MR, CR, SUBJ, MPQA, SST2, TREC, MRPC in SentEval's layout",
    "chinese": "ATEC, BQ, LCQMC, PAWS-X and STS-B in Chinese",
    "wordnet": "WordNet 3.0 and the English tagger, for NLTK",
}

_PROJECT = Path(__file__).parents[2] / "data"
_FOLDER = _PROJECT if _PROJECT.is_dir() else Path("data")  # in the current folder, for an installed package


def parser() -> Parser:
    """The parser of the command line."""
    flags = Parser(
        prog="data/get_data.py",
        description="Fetch the real data sets into a folder, or check the data files of a folder.",
        epilog="Run the same command again to continue where it stopped. HF_ENDPOINT names another model hub.",
        allow_abbrev=False,
    )
    folder = os.environ.get("DATA_DIR") or str(_FOLDER)
    about_folder = "the folder (default: $DATA_DIR, else the project's data/)"
    commands = flags.add_subparsers(dest="set", metavar="SET", required=True)
    checked = "rows, skipped rows and overlaps of a folder's files; nothing is downloaded or changed"
    for name, text in {**SETS, "all": "all of these", "check": checked}.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.add_argument("--data", type=expanded, default=folder, metavar="DIR", help=about_folder)
        if name != "check":
            about_year = "the course's handout (default: 2024)"
            command.add_argument("--year", type=int, choices=[2024, 2023], default=2024, help=about_year)
    return flags


def main() -> None:
    """Run `check`, or fetch the named sets. Raises `UserError` for invalid flags."""
    if sys.argv[1:2] and sys.argv[1].startswith("--") and sys.argv[1] != "--help":
        raise UserError("SET comes first: get_data.py SET [--data DIR] (see --help)")
    options = parser().parse_args()
    if options.set == "check":
        from tasks.data.check import check

        check(options.data)
    else:
        fetch(options.data, [*SETS] if options.set == "all" else [options.set], options.year)


def fetch(folder: Path, names: Sequence[str], year: int) -> None:
    """Fetch sets into a folder. Raises `UserError` at the end, naming those that are incomplete."""
    from tasks.data import sets
    from tasks.data.fetch import collect

    silent, missing = set[str](), []
    for name in names:
        fields = {"year": year} if name == "course" else {}
        if not collect(sets.load(name, year), folder, silent, **fields):
            missing.append(name)
    if missing:
        raise UserError(f"incomplete: {', '.join(missing)} (see above); run the same command again to continue")


if __name__ == "__main__":
    run(main)
