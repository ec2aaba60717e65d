"""How hard a triplet is for a frozen encoder: cosines, computed once and kept on disk.

python -m tasks.contrastive.scoring show --premise "A man pulls on a rope ." --weights minilm --triplets FILE

Axes: N triplets, D hidden. Importing this module loads no torch.
"""

import argparse
import difflib
import hashlib
import heapq
import shutil
import sys
import textwrap
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from tabulate import tabulate

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
K = TypeVar("K", bound=Hashable)


def score(settings: ContrastiveSettings, encoder: "Encoder", examples: "Examples", weights_sha256: str) -> Scored:
    """Draw the rows to train on, and score triplets by the starting encoder, or by `--scorer`, where an order asks."""
    limit = 0 if settings.loss.data_kind == TEXTS else settings.data.limit  # of texts it has been drawn already
    rows = drawn(len(examples), limit, settings.training.seed)
    if settings.by_cosine:
        return Scored(rows, similarities(*_scorer(settings, encoder, weights_sha256, examples), rows))
    how, cache = settings.curriculum, examples.cache
    if settings.loss.data_kind != TRIPLETS or how.order in ("none", "random"):
        return Scored(rows)
    if how.technique == "length":
        return Scored(rows, hardness=cache.token_counts().sum(1)[rows])
    texts = ([cache.text(row, column) for column in range(cache.columns)] for row in range(len(cache)))
    return Scored(rows, hardness=rarity(texts)[rows])  # rarity is that among all texts


def _scorer(
    settings: ContrastiveSettings, encoder: "Encoder", weights_sha256: str, examples: "Examples"
) -> "tuple[Encoder, Examples, str]":
    """The encoder that scores, the triplets in its vocabulary, and the hash of its weights."""
    from minbert import token_cache, weights
    from minbert.encode import Encoder
    from minbert.training import start

    how = settings.curriculum
    if not how.scorer:
        pooler = how.scorer_pooler or settings.encoder.pooler
        return Encoder(encoder.model, encoder.tokenizer, pooler, precision=encoder.precision), examples, weights_sha256
    folder = weights.resolve(how.scorer)
    on: dict[str, Any] = {"precision": settings.training.precision, "device": encoder.model.device}
    scorer = Encoder.load(folder, pooler=how.scorer_pooler or None, **on)
    shorter = replace(examples, max_length=min(examples.max_length, scorer.max_length))
    if scorer.tokenizer.fingerprint != encoder.tokenizer.fingerprint:
        start.warn(f"--scorer {how.scorer}: another vocabulary, so the triplets are tokenised for it as well")
        vocabulary = scorer.tokenizer
        cache = token_cache.retokenised(examples.cache, vocabulary)
        shorter = replace(shorter, cache=cache, cls=vocabulary.cls, sep=vocabulary.sep)
    return scorer, shorter, weights.sha256(folder)


def similarities(
    encoder: "Encoder", triplets: "Examples", weights_sha256: str, rows: np.ndarray | None = None
) -> Similarities:
    """Cosines of all triplets, or of some `rows`, under the frozen encoder, dropout off (SelfCCL, section 4.3.1).

    A second call reads them from the cache. Of several ranks the first one scores.

    The cache is keyed by the hashes of the tokens, of weights and vocabulary, by rows, pooler, length, number format,
    device and torch's version.
    """
    import torch

    from minbert.training import ranks

    chosen = np.arange(len(triplets)) if rows is None else rows.astype(np.int64)

    def build(folder: Path) -> dict[str, Any]:
        found = cosines(encoder, triplets, chosen)
        np.save(folder / _FILE, np.stack([found.positive, found.negative]))
        return {}

    config = replace(encoder.model.config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    tokens = [triplets.cache.hashes["ids"], triplets.cache.hashes["ends"], encoder.tokenizer.fingerprint]
    how = (encoder.pooler, encoder.precision, triplets.max_length, config, encoder.model.device, torch.__version__)
    key = (*tokens, hashlib.sha256(chosen.tobytes()).hexdigest(), weights_sha256, *how)
    found = torch.zeros(2, len(chosen), device=encoder.model.device)
    if ranks.rank() == 0:
        found.copy_(torch.from_numpy(np.load(cached_folder("scores", key, build)[0] / _FILE)))
    positive, negative = ranks.of_first(found).cpu().numpy()
    return Similarities(positive, negative)


def cosines(encoder: "Encoder", triplets: "Examples", rows: np.ndarray) -> Similarities:
    """Cosines of some rows under the encoder as it is now, dropout off and without the cache.

    Each distinct text is encoded once: the vectors take 4 D bytes for each.
    """
    encoder.model.eval()
    texts, places = distinct(tuple(triplets.sentence(row, column)) for row in rows.tolist() for column in range(3))
    return _of_vectors(encoder.encode_ids(texts, progress=True), places)


def distinct(texts: Iterable[K]) -> tuple[list[K], np.ndarray]:
    """The different texts in order of appearance, and each text's number among them: int64 [texts]."""
    numbers: dict[K, int] = {}
    places = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), dtype=np.int64)
    return list(numbers), places


def encoded(encoder: "Encoder", texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Vectors of lists of token ids, divided among the ranks: float32 [M, D] on every rank."""
    import torch

    from minbert.training import ranks

    if ranks.world() == 1:
        return encoder.encode_ids(texts)
    places = ranks.share(np.arange(len(texts)))
    own, device = encoder.encode_ids([texts[place] for place in places]), encoder.model.device
    whole = ranks.gather(torch.from_numpy(own).to(device), torch.from_numpy(places).to(device), len(texts))
    return whole.cpu().numpy()


def _of_vectors(vectors: np.ndarray, places: np.ndarray) -> Similarities:
    """Cosines of triplets given as numbers of vectors, [3 N]; `vectors` [M, D] are normalised in place.

    A block of triplets at a time, so that no second copy of all vectors is made.
    """
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    table = places.reshape(-1, 3)
    found = np.empty((2, len(table)), dtype=np.float32)
    for start in range(0, len(table), 8192):
        block = table[start : start + 8192]
        anchor = vectors[block[:, 0]]
        for side in (0, 1):
            found[side, start : start + len(block)] = (anchor * vectors[block[:, side + 1]]).sum(1)
    return Similarities(found[0], found[1])


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m tasks.contrastive.scoring", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="show")
    about = "a premise's triplets with cosines, gap and difficulty, the easiest first (SelfCCL, Table 2)"
    show = commands.add_parser("show", help=about, description=about, allow_abbrev=False)
    usual = "(default: %(default)s)"
    show.add_argument("--premise", required=True, help="the anchor (case and white space do not matter)")
    show.add_argument("--triplets", required=True, help="labelled pairs (all their triplets are made), or triplets")
    show.add_argument("--weights", default="bert-base-uncased", help=f"minilm, a folder, or a hub name {usual}")
    show.add_argument("--pooler", choices=POOLERS, metavar="NAME", help="default: as the folder says")
    show.add_argument("--margin", type=float, default=0.2, help=f"of easy triplets {usual}")
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
    if rows:
        return [tuple(found.texts[number] for number in row) for row in rows]
    words = set(wanted.split())

    def common(text: str) -> float:
        own = set(text.lower().split())
        return len(words & own) / max(len(words | own), 1)

    premises = [found.texts[number] for number in np.unique(found.table[:, 0])]
    near = difflib.get_close_matches(wanted, heapq.nlargest(100, premises, key=common), 3, cutoff=0)
    raise UserError(
        f"--premise: no triplet has {premise!r} as its anchor; the nearest are {', '.join(map(repr, near))}"
    )


def table(texts: Sequence[Sequence[str]], scores: Similarities, margin: float, width: int = 110) -> str:
    """A premise's triplets as lines of at most `width` columns, the largest gap first (SelfCCL, Table 2)."""
    groups = difficulty(scores.positive, scores.negative, margin)
    numbers = zip(scores.positive, scores.negative, scores.gap, strict=True)
    rows = [[*row[1:], *three, GROUPS[group]] for row, three, group in zip(texts, numbers, groups, strict=True)]
    cell = max(20, (width - 42) // 2)
    shown = tabulate(
        [rows[place] for place in np.argsort(-scores.gap, kind="stable")],
        ["entailment", "contradiction", "cos+", "cos-", "gap", "difficulty"],
        tablefmt="simple",
        floatfmt=".3f",
        disable_numparse=[0, 1, 5],
        maxcolwidths=[cell, cell, None, None, None, None],
    )
    counts = ", ".join(f"{(groups == group).sum()} {name}" for group, name in enumerate(GROUPS))
    end = f"{len(texts)} triplet{'s'[: len(texts) != 1]}: {counts} (margin {margin:g})"
    return "\n".join([*textwrap.wrap(texts[0][0], width), "", shown, "", end])


def main() -> None:
    """The command line of this module."""
    arguments = _parse(sys.argv[1:])
    from minbert import weights  # late, as these import torch
    from minbert.encode import Encoder

    texts = of_premise(every_triplet(Path(arguments.triplets)), arguments.premise)
    folder = weights.resolve(arguments.weights, "--weights")
    encoder = Encoder.load(folder, pooler=arguments.pooler, precision=arguments.precision)
    different, places = distinct(text for row in texts for text in row)
    found = _of_vectors(encoder.encode(different), places)
    print(table(texts, found, arguments.margin, shutil.get_terminal_size((110, 24)).columns))
    print(f"cosines by {arguments.weights}, {encoder.pooler} pooling, {encoder.precision}, dropout off")


if __name__ == "__main__":
    from minbert.training import cli

    cli.run(main)
