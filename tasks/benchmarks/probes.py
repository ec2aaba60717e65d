"""Probes of an encoder's space: alignment, uniformity, frequent tokens, length bias, word associations.

python -m tasks.benchmarks.probes --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.probes --encoder minilm runs/cbcl --probes geometry,weat --data DIR
"""

from argparse import Namespace

from minbert.train import cli
from tasks.benchmarks import options
from tasks.benchmarks.sets import NAMES_HELP

PROBES = ("geometry", "frequency", "length", "weat")


def parse(arguments: list[str] | None = None) -> Namespace:
    """The flags, checked. Raises `UserError` for a mistake."""
    parser = options.parser("probes", __doc__)
    names = f"{', '.join(PROBES)}, several with commas (default: all)"
    parser.add_argument("--probes", default=",".join(PROBES), metavar="NAMES", help=names)
    names = f"sets of the frequency probe: {NAMES_HELP} (default: STS-B; the paper takes en)"
    parser.add_argument("--sets", default="STS-B", metavar="NAMES", help=names)
    parsed = options.parse(parser, arguments)
    parsed.probes = options.chosen(parsed.probes, PROBES, "--probes")
    return parsed


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, probe, and write tables, JSON and figures."""
    parsed = parse(arguments)
    from tasks.benchmarks import space  # imports torch and pandas

    space.run_probes(parsed)


if __name__ == "__main__":
    cli.run(main)
