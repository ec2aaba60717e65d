"""Probes of an encoder's space: alignment, uniformity, isotropy, frequent tokens, length bias, word associations.

python -m tasks.benchmarks.probes --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.probes --encoder minilm runs/cbcl --probes geometry,weat --data DIR
python -m tasks.benchmarks.probes --encoder minilm --probes length --pairs my-pairs.tsv --append ' and so on'
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.files import present
from minbert.training import cli
from tasks.benchmarks import options, sets

if TYPE_CHECKING:
    from tasks.benchmarks.options import Loaded
    from tasks.benchmarks.results import Table
    from tasks.benchmarks.sets import ScoredSet

PROBES = ("geometry", "frequency", "length", "weat")


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, probe, and write tables, JSON and figures."""
    words = sys.argv[1:] if arguments is None else arguments
    differences = "its numbers beside the first's, and differences of alignment and of the length shift"
    parser = options.parser("probes", (__doc__ or "").splitlines()[0], differences)
    parser.add_argument(
        "--probes", default="", metavar="NAMES", help=f"{', '.join(PROBES)}, several with commas (default: all)"
    )
    parser.add_argument(
        "--sets", default="", metavar="NAMES",
        help=f"sets of the frequency probe: {sets.SAID} (default: STS-B; the paper takes en)",
    )  # fmt: skip
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="pairs or sentences of the length probe (default: "
                        "STS-B test)")  # fmt: skip
    parser.add_argument("--append", action="append", metavar="TEXT",
                        help="what the length probe appends, may be given again (default: five phrases)")  # fmt: skip
    given = parser.parse_args(words)
    options.check(given)
    chosen = options.chosen(given.probes, PROBES, "--probes") or list(PROBES)
    if given.pairs is not None:
        present(given.pairs, "--pairs")
    for flag, probe in (("sets", "frequency"), ("pairs", "length"), ("append", "length")):
        if getattr(given, flag) and probe not in chosen:
            print(f"note: --{flag} has no effect without the probe {probe}", file=sys.stderr)
    if given.compare and not {"geometry", "length"} & set(chosen):
        print("note: --compare: only geometry and length have differences with paired intervals", file=sys.stderr)
    run(given, chosen, options.command("probes", words))


def run(given: argparse.Namespace, chosen: list[str], command: str) -> dict[str, Any]:
    """Run the probes with every encoder; returns what `probes.json` holds."""
    from minbert.training import start
    from tasks.benchmarks import results

    needs = "geometry" in chosen or "frequency" in chosen or ("length" in chosen and given.pairs is None)
    folder = start.data_folder(given.data) if needs else None
    base = sets.read(folder, ["STS-B"])[0] if folder is not None else None
    loaded = options.load(given)
    out = options.out_folder(given, loaded)
    tables: list[Table] = []
    figures: list[Path] = []
    content = options.account("probes", command, given, loaded, folder)
    for name in chosen:
        made, content[name], paths = _RUN[name](given, loaded, base, out)
        tables += made
        figures += paths
    results.write(out, "probes", "Probes of the space of sentences", tables, content, figures)
    return content


def _geometry(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet", out: Path) -> Any:
    from tasks.benchmarks import figures, geometry, results
    from tasks.benchmarks.results import Table, number
    from tasks.benchmarks.vectors import Bank
    from tasks.contrastive.validation import unit

    bank = Bank.of(loaded, (text for pair in base.pairs for text in pair))
    found, groups = results.Results(), {}
    for system in options.systems(loaded):
        first, second = (unit(bank.of_texts(system, [pair[side] for pair in base.pairs])) for side in (0, 1))
        apart = geometry.distances(base, first, second)
        draws = results.means(apart, "alignment", base.shown, seed=given.seed, resamples=given.resamples)
        for measure, value in geometry.measure(base, first, second, unit(bank.vectors[system])).items():
            found.add(system, measure, base.shown, value, draws if measure == "alignment" else None, rows=len(apart))
        groups[system.name] = geometry.groups(base, first, second, seed=given.seed)
    notes = (
        "Alignment: mean squared distance of pairs scored 4 or more, less is better. Uniformity: ln of the mean of "
        "exp(−2 distance²), less is more even.",
        "Isotropy: the mean cosine of any two sentences, and the largest squared singular value's share of all.",
    )
    path = out / "probes-cosines"
    figures.histogram(path, groups)
    apart = found.differences(options.references(loaded), "alignment")
    rows = results.wide(found.frame(), ("encoder", "pooler"), "measure", lambda value: number(value, 3))
    tables = [Table(f"Geometry, {base.shown} test", rows, notes, left=2)]
    tables += results.difference_tables("Alignment", apart, digits=3, verdict=False)
    content = {"results": results.as_json(found.frame()), "differences": results.as_json(apart)}
    return tables, content, [path]


def _frequency(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet", out: Path) -> Any:
    from minbert.training import start
    from tasks.benchmarks import figures, frequency, results
    from tasks.benchmarks.results import Table, number

    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets or "STS-B", folder))
    counted = [text for pair in base.pairs for text in pair]
    found, curves = results.Results(), {}
    spread = f"mean of {len(scored)} sets" if len(scored) > 1 else scored[0].shown
    for one in loaded:
        for pooler in dict.fromkeys(name if name in frequency.LAYERS else "mean" for name in one.poolers):
            system = options.System(one.name, pooler)
            values = frequency.curve(one.encoder, pooler, scored, counted, frequency.STEPS, name=one.name)
            for removed, value in zip(frequency.STEPS, values, strict=True):
                found.add(system, "spearman", spread, value, removed=removed)
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                curves[system.name] = known
    notes = (
        f"Spearman × 100 (protocol all), {spread}; frequencies from {base.shown} test, [CLS] and [SEP] counted too.",
        "Poolers that are no mean of tokens are probed as `mean`.",
    )
    path = out / "probes-frequent-tokens"
    if curves:
        figures.removed_tokens(path, frequency.STEPS, curves, spread)
    frame = found.frame()
    shown = frame[frame["removed"].isin(_SHOWN)]
    rows = results.wide(shown, ("encoder", "pooler"), "removed", lambda value: number(value, times=100))
    content = {"sets": [one.shown for one in scored], "results": results.as_json(frame)}
    table = Table("Without the most frequent tokens, by how many are left out", rows, notes, left=2)
    return [table], content, [path] if curves else []


_SHOWN = (0, 2, 8, 16, 24, 34, 50, 100)


def _length(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet | None", out: Path) -> Any:
    import pandas as pd

    from tasks.benchmarks import length_bias, own_pairs, results
    from tasks.benchmarks.results import Table, between, numbers

    if given.pairs is not None:
        pairs = own_pairs.read(given.pairs, seed=given.seed)
    else:
        assert base is not None
        pairs = own_pairs.Pairs(f"{base.shown} test", base.pairs, base.gold, base.skipped)
    found, tables = results.Results(), []
    how = {"seed": given.seed, "resamples": given.resamples}
    for one in loaded:
        for pooler in one.poolers:
            system, name = options.System(one.name, pooler), f"{one.name}, {pairs.name}"
            added = tuple(given.append or length_bias.ADDED)
            for shift in length_bias.measure(one.encoder, pooler, pairs, added, name=name, **how):
                for measure, (value, draws) in shift.measures.items():
                    found.add(system, measure, repr(shift.added), value, draws, rows=len(pairs.texts))

            def column(measure: str, system: options.System = system) -> pd.DataFrame:
                return found.frame(measure, system)

            shown = {
                "appended": column("cosine")["set"],
                "cosine": numbers(column("cosine")["value"], 3),
                "cosine then": numbers(column("cosine then")["value"], 3),
                "its change, 95%": between(column("change"), 3, sign=True),
                "lengths nearer": numbers(column("lengths nearer")["value"], 3, sign=True),
                "lengths apart": numbers(column("lengths apart")["value"], 3, sign=True),
                "ρ × 100": numbers(column("spearman")["value"], times=100),
                "ρ then": numbers(column("spearman then")["value"], times=100),
                "change of ρ, 95%": between(column("spearman change"), times=100, sign=True),
            }
            rows = pd.DataFrame({head: list(cells) for head, cells in shown.items()})
            note = (
                "Appended to each second sentence. Lengths nearer, apart: mean change of the cosine where the lengths "
                "in tokens come closer, or drift apart; a length bias gains in the first and loses in the second."
            )
            title = f"Length bias of {one.name}, {pooler}: {pairs.name}, {len(pairs.texts):,} pairs"
            tables.append(Table(title, rows, (note,)))
    apart = found.differences(options.references(loaded), "change")
    title = f"Change of the cosine, {pairs.name}"
    tables += results.difference_tables(title, apart, digits=3, verdict=False, column="appended")
    content = {"pairs": pairs.name, "count": len(pairs.texts), "skipped": pairs.skipped}
    content |= {"results": results.as_json(found.frame()), "differences": results.as_json(apart)}
    return tables, content, []


def _weat(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet | None", out: Path) -> Any:
    import pandas as pd

    from tasks.benchmarks import figures, results, weat
    from tasks.benchmarks.results import Table, number, numbers

    found = results.Results()
    for one in loaded:
        for pooler in one.poolers:
            tests = weat.measure(one.encoder, pooler, seed=given.seed, name=one.name)
            for name, test in tests.items():
                found.add(options.System(one.name, pooler), "effect", name, test.effect, p=test.p)
    frame = found.frame()
    columns: dict[str, list[str]] = {"test": frame["set"].unique().tolist()}
    for (encoder, pooler), rows in frame.groupby(["encoder", "pooler"], sort=False):
        columns[f"d ({encoder}, {pooler})"] = numbers(rows["value"], sign=True)
        columns[f"p ({encoder}, {pooler})"] = ["< 0.0001" if p < 1e-4 else number(p, 4) for p in rows["p"]]
    notes = (
        "d: effect size in standard deviations; above 0 the first targets stand nearer the first attributes. p: "
        "one-sided, by permutation, not corrected for ten tests. Words are encoded as sentences of one word.",
    )
    path = out / "probes-weat"
    sizes = {f"{key[0]}, {key[1]}": list(rows["value"])
             for key, rows in frame.groupby(["encoder", "pooler"], sort=False)}  # fmt: skip
    figures.associations(path, columns["test"], sizes)
    table = Table("Word embedding association tests (Caliskan et al. 2017)", pd.DataFrame(columns), notes)
    return [table], {"results": results.as_json(frame)}, [path]


_RUN: dict[str, Any] = {"geometry": _geometry, "frequency": _frequency, "length": _length, "weat": _weat}


if __name__ == "__main__":
    cli.run(main)
