"""Semantic textual similarity: an encoder's cosines against human scores, on the seven STS sets or the Chinese ones.

python -m tasks.benchmarks.sts_suite --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.sts_suite --encoder minilm --pooler mean,cls --protocol all,wmean --data DIR
python -m tasks.benchmarks.sts_suite --encoder minilm --compare runs/cbcl --sets STS-B,SICK --data DIR
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.training import cli
from tasks.benchmarks import options, sets

if TYPE_CHECKING:
    import numpy as np

    from tasks.benchmarks.options import Loaded, System
    from tasks.benchmarks.sets import ScoredSet

    Cosines = dict[System, dict[str, list[np.ndarray]]]
    """By system and set: the cosines of each subset."""


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, score, and write tables, JSON and figures."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = options.parser("sts_suite", (__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", default="", metavar="NAMES", help=f"{sets.SAID} (default: en, else zh)")
    parser.add_argument(
        "--protocol", default="all", metavar="NAMES",
        help=f"{', '.join(options.PROTOCOLS)}, several with commas (default: all)",
    )  # fmt: skip
    given = parser.parse_args(words)
    options.check(given)

    from minbert.training import start

    protocols = options.chosen(given.protocol, options.PROTOCOLS, "--protocol")
    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets, folder))
    loaded = options.load(given)
    run(given, scored, loaded, protocols, folder, options.command("sts_suite", words))


def run(
    given: argparse.Namespace, sets: "list[ScoredSet]", loaded: "list[Loaded]", protocols: list[str], data: Path,
    command: str,
) -> dict[str, Any]:  # fmt: skip
    """Score the encoders on the sets; returns what `sts.json` holds."""
    from tasks.benchmarks import contamination, sts_results, tables
    from tasks.benchmarks.vectors import Bank

    bank = Bank.of(loaded, (text for one in sets for pair in one.pairs for text in pair))
    cosines = {
        system: {one.name: [bank.cosines(system, part.pairs) for part in one.subsets] for one in sets}
        for system in options.systems(loaded)
    }
    found = [
        sts_results.measure(sets, cosines, protocol, seed=given.seed, resamples=given.resamples)
        for protocol in protocols
    ]
    pairs = options.references(loaded)
    differences = [
        sts_results.differences(sets, one, pairs) for one in found
    ] if given.compare or len(loaded) > 1 else []  # fmt: skip
    checked = [contamination.check(one.name, one.folder, sets) for one in loaded]
    out = options.out_folder(given, loaded)
    shown = [table for one in found for table in sts_results.tables(sets, one)]
    shown += [table for one in differences for table in sts_results.difference_tables(sets, one)]
    figures, sick_tables, sick = _pictures(out, sets, cosines, data)
    shown += [*sick_tables, *(contamination.table(one) for one in checked)]
    results = {
        "suite": "sts", "command": command, "data": str(data), "precision": loaded[0].encoder.precision,
        "seed": given.seed, "resamples": given.resamples,
        "encoders": {one.name: str(one.folder) for one in loaded},
        "sets": {one.shown: {"pairs": len(one.gold), "skipped": one.skipped, "file": one.file} for one in sets},
        "protocols": [sts_results.as_json(one) for one in found],
        "differences": [sts_results.differences_as_json(one) for one in differences],
        "contamination": [sts_results.contamination_as_json(one) for one in checked],
        "sick": sick,
    }  # fmt: skip
    tables.write(out, "sts", "Semantic textual similarity", shown, results, figures)
    return results


def _pictures(out: Path, sets: "list[ScoredSet]", cosines: "Cosines", data: Path) -> tuple[list[Path], list[Any], Any]:
    """The scatters of STS-B and SICK if they are among the sets, SICK's by relation too, and its relations' tables."""
    import numpy as np

    from tasks.benchmarks import contradictions, figures
    from tasks.metrics import spearman

    paths, tables, sick = [], [], None
    for one in sets:
        if one.name not in ("STS-B", "SICK", "zh-STS-B"):
            continue
        values = {system: np.concatenate(parts[one.name]) for system, parts in cosines.items()}
        shown = {system.name: array for system, array in values.items()}
        rho = {name: spearman(array, one.gold) for name, array in shown.items()}
        title, scale = f"{one.shown} test, {len(one.gold):,} pairs", (1.0 if one.name == "SICK" else 0.0, 5.0)
        paths.append(out / f"sts-{one.name.lower()}-scatter")
        figures.scatter(paths[-1], title, one.gold, shown, rho, scale=scale)
        if one.name == "SICK":
            relation = contradictions.relations(data, one.subsets[0])
            sick = contradictions.summary(one.subsets[0], relation, values)
            tables, kinds = contradictions.tables(sick, list(cosines)), contradictions.kinds(relation)
            paths.append(out / "sts-sick-relations")
            figures.scatter(paths[-1], f"{title}, by relation", one.gold, shown, rho, kinds, scale=scale)
    return paths, tables, sick


if __name__ == "__main__":
    cli.run(main)
