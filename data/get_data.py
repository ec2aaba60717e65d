"""Fetch the real data sets into a folder, or check the data files of a folder.

python data/get_data.py course|nli|senteval|chinese|wordnet|all [--data DIR] [--year 2023]
python data/get_data.py check [--data DIR]
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data.check import check
from data.fetch import fetch_set
from minbert.errors import UserError
from minbert.files import expand_user
from minbert.train.cli import Parser, run

FOLDER = Path(__file__).resolve().parent
SETS = {
    "course": "SST, Quora, STS and CFIMDB of the CS 224N default project (--year)",
    "nli": "SimCSE's triplets, SNLI 1.0 and MultiNLI 1.0",
    "senteval": "STS12 to STS16, STS-B, SICK, MR, CR, SUBJ, MPQA, SST2, TREC, MRPC in SentEval's layout",
    "chinese": "ATEC, BQ, LCQMC, PAWS-X and STS-B in Chinese",
    "wordnet": "WordNet 3.0 and the English tagger, for NLTK (synonym augmentation needs them)",
}
COMMANDS = {
    **SETS,
    "all": "all of these",
    "check": "rows, skipped rows and overlaps of a folder's files; nothing is downloaded or changed",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    commands = "\n".join(f"  {name:9} {text}" for name, text in COMMANDS.items())
    flags = Parser(
        prog="data/get_data.py",
        description=f"Fetch the real data sets into a folder, or check the data files of a folder. SET:\n{commands}",
        epilog="Run the same command again to continue where it stopped. HF_ENDPOINT names another model hub.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("set", choices=COMMANDS, metavar="SET", help="one of the above")
    flags.add_argument(
        "--data",
        type=expand_user,
        default=os.environ.get("DATA_DIR") or str(FOLDER),
        metavar="DIR",
        help="the folder (default: $DATA_DIR, else the project's data/)",
    )
    flags.add_argument(
        "--year", type=int, choices=[2024, 2023], default=2024, help="the course's handout (default: 2024)"
    )
    return flags


def main(arguments: list[str] | None = None) -> None:
    """Check a folder, or fetch sets into it; raises `UserError` at the end, naming those that are incomplete."""
    options = parser().parse_args(arguments)
    if options.set == "check":
        check(options.data)
        return
    names = list(SETS) if options.set == "all" else [options.set]
    incomplete = [name for name in names if not fetch_set(name, options.data, options.year)]
    if incomplete:
        raise UserError(f"incomplete: {', '.join(incomplete)} (see above); run the same command again to continue")


if __name__ == "__main__":
    run(main)
