"""Transfer: logistic regression on frozen sentence vectors for seven classification tasks, in SentEval's protocol.

python -m tasks.benchmarks.transfer --encoder runs/cbcl/encoder --data DIR
python -m tasks.benchmarks.transfer --encoder minilm --compare runs/cbcl --sets TREC,MRPC --data DIR
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.errors import UserError
from minbert.training import cli
from tasks.benchmarks import options

if TYPE_CHECKING:
    from minbert.token_cache import Row
    from tasks.benchmarks.classifiers import Outcome
    from tasks.benchmarks.options import System
    from tasks.benchmarks.vectors import Bank

SETS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, classify, and write tables and JSON."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = options.parser("transfer", (__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sets", "--tasks", dest="sets", default="", metavar="NAMES",
        help=f"{', '.join(SETS)}, several with commas (default: all seven; --tasks is the older name)",
    )  # fmt: skip
    parser.add_argument("--folds", type=int, default=10, metavar="N", help="of the cross-validations (default: 10)")
    given = parser.parse_args(words)
    options.check(given)
    chosen = options.chosen(given.sets, SETS, "--sets") or list(SETS)
    if given.folds < 2:
        raise UserError(f"--folds: {given.folds} is less than 2")
    run(given, chosen, options.command("transfer", words))


def read(folder: Path, name: str, folds: int) -> "tuple[dict[str, list[Row]], dict[str, int]]":
    """The rows of a set by split, and how many of each were skipped; `UserError` where folds would be too small."""
    from collections import Counter

    from minbert.token_cache import Row
    from tasks.readers import senteval

    rows, skipped = {}, {}
    for split, found in senteval.classification(folder, name).items():
        every = list(found)
        rows[split] = [row for row in every if isinstance(row, Row)]
        skipped[split] = len(every) - len(rows[split])
        counts = Counter(row.label for row in rows[split])
        if split in ("all", "train") and (len(counts) < 2 or min(counts.values()) < folds):
            raise UserError(f"{name} {split}: {folds} folds need as many rows of every class (--folds)")
    return rows, skipped


def run(given: argparse.Namespace, chosen: list[str], command: str) -> dict[str, Any]:
    """Classify with every encoder; returns what `transfer.json` holds."""
    from minbert.training import start
    from tasks.benchmarks import tables, transfer_results
    from tasks.benchmarks.vectors import Bank

    folder = start.data_folder(given.data)
    data = {name: read(folder, name, given.folds) for name in chosen}
    loaded = options.load(given)
    texts = (text for rows, _ in data.values() for split in rows.values() for row in split for text in row.texts)
    bank = Bank.of(loaded, texts)
    found: dict[System, dict[str, Outcome]] = {}
    for system in options.systems(loaded):
        found[system] = {}
        for name, (rows, _) in data.items():
            found[system][name] = _classify(bank, system, name, rows, given.folds)
            print(f"{system.name}: {name} {100 * found[system][name].accuracy:.2f}", file=sys.stderr)
    how = {"seed": given.seed, "resamples": given.resamples}
    drawn = {name: transfer_results.draws(found, name, **how) for name in chosen} if given.resamples else {}
    pairs = options.references(loaded)
    shown = [
        *transfer_results.tables(found, drawn, given.folds),
        *transfer_results.difference_tables(found, drawn, pairs),
    ]
    results = {
        "suite": "transfer", "command": command, "data": str(folder), "precision": loaded[0].encoder.precision,
        "seed": given.seed, "resamples": given.resamples, "folds": given.folds,
        "encoders": {one.name: str(one.folder) for one in loaded},
        "sets": {name: {"rows": {split: len(some) for split, some in rows.items()}, "skipped": skipped}
                 for name, (rows, skipped) in data.items()},
        "systems": transfer_results.as_json(found, drawn),
        "differences": transfer_results.differences_as_json(found, drawn, pairs),
    }  # fmt: skip
    tables.write(options.out_folder(given, loaded), "transfer", "Transfer", shown, results, [])
    return results


def _classify(bank: "Bank", system: "System", name: str, rows: "Mapping[str, Sequence[Row]]", folds: int) -> "Outcome":
    import numpy as np

    from tasks.benchmarks import classifiers

    x, y = {}, {}
    for split, some in rows.items():
        sides = [bank.of_texts(system, [row.texts[side] for row in some]) for side in range(len(some[0].texts))]
        features = classifiers.pair_features(*sides) if len(sides) == 2 else sides[0]
        x[split], y[split] = features.astype(np.float64), np.array([row.label for row in some], dtype=np.int64)
    if "all" in x:
        return classifiers.nested(x["all"], y["all"], folds)
    if "dev" in x:
        return classifiers.with_dev(x["train"], y["train"], x["dev"], y["dev"], x["test"], y["test"])
    return classifiers.fixed_test(x["train"], y["train"], x["test"], y["test"], folds)


if __name__ == "__main__":
    cli.run(main)
