"""Transfer: logistic regression on frozen sentence vectors for seven classification tasks, in SentEval's protocol.

python -m tasks.benchmarks.transfer --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.transfer --encoder minilm runs/cbcl --sets TREC,MRPC --data DIR
"""

from argparse import Namespace

from minbert.errors import UserError
from minbert.train import cli
from tasks.benchmarks import options

SETS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")


def parse(arguments: list[str] | None = None) -> Namespace:
    """The flags, checked. Raises `UserError` for a mistake."""
    parser = options.parser("transfer", __doc__)
    names = f"{', '.join(SETS)}, several with commas (default: all seven)"
    parser.add_argument("--sets", default=",".join(SETS), metavar="NAMES", help=names)
    parser.add_argument("--folds", type=int, default=10, metavar="N", help="folds of a cross-validation (default: 10)")
    parsed = options.parse(parser, arguments)
    parsed.sets = options.chosen(parsed.sets, SETS, "--sets")
    if parsed.folds < 2:
        raise UserError(f"--folds: {parsed.folds} is less than 2")
    return parsed


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, classify, and write tables and JSON."""
    parsed = parse(arguments)
    from tasks.benchmarks import classifiers  # imports scikit-learn and torch

    classifiers.run_transfer(parsed)


if __name__ == "__main__":
    cli.run(main)
