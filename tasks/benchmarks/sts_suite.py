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
    from tasks.benchmarks.results import Results, Table
    from tasks.benchmarks.sets import ScoredSet

    Cosines = dict[System, dict[str, list[np.ndarray]]]
    """By system and set: the cosines of each subset."""


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

    from minbert.training import start

    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets, folder))
    run(given, scored, options.load(given), protocols, folder, options.command("sts_suite", words))


def run(
    given: argparse.Namespace,
    scored: "list[ScoredSet]",
    loaded: "list[Loaded]",
    protocols: list[str],
    data: Path,
    command: str,
) -> dict[str, Any]:
    """Score the encoders on the sets; returns what `sts.json` holds."""
    from tasks.benchmarks import contamination, results
    from tasks.benchmarks.vectors import Bank

    bank = Bank.of(loaded, (text for one in scored for pair in one.pairs for text in pair))
    cosines = {
        system: {one.name: [bank.cosines(system, part.pairs) for part in one.subsets] for one in scored}
        for system in options.systems(loaded)
    }
    tables, rows, differences = [], [], []
    for protocol in protocols:
        found = measure(scored, cosines, protocol, seed=given.seed, resamples=given.resamples)
        apart = found.differences(options.references(loaded), "spearman")
        tables += _tables(scored, found, protocol, intervals=given.resamples > 0)
        tables += results.difference_tables(f"Spearman × 100, protocol {protocol}", apart, times=100)
        rows += results.as_json(found.frame())
        differences += results.as_json(apart.assign(protocol=protocol))
    checked = [contamination.check(one.name, one.folder, scored) for one in loaded]
    out = options.out_folder(given, loaded)
    figures, sick_tables, sick = _figures(out, scored, cosines, data)
    content = {
        **options.account("sts", command, given, loaded, data),
        "sets": {one.shown: {"pairs": len(one.gold), "skipped": one.skipped, "file": one.file} for one in scored},
        "results": rows,
        "differences": differences,
        "contamination": [contamination.as_json(one) for one in checked],
        "sick": sick,
    }
    tables += [*sick_tables, *(contamination.table(one) for one in checked)]
    results.write(out, "sts", "Semantic textual similarity", tables, content, figures)
    return content


def measure(scored: "list[ScoredSet]", cosines: "Cosines", protocol: str, *, seed: int, resamples: int) -> "Results":
    """Spearman and Pearson of every system on every set by one protocol, and the bootstrap of Spearman's rho."""
    import numpy as np

    from tasks.benchmarks import correlation
    from tasks.benchmarks.results import Results

    found = Results()
    for one in scored:
        about = {"protocol": protocol, "rows": len(one.gold), "unscored": one.skipped}
        gold = [part.gold for part in one.subsets]
        stacked = [np.stack(parts) for parts in zip(*(by_set[one.name] for by_set in cosines.values()), strict=True)]
        how = {"seed": seed, "resamples": resamples}
        draws = correlation.draws(protocol, "spearman", list(zip(stacked, gold, strict=True)), one.name, **how)
        for place, (system, by_set) in enumerate(cosines.items()):
            for metric in correlation.LONG:
                value = correlation.score(protocol, metric, list(zip(by_set[one.name], gold, strict=True)))
                found.add(system, metric, one.shown, value, draws[place] if metric == "spearman" else None, **about)
    for metric in correlation.LONG:
        found.add_average(metric, protocol=protocol)
    return found


def _tables(scored: "list[ScoredSet]", found: "Results", protocol: str, *, intervals: bool) -> "list[Table]":
    """Spearman and Pearson side by side for all systems, then each system by set with its interval."""
    import pandas as pd

    from tasks.benchmarks.correlation import LONG
    from tasks.benchmarks.results import Table, between, number, numbers, wide

    note = f"Protocol {protocol}: {options.PROTOCOLS[protocol]}."
    made = []
    for metric, long in LONG.items():
        rows = wide(found.frame(metric), ("encoder", "pooler"), "set", lambda value: number(value, times=100))
        made.append(Table(f"{long} × 100, protocol {protocol}", rows, (note,), left=2))
    frame = found.frame("spearman")
    for key, one in frame.groupby(["encoder", "pooler"], sort=False) if intervals else ():
        system = options.System(*key)
        counts = [["" if pd.isna(count) else f"{count:,.0f}" for count in one[name]] for name in ("rows", "unscored")]
        shown = {
            "set": one["set"],
            "pairs": counts[0],
            "unscored": counts[1],
            "Spearman × 100": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "Pearson × 100": numbers(found.frame("pearson", system)["value"], times=100),
        }
        title = f"{system.encoder}, pooler {system.pooler}, protocol {protocol}"
        made.append(Table(title, pd.DataFrame(shown)))
    return made


def _figures(
    out: Path, scored: "list[ScoredSet]", cosines: "Cosines", data: Path
) -> "tuple[list[Path], list[Table], Any]":
    """The scatters of STS-B and SICK if they are among the sets, SICK's by relation too, and its relations' tables."""
    import numpy as np

    from tasks.benchmarks import contradictions, figures
    from tasks.metrics import spearman

    paths, tables, sick = [], [], None
    for one in scored:
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
