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
from minbert.token_cache import Issue, ReaderReport, Row
from minbert.tokenizer import Tokenizer
from tasks import readers
from tasks.contrastive.corpora import TrainingRows, cache_rows, training_files
from tasks.examples import Examples

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
_DEFECTS = {
    "same_as_anchor": "the same text as its anchor",
    "contradictory": "the same text is entailment and contradiction of one premise",
    "duplicates": "a duplicate of an earlier line",
}
"""Defects by their names in the counts, in the order in which they are checked."""


class TripletFiles(NamedTuple):
    """Files that triplets come from, their kind, `triplet` or `nli`, and the number of texts of a triplet."""

    paths: list[Path]
    kind: str
    columns: int


def find_triplets(listed: str, folder: str) -> TripletFiles:
    """The files that `--triplets` names, or the usual ones of a data folder.

    Raises `UserError` if one is missing or holds neither kind, or if they differ in kind.
    """
    paths = training_files(listed, folder, "nli_for_simcse.csv", "nli-triplets.csv")
    kinds = [readers.kind_of(path, ("triplet", "nli")) for path in paths]
    contents = [(kind, readers.count_texts(path, kind)) for path, kind in zip(paths, kinds, strict=True)]
    names = {("nli", 2): "labelled pairs", ("triplet", 2): "pairs without hard negatives"}
    shown = [f"{path} holds {names.get(content, 'triplets')}" for path, content in zip(paths, contents, strict=True)]
    for number, content in enumerate(contents):
        if content != contents[0]:
            raise UserError(f"--triplets: {shown[0]}, {shown[number]}")
    return TripletFiles(paths, kinds[0], 3 if kinds[0] == "nli" else contents[0][1])


def read(files: TripletFiles, per_premise: str, tokenizer: Tokenizer, length: int) -> TrainingRows:
    """The triplets of files of triplets or of labelled pairs, cached."""
    names = [path.name for path in files.paths] if len(files.paths) > 1 else []
    rule = per_premise if files.kind == "nli" else ""

    def merged() -> Iterator[Row | Issue | ReaderReport]:
        sources = [readers.open_as(path, files.kind).rows_and_issues() for path in files.paths]
        made = from_pairs(sources, rule, names=names) if rule else checked(sources, files.columns, names=names)
        if not made.triplets:
            raise UserError(f"{', '.join(map(str, files.paths))}: no triplet can be made of the rows")
        yield from made.triplets
        yield from made.skipped
        yield {"counts": made.counts}

    cache_rule = ["triplets", files.kind, rule, *names]
    cache, hashes = cache_rows(files.paths, merged(), cache_rule, tokenizer)
    entry = {"files": hashes, "per_premise": rule, **cache.report, "skipped": cache.manifest_entry()["skipped"]}
    return TrainingRows(Examples(cache, tokenizer.cls, tokenizer.sep, length), entry)


def fold(text: str) -> str:
    """A text as it is compared: lower case, white space folded."""
    return " ".join(text.lower().split())


@dataclass(frozen=True)
class MergedTriplets:
    """Triplets, the rows that were dropped, and the counts.

    read = skipped + same_as_anchor + contradictory + duplicates + neutral + usable rows, where `skipped` are those that
    the reader skipped; `alone` are premises with usable rows of one kind only, `unpaired` usable rows that are in no
    triplet.
    """

    triplets: list[Row]  # the id of one is the lines it was made of, as `12-15`
    skipped: list[Issue]
    counts: dict[str, int]


class RowsRead(NamedTuple):
    """The rows of all sources. Texts that are compared equal have one number, and one spelling: the first."""

    table: pd.DataFrame  # [R]: file, line, id (`file:line`, or `line`), label, and the numbers of the texts
    texts: np.ndarray  # by number
    skipped: list[Issue]  # by the readers

    def made(self, triplets: pd.DataFrame, sides: list[str], defect: np.ndarray, **counts: int) -> MergedTriplets:
        """Triplets with an id, a line and the numbers of their texts in the columns `sides`.

        `defect` is that of each row read, empty for most; `counts` are those that are not of defects.
        """
        columns = (triplets["id"].tolist(), triplets["line"].tolist(), self.texts[triplets[sides]].tolist())
        made = [Row(name, tuple(texts), line=line) for name, line, texts in zip(*columns, strict=True)]
        counts = {name: int((defect == name).sum()) for name in _DEFECTS} | counts
        counts = {"read": len(defect) + len(self.skipped), "skipped": len(self.skipped)} | counts
        dropped = [
            _named(file, line, reason)
            for name, reason in _DEFECTS.items()
            for file, line in self.table.loc[defect == name, ["file", "line"]].itertuples(index=False)
        ]
        return MergedTriplets(made, self.skipped + dropped, counts | {"triplets": len(made)})


def rows_of(sources: Sequence[Iterable[Row | Issue]], sides: list[str], names: Sequence[str]) -> RowsRead:
    """The rows of all sources, the numbers of their texts in the columns `sides`."""
    rows: list[tuple[str, int, str, float]] = []
    texts: list[str] = []
    skipped: list[Issue] = []
    for source, file in zip(sources, names or [""] * len(sources), strict=True):
        for row in source:
            if isinstance(row, Issue):
                skipped.append(_named(file, row.line, row.reason))
            else:
                rows.append((file, row.line, f"{file}:{row.line}" if file else str(row.line), row.label))
                texts += row.texts
    numbers = pd.factorize(pd.Series([fold(text) for text in texts], dtype=object))[0]
    first = np.unique(numbers, return_index=True)[1]
    table = pd.DataFrame(rows, columns=["file", "line", "id", "label"])
    table[sides] = numbers.reshape(-1, len(sides))
    return RowsRead(table, pd.Series([texts[number].strip() for number in first], dtype=object).to_numpy(), skipped)


def _named(source: str, line: int, reason: str) -> Issue:
    return Issue(line, f"{source}: {reason}" if source else reason)


def from_pairs(
    sources: Sequence[Iterable[Row | Issue]], per_premise: str = "first", *, names: Sequence[str] = ()
) -> MergedTriplets:
    """Triplets of labelled pairs (premise, hypothesis; 0 entailment, 1 neutral, 2 contradiction) of several files.

    Premises come in the order of their first appearance in any row, their rows in file order. `names` of the sources
    go into ids and reasons. `per_premise`: `first`, its first entailment with its first contradiction; `zip`, its i-th
    with its i-th; `cross`, all with all (the papers say only that triplets are merged on the premise: CBCL, section
    5.1; SelfCCL, section 4.2).
    """
    read = rows_of(sources, ["premise", "hypothesis"], names)
    pairs = read.table.assign(order=pd.factorize(read.table["premise"])[0], row=range(len(read.table)))
    same, neutral = pairs["premise"] == pairs["hypothesis"], pairs["label"] == NEUTRAL
    pair = pairs["premise"] * len(read.texts) + pairs["hypothesis"]
    both = np.intersect1d(pair[pairs["label"] == ENTAILMENT], pair[pairs["label"] == CONTRADICTION])
    contradictory = pair.isin(both) & ~neutral & ~same
    remaining = ~(neutral | same | contradictory)
    duplicate = remaining & pairs.duplicated(["premise", "hypothesis", "label"])
    usable = pairs[remaining & ~duplicate]

    # an entailment and a contradiction of one premise; `number` counts a premise's rows of one kind
    usable = usable.assign(number=usable.groupby(["order", "label"]).cumcount())
    kinds = [usable[usable["label"] == kind] for kind in (ENTAILMENT, CONTRADICTION)]
    chosen = [kind[kind["number"] == 0] for kind in kinds] if per_premise == "first" else kinds
    on = ["order"] if per_premise == "cross" else ["order", "number"]
    merged = chosen[0].merge(chosen[1], on=on, suffixes=("", "_against")).sort_values(["order", "row", "row_against"])

    return read.made(
        merged.assign(id=merged["id"] + "-" + merged["id_against"]),
        ["premise", "hypothesis", "hypothesis_against"],
        np.select([same, contradictory, duplicate], [*_DEFECTS], ""),
        neutral=int((neutral & ~same).sum()),
        usable=len(usable),
        premises=pairs["premise"].nunique(),
        alone=int((usable.groupby("order")["label"].nunique() == 1).sum()),
        unpaired=len(usable) - merged["row"].nunique() - merged["row_against"].nunique(),
    )


def checked(sources: Sequence[Iterable[Row | Issue]], columns: int = 3, *, names: Sequence[str] = ()) -> MergedTriplets:
    """Rows that are triplets already (positive pairs with 2 columns), in file order, without the defective ones."""
    sides = ["anchor", "positive", "negative"][:columns]
    read = rows_of(sources, sides, names)
    numbers, anchor = read.table[sides], read.table["anchor"]
    same = numbers[sides[1:]].eq(anchor, axis=0).any(axis=1)
    contradictory = pd.Series(False, index=numbers.index)
    if columns == 3:
        entailed, contradicted = (anchor * len(read.texts) + numbers[side] for side in sides[1:])
        contradictory = entailed.isin(contradicted) | contradicted.isin(entailed)
    defect = np.select([same, contradictory, numbers.duplicated()], [*_DEFECTS], "")
    kept = read.table[defect == ""]
    counts = {"neutral": 0, "usable": len(kept), "premises": anchor.nunique(), "alone": 0, "unpaired": 0}
    return read.made(kept, sides, defect, **counts)
