"""The flags that all suites share. Importing this module does not import torch, so that `--help` is fast."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from minbert.errors import UserError, one_of
from minbert.train.cli import Parser, demand_writable
from minbert.train.settings import names_in


def parser(suite: str, about: str | None) -> argparse.ArgumentParser:
    """The flags of every suite: `--encoder`, `--pooler`, `--data`, `--out` and a few more.

    The description is the first line of `about`.
    """
    description = (about or "").partition("\n")[0]
    flags = Parser(prog=f"python -m tasks.benchmarks.{suite}", description=description, allow_abbrev=False)
    flags.set_defaults(suite=suite)
    encoders = "a folder, a run, minilm or a hub name; others are compared with the first, by paired intervals"
    flags.add_argument("--encoder", nargs="+", required=True, metavar="DIR|NAME", help=encoders)
    poolers = "mean, cls and so on, several with commas, or `every` (default: each encoder's own)"
    flags.add_argument("--pooler", metavar="NAMES", default="", help=poolers)
    data = "folder in SentEval's layout (default: $DATA_DIR/senteval, $DATA_DIR or data/)"
    flags.add_argument("--data", metavar="DIR", default="", help=data)
    out = "results folder (default: runs/benchmarks/ENCODER)"
    flags.add_argument("--out", metavar="DIR", type=Path, help=out)
    formats = ("fp32", "bf16", "fp16", "auto")
    flags.add_argument("--precision", default="fp32", choices=formats, help="number format (default: fp32)")
    flags.add_argument("--device", default="", help="where the encoder runs (default: a GPU if there is one)")
    flags.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random numbers (default: 0)")
    resamples = "bootstrap resamples of an interval, 0 for none (default: 1000)"
    flags.add_argument("--resamples", type=int, default=1000, metavar="N", help=resamples)
    return flags


def parse(flags: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The flags, with the shared ones checked. `words` holds the arguments; None reads the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    options = flags.parse_args(words, argparse.Namespace(words=words))
    if options.resamples < 0:
        raise UserError(f"--resamples: {options.resamples} is less than 0")
    if options.out is not None:
        demand_writable(options.out / f"{options.suite.removesuffix('_suite')}.json")
    return options


def chosen(text: str, names: Iterable[str], flag: str) -> list[str]:
    """The names of a comma-separated list without repetitions, spelled as in `names`.

    Raises `UserError` for any other name, and for a list of none.
    """
    words = names_in(text)
    if not words:
        raise UserError(f"{flag}: names none of {', '.join(names)}")
    return list(dict.fromkeys(one_of(word, names, flag) for word in words))
