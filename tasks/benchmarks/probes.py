"""Probes of an encoder's space: alignment, uniformity, isotropy, frequent tokens, length bias, word associations.

python -m tasks.benchmarks.probes --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.probes --encoder minilm runs/cbcl --probes geometry,weat --data DIR
python -m tasks.benchmarks.probes --encoder minilm --probes length --pairs my-pairs.tsv --append ' and so on'
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from minbert.files import present
from minbert.training import cli
from tasks.benchmarks import options, sets

PROBES = ("geometry", "frequency", "length", "weat")


def _parser() -> argparse.ArgumentParser:
    differences = "its numbers beside the first's, and differences of alignment and of the length shift"
    parser = options.parser("probes", (__doc__ or "").splitlines()[0], differences)
    help_ = {
        "probes": f"{', '.join(PROBES)}, several with commas (default: all)",
        "sets": f"sets of the frequency probe: {sets.SAID} (default: STS-B; the paper takes en)",
        "pairs": "pairs or sentences of the length probe (default: STS-B test)",
        "append": "what the length probe appends; may be given several times (default: five phrases)",
    }
    parser.add_argument("--probes", default="", metavar="NAMES", help=help_["probes"])
    parser.add_argument("--sets", default="", metavar="NAMES", help=help_["sets"])
    parser.add_argument("--pairs", type=Path, metavar="FILE", help=help_["pairs"])
    parser.add_argument("--append", action="append", metavar="TEXT", help=help_["append"])
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, probe, and write tables, JSON and figures."""
    words = sys.argv[1:] if arguments is None else arguments
    given = _parser().parse_args(words)
    options.check(given)
    chosen = options.chosen(given.probes, PROBES, "--probes") or list(PROBES)
    if given.pairs is not None:
        present(given.pairs, "--pairs")
    for flag, probe in (("sets", "frequency"), ("pairs", "length"), ("append", "length")):
        if getattr(given, flag) and probe not in chosen:
            print(f"note: --{flag} has no effect without the probe {probe}", file=sys.stderr)
    if given.compare and not {"geometry", "length"} & set(chosen):
        print("note: --compare: only geometry and length have differences with paired intervals", file=sys.stderr)
    run_probes(given, chosen, words)


def run_probes(given: argparse.Namespace, chosen: list[str], words: list[str]) -> None:
    """Run the probes with every encoder, and write `probes.json`, `probes.md` and the figures."""
    from minbert.training import start
    from tasks.benchmarks import length_bias, results, space, weat

    known: dict[str, Any] = {
        "geometry": space.geometry,
        "frequency": space.frequency,
        "length": length_bias.length,
        "weat": weat.weat,
    }
    needs = "geometry" in chosen or "frequency" in chosen or ("length" in chosen and given.pairs is None)
    folder = start.data_folder(given.data) if needs else None
    base = sets.read(folder, ["STS-B"])[0] if folder is not None else None
    loaded = options.load(given)
    out = options.out_folder(given, loaded)
    probed = {name: known[name](given, loaded, base, out) for name in chosen}
    content = options.account("probes", words, given, loaded, folder)
    content |= {name: one.content for name, one in probed.items()}
    tables = [table for one in probed.values() for table in one.tables]
    figures = [path for one in probed.values() for path in one.figures]
    results.write_results(out, "probes", "Probes of the space of sentences", tables, content, figures)


if __name__ == "__main__":
    cli.run(main)
