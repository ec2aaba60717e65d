"""Semantic textual similarity: an encoder's cosines against human scores, on the seven STS sets or the Chinese ones.

python -m tasks.benchmarks.sts_suite --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.sts_suite --encoder minilm --pooler mean,cls --protocol all,wmean --data DIR
python -m tasks.benchmarks.sts_suite --encoder minilm --compare runs/cbcl --sets STS-B,SICK --data DIR
"""

import sys

from minbert.training import cli
from tasks.benchmarks import options, sets


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, score, and write tables, JSON and figures."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = options.parser("sts_suite", (__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", default="", metavar="NAMES", help=f"{sets.SAID} (default: en, else zh)")
    known = f"{', '.join(options.PROTOCOLS)}, several with commas (default: all)"
    parser.add_argument("--protocol", default="all", metavar="NAMES", help=known)
    given = parser.parse_args(words)
    options.check(given)
    protocols = options.chosen(given.protocol, options.PROTOCOLS, "--protocol")

    from tasks.benchmarks import similarity  # torch and pandas

    similarity.run_similarity(given, protocols, words)


if __name__ == "__main__":
    cli.run(main)
