"""Synonym replacement (CBCL, section 4.4): three methods over the words that `tagging` has found replaceable.

Method 1: every noun, adjective, verb and adverb with probability p. The paper's "each word" cannot be more: the closed
classes (see `closed_class`) have no synonyms. Method 2: nouns and adjectives with probability p. Both are precomputed,
from (seed, row id). Method 3, the paper's best: live; with p = 0.25 a batch has ONE adjective of each sentence
replaced, the first one that has a synonym in batches of even number, the last one in odd ones.

Letter case is kept, `a` and `an` follow the new word, all else in a text stays as it is, and so do labels and ids.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from minbert.errors import UserError
from minbert.files import write_atomic
from minbert.token_cache import Row
from tasks.contrastive.synonyms.replacement import KINDS, changes_of, check_probability, splice
from tasks.contrastive.synonyms.tagging import Tagged


def growing(epoch: int, epochs: int, most: float, power: float = 1.0) -> float:
    """Growing augmentation: the probability in epoch 1..epochs, most * (epoch / epochs)^power; the last has `most`.

    SelfCCL (section 6) names it as future work; the form follows its pacing function (section 4.3.2).
    """
    if not 1 <= epoch <= epochs:
        raise ValueError(f"epoch {epoch} is not between 1 and {epochs}")
    return most * (epoch / epochs) ** power


def growing_count(epoch: int, epochs: int, most: int) -> int:
    """Adjectives per sentence for method 3, growing with the epoch from 1 (or more, if epochs are few) to `most`."""
    return max(1, int(growing(epoch, epochs, most) + 1e-9))


def precompute(rows: Iterable[Row], tagged: Tagged, *, method: int, p: float, seed: int) -> Iterator[Row]:
    """Methods 1 and 2: every row with its texts augmented; id, label, line and note are the row's own.

    `tagged` holds the texts of all rows, in order. For the growing variant p is `growing(epoch, ...)`.
    """
    if method not in (1, 2):
        raise UserError(f"--synonyms: method {method} is not precomputed; 1 and 2 are")
    check_probability(p)
    chosen, first = tagged.only(KINDS[method]), 0
    for row in rows:
        changes = changes_of(row, chosen, first, p, seed)
        yield replace(row, texts=tuple(splice(text, of) for text, of in zip(row.texts, changes, strict=True)))
        first += len(row.texts)
    if first != len(tagged):
        raise ValueError(f"{first} texts in the rows, {len(tagged)} were tagged")


def write_augmented(path: Path, before: Iterable[Row], after: Iterable[Row]) -> None:
    """A table to read, TAB-separated: id, column, before, after; one line a text, changed or not."""
    file = io.StringIO()
    table = csv.writer(file, delimiter="\t", lineterminator="\n")
    table.writerow(["id", "column", "before", "after"])
    for old, new in zip(before, after, strict=True):
        for column, texts in enumerate(zip(old.texts, new.texts, strict=True)):
            table.writerow([old.id, column, *texts])
    write_atomic(path, file.getvalue())
