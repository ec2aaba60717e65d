"""The flags that all suites share. Importing this module does not import torch, so that `--help` is fast."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from minbert.errors import UserError, one_of
from minbert.training.cli import Parser
from minbert.training.settings import names_in

RESAMPLES = 1000
PROTOCOLS = {
    "all": "one correlation over all pairs of a set (SimCSE, appendix B; ConSERT and SelfCCL follow it)",
    "mean": "a correlation for each subset, then their mean (SentEval)",
    "wmean": "a correlation for each subset, then their mean weighted by pairs (SentEval)",
}


def parser(suite: str, about: str | None, differences: str = "differences to the first") -> argparse.ArgumentParser:
    """The flags of every suite: `--encoder`, `--pooler`, `--data`, `--compare`, `--out` and a few more.

    The description is the first line of `about`.
    """
    description = (about or "").partition("\n")[0]
    made = Parser(prog=f"python -m tasks.benchmarks.{suite}", description=description, allow_abbrev=False)
    made.set_defaults(suite=suite)
    help_ = {
        "encoder": "a folder, a run, minilm or a hub name; several are shown side by side",
        "pooler": "mean, cls and so on, several with commas, or `every` (default: each encoder's own)",
        "data": "folder in SentEval's layout (default: $DATA_DIR/senteval, $DATA_DIR or data/)",
        "compare": f"another encoder: {differences}, with paired intervals",
        "out": "results folder (default: runs/benchmarks/ENCODER)",
        "resamples": f"bootstrap resamples of an interval, 0 for none (default: {RESAMPLES})",
    }
    names = ("--encoder", "--encoders")
    made.add_argument(*names, dest="encoder", nargs="+", required=True, metavar="DIR|NAME", help=help_["encoder"])
    made.add_argument("--pooler", metavar="NAMES", default="", help=help_["pooler"])
    made.add_argument("--data", metavar="DIR", default="", help=help_["data"])
    made.add_argument("--compare", metavar="OTHER", help=help_["compare"])
    made.add_argument("--out", metavar="DIR", type=Path, help=help_["out"])
    formats = ("fp32", "bf16", "fp16", "auto")
    made.add_argument("--precision", default="fp32", choices=formats, help="number format (default: fp32)")
    made.add_argument("--device", default="", help="where the encoder runs (default: a GPU if there is one)")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="seed of every random draw (default: 0)")
    made.add_argument("--resamples", type=int, default=RESAMPLES, metavar="N", help=help_["resamples"])
    return made


def parse(made: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The flags, with the shared ones checked. `words` holds the arguments; None reads the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    given = made.parse_args(words, argparse.Namespace(words=words))
    if given.resamples < 0:
        raise UserError(f"--resamples: {given.resamples} is less than 0")
    if given.out is not None and given.out.exists() and not given.out.is_dir():
        raise UserError(f"--out {given.out}: is a file, not a folder")
    return given


def chosen(text: str, known: Iterable[str], flag: str) -> list[str]:
    """The names of a comma-separated list without repetitions, spelled as in `known`.

    Raises `UserError` for any other name, and for a list of none.
    """
    words = names_in(text)
    if not words:
        raise UserError(f"{flag}: names none of {', '.join(known)}")
    return list(dict.fromkeys(one_of(word, known, flag) for word in words))
