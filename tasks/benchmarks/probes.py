"""Probes of an encoder's space: alignment, uniformity, frequent tokens, length bias, word associations.

python -m tasks.benchmarks.probes --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.probes --encoder minilm runs/cbcl --probes geometry,weat --data DIR
python -m tasks.benchmarks.probes --encoder minilm --probes length --pairs my-pairs.tsv --append ' and so on'
"""

from pathlib import Path

from minbert.files import present
from minbert.training import cli
from tasks.benchmarks import options
from tasks.benchmarks.sets import NAMES_HELP

PROBES = ("geometry", "frequency", "length", "weat")


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, probe, and write tables, JSON and figures."""
    parser = options.parser("probes", __doc__)
    help_ = {
        "probes": f"{', '.join(PROBES)}, several with commas (default: all)",
        "sets": f"sets of the frequency probe: {NAMES_HELP} (default: STS-B; the paper takes en)",
        "pairs": "pairs of the length probe (default: STS-B test)",
        "append": "what the length probe appends; may be given several times (default: five phrases)",
    }
    parser.add_argument("--probes", default=",".join(PROBES), metavar="NAMES", help=help_["probes"])
    parser.add_argument("--sets", default="STS-B", metavar="NAMES", help=help_["sets"])
    parser.add_argument("--pairs", type=Path, metavar="FILE", help=help_["pairs"])
    parser.add_argument("--append", action="append", metavar="TEXT", help=help_["append"])
    parsed = options.parse(parser, arguments)
    parsed.probes = options.chosen(parsed.probes, PROBES, "--probes")
    if parsed.pairs is not None:
        present(parsed.pairs, "--pairs")

    from tasks.benchmarks import space  # imports torch and pandas

    space.run_probes(parsed)


if __name__ == "__main__":
    cli.run(main)
