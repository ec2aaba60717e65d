"""From labelled NLI pairs to triplets (anchor, positive, hard negative), merged on the premise.

Texts are compared lower-cased and with white space folded, as an uncased vocabulary sees them; a text is kept in the
spelling of its first appearance. Rows with a defect are dropped, listed with their line and counted. The defects, in
the order in which they are checked:

1. same as anchor: the hypothesis is its own premise;
2. contradictory: the premise has the same hypothesis as entailment and as contradiction (all such rows are dropped);
3. duplicate: premise, hypothesis and label are those of an earlier line.

The same holds for files of triplets: each row is one entailment and one contradiction of its anchor, and it is a
duplicate where anchor, positive and hard negative are those of an earlier line. Rows are dropped before
triplets are made, so a defective row never takes the place of a usable one.

Axes: R rows read, N triplets.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.files import distinct_names
from minbert.token_cache import Issue, ReaderReport, Row
from minbert.tokenizer import Tokenizer
from tasks import readers
from tasks.contrastive.data import TrainingRows, cache_rows, training_files
from tasks.examples import Examples

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
_DEFECTS = {
    "same_as_anchor": "the same text as its anchor",
    "contradictory": "the same text is entailment and contradiction of one premise",
    "duplicates": "a duplicate of an earlier line",
}
"""Defects by their names in the counts, in the order in which they are checked."""

_CONTENTS = {
    ("nli", 2): "labelled pairs",
    ("triplet", 2): "pairs without hard negatives",
    ("triplet", 3): "triplets",
}
"""(kind of a file, texts of a row) -> what it holds, for a message."""


class TripletFiles(NamedTuple):
    """Files that triplets come from, their kind, `triplet` or `nli`, and the number of texts of a triplet."""

    paths: list[Path]
    kind: str
    num_texts: int


def find_triplets(files: str, data: str) -> TripletFiles:
    """The files that `--triplets` names, or the usual ones of the data folder, as `--data` gives it.

    Raises `UserError` if one is missing or holds neither kind, or if they differ in kind.
    """
    paths = training_files(files, data, "nli_for_simcse.csv", "nli-triplets.csv")
    contents = []
    for path in paths:
        kind = readers.kind_of(path, ("triplet", "nli"))
        contents.append((kind, readers.count_texts(path, kind)))
    first = contents[0]
    for path, content in zip(paths, contents, strict=True):
        if content != first:
            raise UserError(f"--triplets: {paths[0]} holds {_CONTENTS[first]}, {path} holds {_CONTENTS[content]}")
    kind, num_texts = first
    if kind == "nli":
        num_texts = 3  # two pairs of a premise make a triplet
    return TripletFiles(paths, kind, num_texts)


def read_triplets(files: TripletFiles, per_premise: str, tokenizer: Tokenizer, length: int) -> TrainingRows:
    """The triplets of files of triplets or of labelled pairs, cached; `length` is the longest sentence in tokens."""
    names = []
    if len(files.paths) > 1:
        names = distinct_names(files.paths)
    # part of the cache's key: empty where a file holds triplets already, and it has no effect
    pairing = per_premise if files.kind == "nli" else ""

    # lazy, as a cache hit reads nothing
    def rows() -> Iterator[Row | Issue | ReaderReport]:
        opened = [readers.open_as(path, files.kind, "train") for path in files.paths]
        sources = [data.rows_and_issues() for data in opened]
        if files.kind == "nli":
            merged = from_pairs(sources, per_premise, names=names)
        else:
            merged = from_triplets(sources, files.num_texts, names=names)
        yield from merged.triplets
        yield from merged.skipped
        yield {"counts": merged.counts, "other_splits": sum(data.other_splits for data in opened)}

    cache, hashes = cache_rows(files.paths, rows(), ["triplets", files.kind, pairing, *names], tokenizer)
    entry = {"files": hashes, "per_premise": pairing, **cache.report, "skipped": cache.manifest_entry()["skipped"]}
    entry["left_out"] = cache.left_out
    entry["read"] = cache.report["counts"]["read"] + cache.left_out
    return TrainingRows(Examples(cache, tokenizer, length), entry)


def fold(text: str) -> str:
    """A text as it is compared: lower case, white space folded."""
    return " ".join(text.lower().split())


@dataclass(frozen=True)
class MergedTriplets:
    """Triplets, the rows that were dropped, and the counts.

    read = skipped + same_as_anchor + contradictory + duplicates + neutral + usable rows, where `skipped` are those that
    the reader skipped. `alone`: premises with only entailments or only contradictions. `unpaired`: usable rows that are
    in no triplet.
    """

    triplets: list[Row]  # an id names the lines that it was made of: `12-15`
    skipped: list[Issue]
    counts: dict[str, int]


class NumberedRows(NamedTuple):
    """The rows of all sources with the numbers of their texts. Equal texts have one number, and the first spelling."""

    table: pd.DataFrame  # [R]: file, line, id (`file:line`, or `line`), label, and the numbers of the texts
    texts: np.ndarray  # by number
    skipped: list[Issue]  # by the readers

    def to_triplets(
        self, chosen: pd.DataFrame, sides: list[str], defect: np.ndarray, counts: dict[str, int]
    ) -> MergedTriplets:
        """The triplets of the `chosen` rows: their id, line and the numbers of their texts in the columns `sides`.

        `defect` is that of each row read, empty for most; `counts` are those that are not of defects.
        """
        texts = self.texts[chosen[sides]].tolist()
        triplets = []
        for name, line, sentences in zip(chosen["id"].tolist(), chosen["line"].tolist(), texts, strict=True):
            triplets.append(Row(name, tuple(sentences), line=line))
        dropped = []
        counts_of_defects = {}
        for name, reason in _DEFECTS.items():
            rows = self.table[defect == name]
            counts_of_defects[name] = len(rows)
            dropped += [_issue(row.file, row.line, reason) for row in rows.itertuples()]
        return MergedTriplets(
            triplets,
            self.skipped + dropped,
            {
                "read": len(defect) + len(self.skipped),
                "skipped": len(self.skipped),
                **counts_of_defects,
                **counts,
                "triplets": len(triplets),
            },
        )


def number_texts(sources: Sequence[Iterable[Row | Issue]], sides: list[str], names: Sequence[str]) -> NumberedRows:
    """The rows of all sources, the numbers of their texts in the columns `sides`."""
    rows: list[tuple[str, int, str, float]] = []
    texts: list[str] = []
    skipped: list[Issue] = []
    names = names or [""] * len(sources)
    for source, file in zip(sources, names, strict=True):
        for row in source:
            if isinstance(row, Issue):
                skipped.append(_issue(file, row.line, row.reason))
            else:
                name = f"{file}:{row.line}" if file else str(row.line)
                rows.append((file, row.line, name, row.label))
                texts += row.texts
    # whole columns at once, as SNLI and MultiNLI are a million pairs
    numbers, _ = pd.factorize(pd.Series([fold(text) for text in texts], dtype=object))
    _, first_appearances = np.unique(numbers, return_index=True)
    spellings = pd.Series([texts[index].strip() for index in first_appearances], dtype=object).to_numpy()
    table = pd.DataFrame(rows, columns=["file", "line", "id", "label"])
    table[sides] = numbers.reshape(-1, len(sides))
    return NumberedRows(table, spellings, skipped)


def _issue(file: str, line: int, reason: str) -> Issue:
    return Issue(line, f"{file}: {reason}" if file else reason)


def from_pairs(
    sources: Sequence[Iterable[Row | Issue]], per_premise: str = "first", *, names: Sequence[str] = ()
) -> MergedTriplets:
    """Triplets of labelled pairs (premise, hypothesis; 0 entailment, 1 neutral, 2 contradiction) of several files.

    Premises come in the order of their first appearance in any row, their rows in file order. `names` of the sources
    go into ids and reasons. `per_premise`: `first`, its first entailment with its first contradiction; `zip`, its i-th
    with its i-th; `cross`, all with all. CBCL (section 5.1) says only that pairs are merged on the premise; the five
    triplets of a premise in SelfCCL's Table 2 repeat no text, as with `zip`.
    """
    numbered = number_texts(sources, ["premise", "hypothesis"], names)
    pairs = numbered.table.assign(order=pd.factorize(numbered.table["premise"])[0], row=range(len(numbered.table)))

    # the defects, each checked on the rows that have none of the earlier ones
    same = pairs["premise"] == pairs["hypothesis"]
    neutral = pairs["label"] == NEUTRAL
    pair = pairs["premise"] * len(numbered.texts) + pairs["hypothesis"]  # one number for both texts
    entailed = pair[pairs["label"] == ENTAILMENT]
    contradicted = pair[pairs["label"] == CONTRADICTION]
    contradictory = pair.isin(np.intersect1d(entailed, contradicted)) & ~neutral & ~same
    remaining = ~(neutral | same | contradictory)
    duplicate = remaining & pairs.duplicated(["premise", "hypothesis", "label"])
    usable = pairs[remaining & ~duplicate]

    # an entailment and a contradiction of one premise; `number` counts a premise's rows of one kind
    usable = usable.assign(number=usable.groupby(["order", "label"]).cumcount())
    if per_premise == "first":
        candidates = usable[usable["number"] == 0]
    else:
        candidates = usable
    entailments = candidates[candidates["label"] == ENTAILMENT]
    contradictions = candidates[candidates["label"] == CONTRADICTION]
    # `cross`: every entailment with every contradiction; else the first with the first, and so on
    on = ["order"] if per_premise == "cross" else ["order", "number"]
    merged = entailments.merge(contradictions, on=on, suffixes=("", "_against"))
    merged = merged.sort_values(["order", "row", "row_against"])

    return numbered.to_triplets(
        merged.assign(id=merged["id"] + "-" + merged["id_against"]),
        ["premise", "hypothesis", "hypothesis_against"],
        np.select([same, contradictory, duplicate], [*_DEFECTS], ""),
        {
            "neutral": int((neutral & ~same).sum()),
            "usable": len(usable),
            "premises": pairs["premise"].nunique(),
            "alone": int((usable.groupby("order")["label"].nunique() == 1).sum()),
            "unpaired": len(usable) - merged["row"].nunique() - merged["row_against"].nunique(),
        },
    )


def from_triplets(
    sources: Sequence[Iterable[Row | Issue]], num_texts: int = 3, *, names: Sequence[str] = ()
) -> MergedTriplets:
    """Rows that are triplets already (positive pairs with 2 texts), in file order, without the defective ones."""
    sides = ["anchor", "positive", "negative"][:num_texts]
    numbered = number_texts(sources, sides, names)
    numbers = numbered.table[sides]
    anchor = numbers["anchor"]
    same = numbers[sides[1:]].eq(anchor, axis=0).any(axis=1)
    contradictory = pd.Series(False, index=numbers.index)
    if num_texts == 3:
        # one number for both texts of a pair
        entailed = anchor * len(numbered.texts) + numbers["positive"]
        contradicted = anchor * len(numbered.texts) + numbers["negative"]
        contradictory = entailed.isin(contradicted) | contradicted.isin(entailed)
    defect = np.select([same, contradictory, numbers.duplicated()], [*_DEFECTS], "")
    usable = numbered.table[defect == ""]
    counts = {"neutral": 0, "usable": len(usable), "premises": anchor.nunique(), "alone": 0, "unpaired": 0}
    return numbered.to_triplets(usable, sides, defect, counts)
