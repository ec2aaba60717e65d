"""The triplets of a premise, with their cosines, gap and difficulty under an encoder (SelfCCL, Table 2).

python -m tasks.contrastive show --premise "A man pulls on a rope ." --weights minilm --triplets FILE
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from minbert import weights
from minbert.encoder import Encoder
from minbert.errors import UserError, format_count
from minbert.files import expand_user
from minbert.pooling import NAMES as POOLERS
from minbert.train import cli
from minbert.train.settings import require_range
from minbert.train.start import saved_pooler
from tasks import readers
from tasks.contrastive import scoring, triplets
from tasks.contrastive.curriculum import GROUPS, difficulty
from tasks.examples import distinct
from tasks.tables import Table, numbers

Texts = Sequence[tuple[str, ...]]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser(prog="python -m tasks.contrastive", doc=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="show")
    description = "a premise's triplets with cosines, gap and difficulty, the easiest first (SelfCCL, Table 2)"
    show = commands.add_parser("show", help=description, description=description)
    usual = "(default: %(default)s)"
    show.add_argument("--premise", required=True, help="the anchor (case and white space do not matter)")
    show.add_argument("--triplets", required=True, help="labelled pairs (all their triplets are made), or triplets")
    show.add_argument("--weights", default="bert-base-uncased", help=f"minilm, a folder, or a hub name {usual}")
    show.add_argument("--pooler", choices=POOLERS, metavar="NAME", help="default: as the folder says, else pooler")
    show.add_argument("--max-length", type=int, default=32, metavar="N", help=f"longest sentence in tokens {usual}")
    show.add_argument("--margin", type=float, default=0.2, help=f"of easy triplets {usual}")
    show.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto", help="number format")
    options = parser.parse_args(arguments)
    require_range(options, "margin", 0)
    return options


def triplets_of(path: Path, premise: str) -> Texts:
    """The texts of a premise's triplets in a file of triplets, or of all that a file of labelled pairs gives.

    Raises `UserError` if there are none, or if the file has no hard negatives.
    """
    kind = readers.kind_of(path, ("triplet", "nli"))
    content = readers.open_as(path, kind, "train")
    if kind == "nli":
        merged = triplets.from_pairs([content.rows], "cross")
    elif content.num_texts == 3:
        merged = triplets.from_triplets([content.rows])
    else:
        raise UserError(f"{path}: rows without a hard negative have no gap to show")
    texts = [row.texts for row in merged.triplets if triplets.fold(row.texts[0]) == triplets.fold(premise)]
    if not texts:
        raise UserError(f"--premise: no triplet has {premise!r} as its anchor")
    return texts


def table(texts: Texts, positive: np.ndarray, negative: np.ndarray, margin: float) -> Table:
    """A premise's triplets with their cosines, the largest gap first (SelfCCL, Table 2)."""
    gap = positive - negative
    groups = difficulty(positive, negative, margin)
    rows = pd.DataFrame([row[1:] for row in texts], columns=["entailment", "contradiction"]).assign(
        **{"cos+": numbers(positive, 3), "cos-": numbers(negative, 3), "gap": numbers(gap, 3)},
        difficulty=[GROUPS[group] for group in groups],
    )
    counts = ", ".join(f"{(groups == group).sum()} {name}" for group, name in enumerate(GROUPS))
    note = f"{format_count(len(texts), 'triplets')}: {counts} (margin {margin:g})"
    return Table(texts[0][0], rows.iloc[np.argsort(-gap, kind="stable")], (note,), left=2)


def main() -> None:
    """The command line of this module."""
    arguments = parse(sys.argv[1:])
    texts = triplets_of(expand_user(arguments.triplets), arguments.premise)
    folder = weights.resolve(arguments.weights, "--weights")
    pooler = arguments.pooler or saved_pooler(folder, arguments.weights) or "pooler"  # as training does
    encoder = Encoder.load(folder, pooler=pooler, precision=arguments.precision, max_length=arguments.max_length)
    distinct_texts, index = distinct(chain.from_iterable(texts))
    # without the folder's prompt and the layers over the pooled vector, as training does
    rows, _ = encoder.rows(distinct_texts, "")
    positive, negative = scoring.cosines(encoder.encode_ids(rows), index)
    print(table(texts, positive, negative, arguments.margin).terminal())
    print(f"cosines by {arguments.weights}, {encoder.pooler} pooling, {encoder.precision}, dropout off")


if __name__ == "__main__":
    cli.run(main)
