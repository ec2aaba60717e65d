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

Memory holds some numbers of each row; its texts are in a temporary file.

Axes: R rows read, N triplets.
"""

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import numpy as np
import pandas as pd

from minbert.files import scratch_file
from minbert.token_cache import Facts, Row, Skipped

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
_DEFECTS = {
    "same_as_anchor": "the same text as its anchor",
    "contradictory": "the same text is entailment and contradiction of one premise",
    "duplicates": "a duplicate of an earlier line",
}
"""Defects by their names in the counts, in the order in which they are checked."""
_BLOCK = 4096  # triplets whose numbers are Python's at a time


def fold(text: str) -> str:
    """A text as it is compared: lower case, white space folded."""
    return " ".join(text.lower().split())


class Triplets:
    """The rows of all sources as numbers of their texts, and the triplets that are made of them.

    Equal texts have one number; they are compared by hashes of 128 bits, so that none has to be kept in memory.
    `read` are the rows, int64 [R, columns], `table` the triplets, int64 [N, 3] (N, 2 where a file has
    no hard negatives). `counts`: read = skipped + same_as_anchor + contradictory + duplicates + neutral + usable rows,
    where `skipped` are those that the reader skipped; `alone` are premises with usable rows of one kind only,
    `unpaired` usable rows that are in no triplet.
    """

    def __init__(self, sources: Sequence[Iterable[Row | Skipped]], columns: int, names: Sequence[str]) -> None:
        assert not names or len(names) == len(sources), "one name for each source"
        self.names = names
        self.skipped: list[Skipped] = []
        self.lines, self.labels, self.ends = array("q"), array("b"), [0]
        self._file = scratch_file()
        hashes, self._text_ends = bytearray(), array("q", [0])
        for source, name in zip(sources, names or [""] * len(sources), strict=True):
            for row in source:
                if isinstance(row, Skipped):
                    self.skipped.append(_named(name, row.line, row.why))
                    continue
                for text in row.texts:
                    hashes += hashlib.blake2b(fold(text).encode(), digest_size=16).digest()
                    self._text_ends.append(self._text_ends[-1] + self._file.write(text.strip().encode()))
                self.labels.append(-1 if math.isnan(row.label) else int(row.label))
                self.lines.append(row.line)
            self.ends.append(len(self.lines))
        found = np.unique(np.frombuffer(hashes, dtype="S16"), return_index=True, return_inverse=True)
        _, self._first, numbers = found  # where among all texts each different one appears first
        self.distinct = len(self._first)  # texts
        self.read = numbers.reshape(-1, columns)

    def make(self, table: np.ndarray, origins: np.ndarray, dropped: Sequence[np.ndarray], **numbers: int) -> Self:
        """Make the triplets of `table`, whose `origins`, int64 [N, 1 or 2], are the numbers of the rows behind them.

        The rows under the masks `dropped`, one for each of `_DEFECTS`, are listed as skipped; `numbers` are counted.
        """
        self.table, self._origins = table, origins
        self.counts = {"read": len(self.lines) + len(self.skipped), "skipped": len(self.skipped)}
        for (name, why), mask in zip(_DEFECTS.items(), dropped, strict=True):
            found = np.flatnonzero(mask).tolist()
            self.counts[name] = len(found)
            self.skipped += [_named(self._source(row), self.lines[row], why) for row in found]
        self.counts |= numbers | {"unpaired": numbers["usable"] - len(np.unique(origins)), "triplets": len(table)}
        return self

    def __len__(self) -> int:
        return len(self.table)

    def text(self, number: int) -> str:
        """A text in the spelling of its first appearance."""
        place = self._first[number]
        begin, end = self._text_ends[place], self._text_ends[place + 1]
        self._file.seek(begin)
        return self._file.read(end - begin).decode()

    def rows(self) -> Iterator[Row | Skipped | Facts]:
        """Every triplet, its id the lines it was made of, as `12-15`; then every row that was dropped; the counts."""
        for begin in range(0, len(self), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            for texts, origins in zip(self.table[block].tolist(), self._origins[block].tolist(), strict=True):
                name = "-".join(map(self._place, origins))
                yield Row(name, tuple(map(self.text, texts)), line=self.lines[origins[0]])
        yield from self.skipped
        yield {"counts": self.counts}

    def _source(self, row: int) -> str:
        return self.names[int(np.searchsorted(self.ends[1:], row, side="right"))] if self.names else ""

    def _place(self, row: int) -> str:
        """`file:line` of a row, `line` where files have no names."""
        name = self._source(row)
        return f"{name}:{self.lines[row]}" if name else str(self.lines[row])


def _named(source: str, line: int, why: str) -> Skipped:
    return Skipped(line, f"{source}: {why}" if source else why)


def from_pairs(
    sources: Sequence[Iterable[Row | Skipped]], per_premise: str = "first", *, names: Sequence[str] = ()
) -> Triplets:
    """Triplets of labelled pairs (premise, hypothesis; 0 entailment, 1 neutral, 2 contradiction) of several files.

    Premises come in the order of their first appearance in any row, their rows in file order. `names` of the sources
    go into ids and reasons. `per_premise`: `first`, its first entailment with its first contradiction; `zip`, its i-th
    with its i-th; `cross`, all with all (the papers say only that triplets are merged on the premise: CBCL, section
    5.1; SelfCCL, section 4.2).
    """
    found = Triplets(sources, 2, names)
    pairs = pd.DataFrame(found.read, columns=["premise", "hypothesis"])
    pairs["label"], pairs["row"] = np.frombuffer(found.labels, dtype=np.int8), np.arange(len(pairs))
    pairs["place"] = pd.factorize(pairs["premise"])[0]
    premises = pairs["premise"].nunique()
    same, neutral = pairs["premise"] == pairs["hypothesis"], pairs["label"] == NEUTRAL
    pair = pairs["premise"] * found.distinct + pairs["hypothesis"]
    both = np.intersect1d(pair[pairs["label"] == ENTAILMENT], pair[pairs["label"] == CONTRADICTION])
    contradictory = pair.isin(both) & ~neutral & ~same
    rest = ~(neutral | same | contradictory)
    duplicate = rest & pairs.duplicated(["premise", "hypothesis", "label"])
    usable = pairs[rest & ~duplicate]

    # an entailment and a contradiction of one premise; `number` counts a premise's rows of one kind
    usable = usable.assign(number=usable.groupby(["place", "label"]).cumcount())
    kinds = [usable[usable["label"] == kind] for kind in (ENTAILMENT, CONTRADICTION)]
    chosen = [kind[kind["number"] == 0] for kind in kinds] if per_premise == "first" else kinds
    on = ["place"] if per_premise == "cross" else ["place", "number"]
    made = chosen[0].merge(chosen[1], on=on, suffixes=("", "_against")).sort_values(["place", "row", "row_against"])

    return found.make(
        made[["premise", "hypothesis", "hypothesis_against"]].to_numpy(),
        made[["row", "row_against"]].to_numpy(),
        (same.to_numpy(), contradictory.to_numpy(), duplicate.to_numpy()),
        neutral=int((neutral & ~same).sum()),
        usable=len(usable),
        premises=premises,
        alone=int((usable.groupby("place")["label"].nunique() == 1).sum()),
    )


def checked(sources: Sequence[Iterable[Row | Skipped]], columns: int = 3, *, names: Sequence[str] = ()) -> Triplets:
    """Rows that are triplets already (positive pairs with 2 columns), in file order, without the defective ones."""
    found = Triplets(sources, columns, names)
    table, anchor = found.read, found.read[:, 0]
    same = (table[:, 1:] == anchor[:, None]).any(axis=1)
    contradictory = np.zeros(len(table), dtype=bool)
    if columns == 3:
        entailed, contradicted = (anchor * found.distinct + side for side in table[:, 1:].T)
        contradictory = (np.isin(entailed, contradicted) | np.isin(contradicted, entailed)) & ~same
    duplicate = pd.DataFrame(table).duplicated().to_numpy() & ~same & ~contradictory
    kept = np.flatnonzero(~(same | contradictory | duplicate))
    numbers = {"neutral": 0, "usable": len(kept), "premises": len(np.unique(anchor)), "alone": 0}
    return found.make(table[kept], kept[:, None], (same, contradictory, duplicate), **numbers)
