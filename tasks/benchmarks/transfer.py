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
    from tasks.benchmarks.results import Results, Table
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
    from tasks import intervals
    from tasks.benchmarks import results
    from tasks.benchmarks.vectors import Bank

    folder = start.data_folder(given.data)
    data = {name: read(folder, name, given.folds) for name in chosen}
    loaded = options.load(given)
    texts = (text for rows, _ in data.values() for split in rows.values() for row in split for text in row.texts)
    bank, found = Bank.of(loaded, texts), results.Results()
    for system in options.systems(loaded):
        for name, (rows, _) in data.items():
            one = _classify(bank, system, name, rows, given.folds)
            how = {"seed": given.seed, "resamples": given.resamples}
            draws = intervals.bootstrap("accuracy", one.predicted[None], one.gold, name, **how)[0]
            more = {"rows": len(one.gold), "dev_accuracy": one.dev, "folds": list(one.folds), "C": list(one.chosen)}
            found.add(system, "accuracy", name, one.accuracy, draws, **more)
            print(f"{system.name}: {name} {100 * one.accuracy:.2f}", file=sys.stderr)
    found.add_average("accuracy")
    apart = found.differences(options.references(loaded), "accuracy")
    tables = [*_tables(found, given), *results.difference_tables("Accuracy × 100", apart, times=100)]
    content = {
        **options.account("transfer", command, given, loaded, folder),
        "folds": given.folds,
        "sets": {
            name: {"rows": {split: len(some) for split, some in rows.items()}, "skipped": skipped}
            for name, (rows, skipped) in data.items()
        },
        "results": results.as_json(found.frame()),
        "differences": results.as_json(apart),
    }
    results.write(options.out_folder(given, loaded), "transfer", "Transfer", tables, content, [])
    return content


def _tables(found: "Results", given: argparse.Namespace) -> "list[Table]":
    """All systems side by side, then each by set with its interval, its spread over folds and the C it chose."""
    import numpy as np
    import pandas as pd

    from tasks.benchmarks.results import AVERAGE, MISSING, Table, between, number, numbers, wide

    note = (
        f"MR, CR, SUBJ, MPQA: {given.folds}-fold cross-validation, C chosen inside each fold. TREC, MRPC: C chosen by "
        f"{given.folds} folds of the training rows, fixed test. SST2: C chosen on dev, fixed test. The classifier is "
        "scikit-learn's logistic regression."
    )
    frame = found.frame()
    rows = wide(frame, ("encoder", "pooler"), "set", lambda value: number(value, times=100))
    made = [Table("Transfer, accuracy × 100", rows, (note,), left=2)]
    each = frame[frame["set"] != AVERAGE]
    for (encoder, pooler), one in each.groupby(["encoder", "pooler"], sort=False) if given.resamples else ():
        spreads = [float(np.std(folds, ddof=1)) if len(folds) > 1 else None for folds in one["folds"]]
        shown = {
            "set": one["set"],
            "test rows": [f"{count:,.0f}" for count in one["rows"]],
            "accuracy": numbers(one["value"], times=100),
            "95% interval": between(one, times=100),
            "deviation over folds": [MISSING if one is None else number(one, times=100) for one in spreads],
            "C": ["/".join(f"{c:g}" for c in sorted(set(chosen))) for chosen in one["C"]],
        }
        made.append(Table(f"{encoder}, pooler {pooler}", pd.DataFrame(shown)))
    return made


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
