"""Fetch the real data sets, or check the data files of a folder.

    python data/get_data.py course|nli|senteval|chinese|wordnet|all [--data DIR] [--year 2023]
    python data/get_data.py check [--data DIR]
    python -m tasks.data ...      the same, from an installed package

Files that are as expected are not fetched again. A set's manifest.json is written last and says whether it is complete.
"""

import os
from argparse import RawDescriptionHelpFormatter
from pathlib import Path

from minbert.errors import UserError
from minbert.files import expand_user
from minbert.train.cli import Parser, run

SETS = {
    "course": "SST, Quora and STS of the CS 224N default project (--year), CFIMDB where available",
    "nli": "SimCSE's triplets, SNLI 1.0 and MultiNLI 1.0",
    "senteval": "STS12 to STS16, STS-B, SICK, MR, CR, SUBJ, MPQA, SST2, TREC, MRPC in SentEval's layout",
    "chinese": "ATEC, BQ, LCQMC, PAWS-X and STS-B in Chinese",
    "wordnet": "WordNet 3.0 and the English tagger, for NLTK",
}
_PROJECT = Path(__file__).parents[2] / "data"
_FOLDER = _PROJECT if _PROJECT.is_dir() else Path("data")  # in the current folder, for an installed package


def main() -> None:
    """Check a folder, or fetch sets into it; raises `UserError` at the end, naming those that are incomplete."""
    checked = "rows, skipped rows and overlaps of a folder's files; nothing is downloaded or changed"
    commands = {**SETS, "all": "all of these", "check": checked}
    listed = "\n".join(f"  {name:9} {text}" for name, text in commands.items())
    parser = Parser(
        prog="data/get_data.py",
        description=f"Fetch the real data sets into a folder, or check the data files of a folder. SET:\n{listed}",
        epilog="Run the same command again to continue where it stopped. HF_ENDPOINT names another model hub.",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    folder = os.environ.get("DATA_DIR") or str(_FOLDER)
    data_help = "the folder (default: $DATA_DIR, else the project's data/)"
    parser.add_argument("set", choices=commands, metavar="SET", help="one of the above")
    parser.add_argument("--data", type=expand_user, default=folder, metavar="DIR", help=data_help)
    year_help = "the course's handout (default: 2024)"
    parser.add_argument("--year", type=int, choices=[2024, 2023], default=2024, help=year_help)
    options = parser.parse_args()
    if options.set == "check":
        from tasks.data.check import check

        check(options.data)
        return
    from tasks.data.fetch import collect
    from tasks.data.sets import load

    silent, missing = set[str](), []
    for name in [*SETS] if options.set == "all" else [options.set]:
        fields = {"year": options.year} if name == "course" else {}
        if not collect(load(name, options.year), options.data, silent, **fields):
            missing.append(name)
    if missing:
        raise UserError(f"incomplete: {', '.join(missing)} (see above); run the same command again to continue")


if __name__ == "__main__":
    run(main)
