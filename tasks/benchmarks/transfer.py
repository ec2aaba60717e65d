"""Transfer: logistic regression on frozen sentence vectors for seven classification tasks, in SentEval's protocol.

python -m tasks.benchmarks.transfer --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.transfer --encoder minilm --compare runs/cbcl --sets TREC,MRPC --data DIR
"""

from minbert.errors import UserError
from minbert.training import cli
from tasks.benchmarks import options

SETS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, classify, and write tables and JSON."""
    parser = options.parser("transfer", __doc__)
    known = f"{', '.join(SETS)}, several with commas (default: all seven; --tasks is the older name)"
    parser.add_argument("--sets", "--tasks", dest="sets", default="", metavar="NAMES", help=known)
    parser.add_argument("--folds", type=int, default=10, metavar="N", help="folds of a cross-validation (default: 10)")
    given = options.parse(parser, arguments)
    chosen = options.chosen(given.sets, SETS, "--sets") if given.sets else list(SETS)
    if given.folds < 2:
        raise UserError(f"--folds: {given.folds} is less than 2")

    from tasks.benchmarks import classifiers  # imports scikit-learn and torch

    classifiers.run_transfer(given, chosen)


if __name__ == "__main__":
    cli.run(main)
