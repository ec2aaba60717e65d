"""Semantic textual similarity: an encoder's cosines against human scores, on the seven STS sets or the Chinese ones.

python -m tasks.benchmarks.sts_suite --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.sts_suite --encoder minilm runs/cbcl --pooler mean,cls --sets STS-B,SICK --data DIR
"""

from argparse import Namespace

from minbert.train import cli
from tasks.benchmarks import options
from tasks.benchmarks.sets import NAMES_HELP


def parse(arguments: list[str] | None = None) -> Namespace:
    """The flags, checked. Raises `UserError` for a mistake."""
    parser = options.parser("sts_suite", __doc__)
    parser.add_argument("--sets", default="en", metavar="NAMES", help=f"{NAMES_HELP} (default: en)")
    return options.parse(parser, arguments)


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, score, and write tables, JSON and figures."""
    parsed = parse(arguments)
    from tasks.benchmarks import similarity  # imports torch and pandas

    similarity.run_similarity(parsed)


if __name__ == "__main__":
    cli.run(main)
