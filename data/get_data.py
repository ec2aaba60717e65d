"""Fetch the real data sets, or look at what lies there.

    python data/get_data.py course|nli|senteval|chinese|wordnet|all [--to DIR] [--year 2023] [--from-mirror URL|DIR]
    python data/get_data.py check [--data DIR]

A set whose manifest.json is there is whole. What is there already is not fetched again, and a broken transfer goes on.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from minbert.errors import UserError  # noqa: E402
from minbert.training.cli import Parser, run  # noqa: E402

SETS = {
    "course": "SST, Quora and STS of the CS 224N default project (--year), CFIMDB where it can be had",
    "nli": "SimCSE's triplets, SNLI 1.0 and MultiNLI 1.0",
    "senteval": "STS12 to STS16, STS-B, SICK, MR, CR, SUBJ, MPQA, SST2, TREC, MRPC in SentEval's layout",
    "chinese": "ATEC, BQ, LCQMC, PAWS-X and STS-B in Chinese",
    "wordnet": "WordNet 3.0 and the English tagger, for NLTK",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    lines = [f"  {name:9} {text}" for name, text in SETS.items()]
    lines += ["  all       all of these", "  check     what lies in a folder: rows, labels, duplicates, overlaps"]
    made = Parser(
        prog="get_data.py",
        description="Fetch the real data sets into a folder.\n\n" + "\n".join(lines),
        epilog="Run the same command again to go on where it stopped. HF_ENDPOINT names another hub.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("set", choices=[*SETS, "all", "check"], metavar="SET", help=", ".join([*SETS, "all", "check"]))
    made.add_argument(
        "--to", type=Path, default=ROOT / "data", metavar="DIR", help="folder to fill (default: the project's data/)"
    )
    made.add_argument(
        "--year", type=int, choices=[2024, 2023], default=2024, help="the course's handout (default: 2024)"
    )
    made.add_argument("--from-mirror", default="", metavar="URL|DIR", help="take the files from here; layout as --to")
    made.add_argument(
        "--accept-changed",
        action="store_true",
        help="with --from-mirror: keep files whose content is not the pinned one (the manifest says so)",
    )
    made.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="of a stall (default: 30); to connect, a third"
    )
    made.add_argument(
        "--tries", type=int, default=5, metavar="N", help="attempts in a row without progress (default: 5)"
    )
    return made


def main() -> None:
    """Hand `check` over, or fetch the set that is named."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["check"]:
        from data.check import main as check

        raise SystemExit(check(arguments[1:]))
    asked = parser().parse_args(arguments)
    if asked.set == "check":
        raise UserError("check comes first: get_data.py check [--data DIR]")
    if asked.timeout <= 0 or asked.tries < 1:
        raise UserError("--timeout and --tries must be more than 0")
    mirror = asked.from_mirror.rstrip("/")
    if asked.accept_changed and not mirror:
        raise UserError("--accept-changed is for --from-mirror alone: public files must be the pinned ones")
    if mirror and not mirror.startswith(("http://", "https://")):
        if not Path(mirror).is_dir():
            raise UserError(f"--from-mirror {mirror}: neither an http address nor a folder")
        if Path(mirror).resolve() == asked.to.resolve():
            raise UserError(f"--from-mirror {mirror}: the mirror and --to are the same folder")
    fetch(asked, mirror)


def fetch(asked: argparse.Namespace, mirror: str) -> None:
    """Collect the requested sets. Raises `UserError` at the end, naming those that are incomplete."""
    from data.fetch import sources
    from data.fetch.collect import Fetcher
    from data.fetch.download import Downloader

    fetcher = Fetcher(asked.to, Downloader(asked.tries, asked.timeout), mirror, asked.accept_changed)
    missing = []
    for name in SETS if asked.set == "all" else [asked.set]:
        facts = {"year": asked.year} if name == "course" else {}
        if not fetcher.collect(sources.load(name, asked.year), **facts):
            missing.append(name)
    if missing:
        raise UserError(f"incomplete: {', '.join(missing)} (see above); run the same command again to continue")


if __name__ == "__main__":
    run(main)
