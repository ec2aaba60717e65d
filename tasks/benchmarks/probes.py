"""Probes of an encoder's space: alignment, uniformity, isotropy, frequent tokens, length bias, word associations.

python -m tasks.benchmarks.probes --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.probes --encoder minilm runs/cbcl --probes geometry,weat --data DIR
python -m tasks.benchmarks.probes --encoder minilm --probes length --pairs my-pairs.tsv --append ' and so on'
"""

import argparse
import sys
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.files import present
from minbert.training import cli
from tasks.benchmarks import options, sets

if TYPE_CHECKING:
    from tasks.benchmarks.options import Loaded
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
    from tasks.benchmarks import tables

    needs = "geometry" in chosen or "frequency" in chosen or ("length" in chosen and given.pairs is None)
    folder = start.data_folder(given.data) if needs else None
    base = sets.read(folder, ["STS-B"])[0] if folder is not None else None
    loaded = options.load(given)
    out = options.out_folder(given, loaded)
    shown: list[tables.Table] = []
    pictures: list[Path] = []
    results: dict[str, Any] = {
        "suite": "probes", "command": command, "precision": loaded[0].encoder.precision, "seed": given.seed,
        "resamples": given.resamples, "encoders": {one.name: str(one.folder) for one in loaded},
    }  # fmt: skip
    for name in chosen:
        made, numbers, paths = _RUN[name](given, loaded, base, out)
        results[name] = numbers
        shown += made
        pictures += paths
    tables.write(out, "probes", "Probes of the space of sentences", shown, results, pictures)
    return results


def _geometry(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet", out: Path) -> Any:
    from tasks.benchmarks import figures, geometry, paired
    from tasks.benchmarks.tables import Table, number
    from tasks.benchmarks.vectors import Bank
    from tasks.contrastive.validation import unit

    bank = Bank.of(loaded, (text for pair in base.pairs for text in pair))
    numbers, groups, rows, distances = {}, {}, [], {}
    for system in options.systems(loaded):
        first, second = (unit(bank.of_texts(system, [pair[side] for pair in base.pairs])) for side in (0, 1))
        found = geometry.measure(base, first, second, unit(bank.vectors[system]))
        numbers[system.name] = asdict(found)
        distances[system] = geometry.distances(base, first, second)
        groups[system.name] = geometry.groups(base, first, second, seed=given.seed)
        share = f"{number(found.top_singular_share, 1, times=100)}%"
        cells = (number(value, 3) for value in (found.alignment, found.uniformity, found.mean_cosine))
        rows.append((system.encoder, system.pooler, *cells, share))
    head = ("encoder", "pooler", "alignment", "uniformity", "mean cosine", "top singular share")
    notes = (
        "Alignment: mean squared distance of pairs scored 4 or more, less is better. Uniformity: ln of the mean of "
        "exp(−2 distance²), less is more even.",
        "Isotropy: the mean cosine of any two sentences, and the largest squared singular value's share of all.",
    )
    path = out / "probes-cosines"
    figures.histogram(path, groups)
    how = {"seed": given.seed, "resamples": given.resamples}
    apart: paired.Found = {
        (one, other): [paired.difference(base.shown, distances[one], distances[other], "alignment", **how)]
        for one, other in options.references(loaded)
    }
    tables = [Table(f"Geometry, {base.shown} test", head, tuple(rows), notes, left=2)]
    content = {"systems": numbers, "differences": paired.as_json(apart)}
    return [*tables, *paired.tables("Alignment", apart, "set")], content, [path]


def _frequency(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet", out: Path) -> Any:
    from minbert.training import start
    from tasks.benchmarks import figures, frequency
    from tasks.benchmarks.tables import Table, number

    folder = start.data_folder(given.data)
    scored = sets.read(folder, sets.named(given.sets or "STS-B", folder))
    counted = [text for pair in base.pairs for text in pair]
    numbers: dict[str, list[float | None]] = {}
    for one in loaded:
        for pooler in dict.fromkeys(name if name in frequency.LAYERS else "mean" for name in one.poolers):
            numbers[f"{one.name}, {pooler}"] = frequency.curve(
                one.encoder, pooler, scored, counted, frequency.STEPS, name=one.name
            )
    rows = [
        (name, *(number(values[frequency.STEPS.index(k)], times=100) for k in _SHOWN))
        for name, values in numbers.items()
    ]
    spread = f"mean of {len(scored)} sets" if len(scored) > 1 else scored[0].shown
    notes = (
        f"Spearman × 100 (protocol all), {spread}; frequencies from {base.shown} test, [CLS] and [SEP] counted too.",
        "Poolers that are no mean of tokens are probed as `mean`.",
    )
    curves = {name: [value for value in values if value is not None] for name, values in numbers.items()}
    whole = {name: values for name, values in curves.items() if len(values) == len(frequency.STEPS)}
    path = out / "probes-frequent-tokens"
    if whole:
        figures.removed_tokens(path, frequency.STEPS, whole, spread)
    head = ("tokens left out", *(str(k) for k in _SHOWN))
    content = {"removed": list(frequency.STEPS), "sets": [one.shown for one in scored], "spearman": numbers}
    return [Table("Without the most frequent tokens", head, tuple(rows), notes)], content, [path] if whole else []


_SHOWN = (0, 2, 8, 16, 24, 34, 50, 100)


def _length(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet | None", out: Path) -> Any:
    from tasks.benchmarks import length_bias, own_pairs, paired
    from tasks.benchmarks.tables import Table, between, number

    if given.pairs is not None:
        pairs = own_pairs.read(given.pairs, seed=given.seed)
    else:
        assert base is not None
        pairs = own_pairs.Pairs(f"{base.shown} test", base.pairs, base.gold, base.skipped)
    added = tuple(given.append or length_bias.ADDED)
    how = {"seed": given.seed, "resamples": given.resamples}
    made, shifts = [], {}
    for one in loaded:
        for pooler in one.poolers:
            name = f"{one.name}, {pairs.name}"
            found = length_bias.measure(one.encoder, pooler, pairs, added, name=name, **how)
            shifts[options.System(one.name, pooler)] = found
            rows = [
                (repr(shift.added), number(shift.before, 3), number(shift.after, 3),
                 between(shift.change, 3, sign=True), number(shift.nearer, 3, sign=True),
                 number(shift.apart, 3, sign=True), number(shift.spearman_before, times=100),
                 number(shift.spearman_after, times=100), between(shift.spearman_change, times=100, sign=True))
                for shift in found
            ]  # fmt: skip
            head = ("appended", "cosine", "then", "change, 95%", "lengths nearer", "lengths apart", "ρ × 100", "then",
                    "change, 95%")  # fmt: skip
            note = (
                "Appended to each second sentence. Lengths nearer, apart: mean change of the cosine where the lengths "
                "in tokens come closer, or drift apart; a length bias gains in the first and loses in the second."
            )
            title = f"Length bias of {one.name}, {pooler}: {pairs.name}, {len(pairs.texts):,} pairs"
            made.append(Table(title, head, tuple(rows), (note,)))
    apart: paired.Found = {
        (one, other): [
            paired.difference(repr(a.added), a.changes, b.changes, length_bias.PURPOSE, **how)
            for a, b in zip(shifts[one], shifts[other], strict=True)
        ]
        for one, other in options.references(loaded)
    }
    made += paired.tables(f"Change of the cosine, {pairs.name}", apart, "appended")
    numbers = {system.name: [shift.as_json() for shift in found] for system, found in shifts.items()}
    content = {"pairs": pairs.name, "count": len(pairs.texts), "skipped": pairs.skipped, "systems": numbers}
    return made, {**content, "differences": paired.as_json(apart)}, []


def _weat(given: argparse.Namespace, loaded: "list[Loaded]", base: "ScoredSet | None", out: Path) -> Any:
    from tasks.benchmarks import figures, weat
    from tasks.benchmarks.tables import Table, number
    from tasks.benchmarks.weat_words import TESTS

    found = {
        f"{one.name}, {pooler}": weat.measure(one.encoder, pooler, seed=given.seed, name=one.name)
        for one in loaded
        for pooler in one.poolers
    }
    heads = [cell for name in found for cell in (f"d ({name})", "p")]
    rows = [
        (name, *(cell for tests in found.values()
                 for cell in (number(tests[name].effect, sign=True), _p(tests[name].p))))
        for name in TESTS
    ]  # fmt: skip
    notes = (
        "d: effect size in standard deviations; above 0 the first targets stand nearer the first attributes. p: "
        "one-sided, by permutation, not corrected for ten tests. Words are encoded as sentences of one word.",
    )
    effects = {name: [tests[one].effect for one in TESTS] for name, tests in found.items()}
    sizes = {name: [nan if one is None else one for one in some] for name, some in effects.items()}
    path = out / "probes-weat"
    figures.associations(path, list(TESTS), sizes)
    numbers = {name: {one: asdict(test) for one, test in tests.items()} for name, tests in found.items()}
    table = Table("Word embedding association tests (Caliskan et al. 2017)", ("test", *heads), tuple(rows), notes)
    return [table], numbers, [path]


def _p(value: float | None) -> str:
    from tasks.benchmarks.tables import number

    return "< 0.0001" if value is not None and value < 1e-4 else number(value, 4)


_RUN: dict[str, Any] = {"geometry": _geometry, "frequency": _frequency, "length": _length, "weat": _weat}


if __name__ == "__main__":
    cli.run(main)
