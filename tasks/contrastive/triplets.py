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

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.token_cache import ReaderReport, Row, Skipped
from minbert.tokenizer import Tokenizer
from tasks import readers
from tasks.contrastive import data
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


def find_triplets(listed: str, folder: str, why_hard_negatives: str) -> TripletFiles:
    """The files that `--triplets` names, or the usual ones of a data folder.

    Raises `UserError` if one is missing or holds neither kind, and for rows of two texts unless `why_hard_negatives`,
    the reason why they need a third, is empty.
    """
    paths = data.training_files(listed, folder, "nli_for_simcse.csv", "nli-triplets.csv")
    kinds = [readers.kind_of(path, ("triplet", "nli")) for path in paths]
    contents = [(kind, readers.open_as(path, kind).texts) for path, kind in zip(paths, kinds, strict=True)]
    names = {("nli", 2): "labelled pairs", ("triplet", 2): "pairs without hard negatives"}
    shown = [f"{path} holds {names.get(content, 'triplets')}" for path, content in zip(paths, contents, strict=True)]
    for number, content in enumerate(contents):
        if content != contents[0]:
            raise UserError(f"--triplets: {shown[0]}, {shown[number]}")
    texts = 3 if kinds[0] == "nli" else contents[0][1]
    if texts == 2 and why_hard_negatives:
        raise UserError(f"{paths[0]}: {why_hard_negatives}")
    return TripletFiles(paths, kinds[0], texts)


def read(files: TripletFiles, per_premise: str, tokenizer: Tokenizer, length: int) -> data.TrainingRows:
    """The triplets of files of triplets or of labelled pairs, cached."""
    names = [path.name for path in files.paths] if len(files.paths) > 1 else []
    rule = per_premise if files.kind == "nli" else ""

    def merged() -> Iterator[Row | Skipped | ReaderReport]:
        sources = [readers.open_as(path, files.kind).rows for path in files.paths]
        triplets = from_pairs(sources, rule, names=names) if rule else checked(sources, files.columns, names=names)
        if not len(triplets):
            raise UserError(f"{', '.join(map(str, files.paths))}: no triplet can be made of the rows")
        yield from triplets.rows()

    cache_rule = ["triplets", files.kind, rule, *names]
    cache, hashes = data.cache_rows(files.paths, merged(), cache_rule, files.columns, tokenizer)
    entry = {"files": hashes, "per_premise": rule, **cache.report, "skipped": cache.manifest_entry()["skipped"]}
    return data.TrainingRows(Examples(cache, tokenizer.cls, tokenizer.sep, length), entry)


def fold(text: str) -> str:
    """A text as it is compared: lower case, white space folded."""
    return " ".join(text.lower().split())


class NumberedRows:
    """The rows of all sources with their texts as numbers; texts that are compared equal have one number.

    `table` is int64 [R, columns]; `labels` are -1 for rows without one; `skipped` are the rows that readers skipped.
    """

    def __init__(self, sources: Sequence[Iterable[Row | Skipped]], columns: int, names: Sequence[str]) -> None:
        assert not names or len(names) == len(sources), "one name for each source"
        self._names = names
        self.skipped: list[Skipped] = []
        self.lines, self.labels, self._ends = array("q"), array("b"), [0]
        numbers: dict[str, int] = {}
        self._texts: list[str] = []  # in the spelling of their first appearance
        table = array("q")
        for source, name in zip(sources, names or [""] * len(sources), strict=True):
            for row in source:
                if isinstance(row, Skipped):
                    self.skipped.append(_named(name, row.line, row.why))
                    continue
                for text in row.texts:
                    table.append(numbers.setdefault(fold(text), len(numbers)))
                    if len(numbers) > len(self._texts):
                        self._texts.append(text.strip())
                self.labels.append(-1 if math.isnan(row.label) else int(row.label))
                self.lines.append(row.line)
            self._ends.append(len(self.lines))
        self.distinct = len(numbers)  # texts
        self.table = np.array(table, dtype=np.int64).reshape(-1, columns)

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, number: int) -> str:
        """A text in the spelling of its first appearance."""
        return self._texts[number]

    def dropped(self, row: int, reason: str) -> Skipped:
        """A row as one that is skipped."""
        return _named(self._source(row), self.lines[row], reason)

    def origin(self, row: int) -> str:
        """`file:line` of a row, `line` where files have no names."""
        name = self._source(row)
        return f"{name}:{self.lines[row]}" if name else str(self.lines[row])

    def _source(self, row: int) -> str:
        return self._names[int(np.searchsorted(self._ends[1:], row, side="right"))] if self._names else ""


class MergedTriplets:
    """Triplets and the rows they are made of.

    `table` are the numbers of their texts, int64 [N, 3], or [N, 2] without hard negatives; `origins` the rows behind
    them, int64 [N, 1 or 2]. The rows under the masks `defective`, one for each of `_DEFECTS`, are listed as skipped.
    `counts`: read = skipped + same_as_anchor + contradictory + duplicates + neutral + usable rows, where `skipped` are
    those that the reader skipped; `alone` are premises with usable rows of one kind only, `unpaired` usable rows that
    are in no triplet.
    """

    def __init__(
        self,
        source: NumberedRows,
        table: np.ndarray,
        origins: np.ndarray,
        defective: Sequence[np.ndarray],
        **numbers: int,
    ) -> None:
        self.source, self.table, self._origins = source, table, origins
        self.skipped = list(source.skipped)
        self.counts = {"read": len(source) + len(source.skipped), "skipped": len(source.skipped)}
        for (name, reason), mask in zip(_DEFECTS.items(), defective, strict=True):
            rows = np.flatnonzero(mask).tolist()
            self.counts[name] = len(rows)
            self.skipped += [source.dropped(row, reason) for row in rows]
        self.counts |= numbers | {"unpaired": numbers["usable"] - len(np.unique(origins)), "triplets": len(table)}

    def __len__(self) -> int:
        return len(self.table)

    def rows(self) -> Iterator[Row | Skipped | ReaderReport]:
        """Every triplet, its id the lines it was made of, as `12-15`; then every row that was dropped; the counts."""
        source = self.source
        for texts, origins in zip(self.table.tolist(), self._origins.tolist(), strict=True):
            name = "-".join(map(source.origin, origins))
            yield Row(name, tuple(map(source.text, texts)), line=source.lines[origins[0]])
        yield from self.skipped
        yield {"counts": self.counts}


def _named(source: str, line: int, reason: str) -> Skipped:
    return Skipped(line, f"{source}: {reason}" if source else reason)


def from_pairs(
    sources: Sequence[Iterable[Row | Skipped]], per_premise: str = "first", *, names: Sequence[str] = ()
) -> MergedTriplets:
    """Triplets of labelled pairs (premise, hypothesis; 0 entailment, 1 neutral, 2 contradiction) of several files.

    Premises come in the order of their first appearance in any row, their rows in file order. `names` of the sources
    go into ids and reasons. `per_premise`: `first`, its first entailment with its first contradiction; `zip`, its i-th
    with its i-th; `cross`, all with all (the papers say only that triplets are merged on the premise: CBCL, section
    5.1; SelfCCL, section 4.2).
    """
    source = NumberedRows(sources, 2, names)
    pairs = pd.DataFrame(source.table, columns=["premise", "hypothesis"])
    pairs["label"], pairs["row"] = np.frombuffer(source.labels, dtype=np.int8), np.arange(len(pairs))
    pairs["order"] = pd.factorize(pairs["premise"])[0]
    premises = pairs["premise"].nunique()
    same, neutral = pairs["premise"] == pairs["hypothesis"], pairs["label"] == NEUTRAL
    pair = pairs["premise"] * source.distinct + pairs["hypothesis"]
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

    return MergedTriplets(
        source,
        merged[["premise", "hypothesis", "hypothesis_against"]].to_numpy(),
        merged[["row", "row_against"]].to_numpy(),
        (same.to_numpy(), contradictory.to_numpy(), duplicate.to_numpy()),
        neutral=int((neutral & ~same).sum()),
        usable=len(usable),
        premises=premises,
        alone=int((usable.groupby("order")["label"].nunique() == 1).sum()),
    )


def checked(
    sources: Sequence[Iterable[Row | Skipped]], columns: int = 3, *, names: Sequence[str] = ()
) -> MergedTriplets:
    """Rows that are triplets already (positive pairs with 2 columns), in file order, without the defective ones."""
    source = NumberedRows(sources, columns, names)
    table, anchor = source.table, source.table[:, 0]
    same = (table[:, 1:] == anchor[:, None]).any(axis=1)
    contradictory = np.zeros(len(table), dtype=bool)
    if columns == 3:
        entailed, contradicted = (anchor * source.distinct + side for side in table[:, 1:].T)
        contradictory = (np.isin(entailed, contradicted) | np.isin(contradicted, entailed)) & ~same
    duplicate = pd.DataFrame(table).duplicated().to_numpy() & ~same & ~contradictory
    kept = np.flatnonzero(~(same | contradictory | duplicate))
    numbers = {"neutral": 0, "usable": len(kept), "premises": len(np.unique(anchor)), "alone": 0}
    return MergedTriplets(source, table[kept], kept[:, None], (same, contradictory, duplicate), **numbers)
