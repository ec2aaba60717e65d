"""How hard a triplet is for a frozen encoder: cosines, computed once and kept on disk.

python -m tasks.contrastive.scoring show --premise "A man pulls on a rope ." --weights minilm --triplets FILE

Axes: N triplets, D hidden. Importing this module loads no torch.
"""

import argparse
import hashlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minbert.errors import UserError
from minbert.files import cached_folder, present
from minbert.training.cli import Parser
from minbert.training.plan import drawn
from tasks.contrastive.curriculum import GROUPS, Scored, Similarities, difficulty, rarity
from tasks.contrastive.settings import POOLERS, TEXTS, TRIPLETS, ContrastiveSettings

if TYPE_CHECKING:
    from minbert.encode import Encoder
    from tasks.contrastive.triplets import Triplets
    from tasks.examples import Examples

_FILE = "cosines.npy"


def load(
    source: str | Path, pooler: str = "", *, precision: str = "auto", device: str | None = None
) -> "tuple[Encoder, str]":
    """An encoder to score with (`minilm`, a folder, a hub name), and the hash of its weights.

    The pooler is the one the folder names, unless given. Raises `UserError` where it cannot be loaded.
    """
    from minbert import weights
    from minbert.encode import Encoder

    folder = weights.resolve(str(source))
    return Encoder.load(folder, pooler=pooler or None, device=device, precision=precision), weights.sha256(folder)


def similarities(
    encoder: "Encoder", triplets: "Examples", weights_sha256: str, rows: np.ndarray | None = None
) -> Similarities:
    """Cosines of all triplets, or of some `rows`, under the frozen encoder, dropout off (SelfCCL, section 4.3.1).

    A second call reads them from the cache.

    The cache is keyed by the hashes of the tokens, of weights and vocabulary, by rows, pooler, length, number format,
    device and torch's version. If two processes build it at once, both use the numbers of the first.
    """
    import torch

    def build(folder: Path) -> dict[str, Any]:
        found = cosines(encoder, triplets, rows)
        np.save(folder / _FILE, np.stack([found.positive, found.negative]))
        return {}

    config = replace(encoder.model.config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    tokens = [triplets.cache.hashes["ids"], triplets.cache.hashes["ends"], encoder.tokenizer.fingerprint]
    chosen = np.arange(len(triplets)) if rows is None else rows.astype(np.int64)
    how = (encoder.pooler, encoder.precision, triplets.max_length, config, encoder.model.device, torch.__version__)
    key = (*tokens, hashlib.sha256(chosen.tobytes()).hexdigest(), weights_sha256, *how)
    positive, negative = np.load(cached_folder("scores", key, build)[0] / _FILE)
    return Similarities(positive, negative)


def cosines(encoder: "Encoder", triplets: "Examples", rows: np.ndarray | None = None) -> Similarities:
    """Cosines of all triplets, or of some `rows`, under the encoder as it is now, dropout off and without the cache.

    Each distinct text is encoded once: the vectors take 4 D bytes for each.
    """
    encoder.model.eval()
    chosen = range(len(triplets)) if rows is None else rows.tolist()
    numbers: dict[tuple[int, ...], int] = {}
    table = np.array(
        [
            [numbers.setdefault(tuple(triplets.sentence(row, column)), len(numbers)) for column in range(3)]
            for row in chosen
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    vectors = encoder.encode_ids(list(numbers), progress=sys.stderr.isatty())
    return _of_vectors(vectors, table)


def _of_vectors(vectors: np.ndarray, table: np.ndarray) -> Similarities:
    """Cosines of triplets given as numbers of vectors, [N, 3]; `vectors` [M, D] are normalised in place.

    A block of triplets at a time, so that no second copy of all vectors is made.
    """
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found = np.empty((2, len(table)), dtype=np.float32)
    for start in range(0, len(table), 8192):
        block = table[start : start + 8192]
        anchor = vectors[block[:, 0]]
        for side in (0, 1):
            found[side, start : start + len(block)] = (anchor * vectors[block[:, side + 1]]).sum(1)
    return Similarities(found[0], found[1])


def of_texts(encoder: "Encoder", texts: Sequence[Sequence[str]]) -> Similarities:
    """Cosines of a few triplets given as texts."""
    numbers: dict[str, int] = {}
    table = np.array([[numbers.setdefault(text, len(numbers)) for text in row] for row in texts], dtype=np.int64)
    vectors = encoder.encode(list(numbers))
    return _of_vectors(vectors, table)


def score(settings: ContrastiveSettings, encoder: "Encoder", examples: "Examples", weights_sha256: str) -> Scored:
    """Draw the rows to train on, and score triplets by the starting encoder, or by `--scorer`, where an order asks."""
    limit = 0 if settings.objective.data_kind == TEXTS else settings.data.limit  # of texts it has been drawn already
    rows = drawn(len(examples), limit, settings.training.seed)
    if settings.by_cosine:
        cosines = similarities(*_scorer(settings, encoder, weights_sha256, examples), rows)
        return Scored(rows, cosines)
    how, cache = settings.curriculum, examples.cache
    if settings.objective.data_kind != TRIPLETS or how.order in ("none", "random"):
        return Scored(rows)
    if how.technique == "length":
        return Scored(rows, hardness=cache.token_counts().sum(1)[rows])
    texts = ([cache.text(row, column) for column in range(cache.columns)] for row in range(len(cache)))
    return Scored(rows, hardness=rarity(texts)[rows])  # rarity is that among all texts


def _scorer(
    settings: ContrastiveSettings, encoder: "Encoder", weights_sha256: str, examples: "Examples"
) -> "tuple[Encoder, Examples, str]":
    """The encoder that scores, the triplets in its vocabulary, and the hash of its weights."""
    from minbert import token_cache
    from minbert.encode import Encoder
    from minbert.training import start

    how = settings.curriculum
    pooler = how.scorer_pooler or settings.encoder.pooler
    if not how.scorer:
        scorer = Encoder(encoder.model, encoder.tokenizer, pooler, precision=encoder.precision)
        return scorer, examples, weights_sha256
    on = {"precision": settings.training.precision, "device": str(encoder.model.device)}
    scorer, sha256 = load(how.scorer, how.scorer_pooler, **on)
    shorter = replace(examples, max_length=min(examples.max_length, scorer.max_length))
    if scorer.tokenizer.fingerprint == encoder.tokenizer.fingerprint:
        return scorer, shorter, sha256
    start.warn(f"--scorer {how.scorer}: another vocabulary, so the triplets are tokenised for it as well")
    vocabulary = scorer.tokenizer
    cache = token_cache.retokenised(examples.cache, vocabulary)
    return scorer, replace(shorter, cache=cache, cls=vocabulary.cls, sep=vocabulary.sep), sha256


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m tasks.contrastive.scoring", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="show")
    show = commands.add_parser(
        "show",
        help="a premise's triplets with their difficulty",
        description="A premise's triplets with cosines, gap and difficulty, the easiest first (SelfCCL, Table 2).",
        allow_abbrev=False,
    )
    show.add_argument(
        "--premise", metavar="TEXT", required=True, help="the anchor (case and white space do not matter)"
    )
    show.add_argument(
        "--triplets", metavar="FILE", required=True, help="labelled pairs (all their triplets are made), or triplets"
    )
    show.add_argument(
        "--weights",
        metavar="NAME",
        default="bert-base-uncased",
        help="minilm, a folder, or a hub name (default: %(default)s)",
    )
    show.add_argument("--pooler", choices=POOLERS, metavar="NAME", default="", help="default: as the folder says")
    show.add_argument("--margin", metavar="X", type=float, default=0.2, help="of easy triplets (default: %(default)s)")
    show.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto", help="number format")
    return parser.parse_args(arguments)


def every_triplet(path: Path) -> "Triplets":
    """The triplets of a file of triplets, or every one that a file of labelled pairs gives."""
    from tasks import readers
    from tasks.contrastive import data, triplets

    if not data.holds_triplets(present(path)):
        return triplets.from_pairs([readers.open_as(path, "nli").rows], "cross")
    opened = readers.open_as(path, "triplet")
    if opened.texts < 3:
        raise UserError(f"{path}: rows without a hard negative have no gap to show")
    return triplets.checked([opened.rows])


def of_premise(found: "Triplets", premise: str) -> list[tuple[str, ...]]:
    """The texts of a premise's triplets; `UserError` names the three nearest premises where there is none."""
    from tasks.contrastive.triplets import fold

    wanted = fold(premise)
    rows = [row for row in found.table.tolist() if fold(found.texts[row[0]]) == wanted]
    if not rows:
        near = _nearest(wanted, [found.texts[number] for number in np.unique(found.table[:, 0])])
        raise UserError(f"--premise: no triplet has {premise!r} as its anchor; the nearest are {', '.join(near)}")
    return [tuple(found.texts[number] for number in row) for row in rows]


def _nearest(wanted: str, premises: Sequence[str]) -> list[str]:
    """Three texts like `wanted`: by difflib among the 100 with the largest share of common words."""
    import difflib
    import heapq

    words = set(wanted.split())

    def common(text: str) -> float:
        own = set(text.lower().split())
        return len(words & own) / max(len(words | own), 1)

    def alike(text: str) -> float:
        return difflib.SequenceMatcher(None, wanted, text.lower(), autojunk=False).ratio()

    return [repr(text) for text in heapq.nlargest(3, heapq.nlargest(100, premises, key=common), key=alike)]


def table(texts: Sequence[Sequence[str]], scores: Similarities, margin: float, width: int = 110) -> str:
    """A premise's triplets as lines of at most `width` columns, the largest gap first (SelfCCL, Table 2)."""
    import textwrap

    groups = difficulty(scores.positive, scores.negative, margin)
    longest = max(len(text) for row in texts for text in row[1:])
    cell = max(20, min(longest, (width - 39) // 2))
    lines = textwrap.wrap(texts[0][0], width)
    head = f"{'entailment':{cell}}  {'contradiction':{cell}}  {'cos+':>6} {'cos-':>6} {'gap':>6}  difficulty"
    lines += ["", head, "-" * len(head)]
    for row in np.argsort(-scores.gap, kind="stable"):
        left, right = (textwrap.wrap(text, cell) for text in texts[row][1:])
        numbers = f"{scores.positive[row]:6.3f} {scores.negative[row]:6.3f} {scores.gap[row]:6.3f}"
        for line in range(max(len(left), len(right))):
            pair = [side[line] if line < len(side) else "" for side in (left, right)]
            end = f"{numbers}  {GROUPS[groups[row]]}" if line == 0 else ""
            lines.append(f"{pair[0]:{cell}}  {pair[1]:{cell}}  {end}".rstrip())
    counts = ", ".join(f"{(groups == group).sum()} {name}" for group, name in enumerate(GROUPS))
    return "\n".join([*lines, "", f"{len(texts)} triplet{'s'[: len(texts) != 1]}: {counts} (margin {margin:g})"])


def main() -> None:
    """The command line of this module."""
    arguments = _parse(sys.argv[1:])
    from minbert import weights  # late, as it imports torch

    texts = of_premise(every_triplet(Path(arguments.triplets)), arguments.premise)
    folder = weights.resolve(arguments.weights, "--weights")
    encoder, _ = load(folder, arguments.pooler, precision=arguments.precision)
    width = shutil.get_terminal_size((110, 24)).columns
    print(table(texts, of_texts(encoder, texts), arguments.margin, width))
    print(f"cosines by {arguments.weights}, {encoder.pooler} pooling, {encoder.precision}, dropout off")


if __name__ == "__main__":
    from minbert.training import cli

    cli.run(main)
