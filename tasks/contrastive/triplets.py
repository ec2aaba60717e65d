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
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from minbert.token_cache import Facts, Row, Skipped

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
PER_PREMISE = ("first", "zip", "cross")
"""Of a premise: its first entailment with its first contradiction; its i-th with its i-th; all with all (the papers
say only that triplets are merged on the premise: CBCL, section 5.1; SelfCCL, section 4.2)."""


def fold(text: str) -> str:
    """A text as it is compared: lower case, white space folded."""
    return " ".join(text.lower().split())


@dataclass(frozen=True)
class Triplets:
    """Triplets as numbers of `texts`: `table`, int64 [N, 3]. (N, 2 where a file has no hard negatives.)

    `counts`: read = skipped + same_as_anchor + contradictory + duplicates + neutral + usable rows, where `skipped` are
    those that the reader skipped; `alone` are premises with usable rows of one kind only, `unpaired` usable rows that
    are in no triplet.
    """

    counts: dict[str, int]
    skipped: Sequence[Skipped]
    texts: Sequence[str] = field(repr=False)
    table: np.ndarray = field(repr=False)
    origins: np.ndarray = field(repr=False)  # number of the one row, or the two, that made it: int64 [N, 1 or 2]
    _read: "_Read" = field(repr=False)

    def __len__(self) -> int:
        return len(self.table)

    def rows(self) -> Iterator[Row | Skipped | Facts]:
        """Every triplet, its id the lines it was made of, as `12-15`; then every row that was dropped; the counts."""
        for texts, origins in zip(self.table.tolist(), self.origins.tolist(), strict=True):
            name = "-".join(map(self._read.place, origins))
            yield Row(name, tuple(self.texts[text] for text in texts), line=self._read.lines[origins[0]])
        yield from self.skipped
        yield {"counts": self.counts}


class _Read:
    """The rows of all sources, as numbers of their texts; each distinct text is held once."""

    def __init__(self, sources: Sequence[Iterable[Row | Skipped]], columns: int, names: Sequence[str]) -> None:
        assert not names or len(names) == len(sources), "one name for each source"
        self.names = names
        self.texts: list[str] = []
        self.skipped: list[Skipped] = []
        self.lines, self.labels, cells, self.ends = array("q"), array("b"), array("q"), [0]
        numbers: dict[str, int] = {}
        for source, name in zip(sources, names or [""] * len(sources), strict=True):
            for row in source:
                if isinstance(row, Skipped):
                    self.skipped.append(_named(name, row.line, row.why))
                    continue
                for text in row.texts:
                    number = numbers.setdefault(fold(text), len(self.texts))
                    if number == len(self.texts):
                        self.texts.append(text.strip())
                    cells.append(number)
                self.labels.append(-1 if math.isnan(row.label) else int(row.label))
                self.lines.append(int(row.line or row.id))
            self.ends.append(len(self.lines))
        self.table = np.frombuffer(cells, dtype=np.int64).reshape(-1, columns)

    def source(self, row: int) -> str:
        """The name of a row's source."""
        return self.names[int(np.searchsorted(self.ends[1:], row, side="right"))] if self.names else ""

    def place(self, row: int) -> str:
        """`file:line` of a row, `line` where files have no names."""
        name = self.source(row)
        return f"{name}:{self.lines[row]}" if name else str(self.lines[row])

    def drop(self, same: np.ndarray, contradictory: np.ndarray, duplicate: np.ndarray) -> dict[str, int]:
        """List the rows under the masks [R] as skipped, and count all."""
        counts = {"read": len(self.lines) + len(self.skipped), "skipped": len(self.skipped)}
        reasons = {
            "same_as_anchor": (same, "the same text as its anchor"),
            "contradictory": (contradictory, "the same text is entailment and contradiction of one premise"),
            "duplicates": (duplicate, "a duplicate of an earlier line"),
        }
        for name, (mask, why) in reasons.items():
            found = np.flatnonzero(mask).tolist()
            counts[name] = len(found)
            self.skipped += [_named(self.source(row), self.lines[row], why) for row in found]
        return counts


def _named(source: str, line: int, why: str) -> Skipped:
    return Skipped(line, f"{source}: {why}" if source else why)


def from_pairs(
    sources: Sequence[Iterable[Row | Skipped]], per_premise: str = "first", *, names: Sequence[str] = ()
) -> Triplets:
    """Triplets of labelled pairs (premise, hypothesis; 0 entailment, 1 neutral, 2 contradiction) of several files.

    Premises come in the order of their first appearance in any row, their rows in file order. `per_premise` is one of
    PER_PREMISE. `names` of the sources go into ids and reasons.
    """
    read = _Read(sources, 2, names)
    pairs = pd.DataFrame(read.table, columns=["premise", "hypothesis"])
    pairs["label"], pairs["row"] = np.frombuffer(read.labels, dtype=np.int8), np.arange(len(pairs))
    pairs["place"] = pd.factorize(pairs["premise"])[0]
    premises = pairs["premise"].nunique()
    same, neutral = pairs["premise"] == pairs["hypothesis"], pairs["label"] == NEUTRAL
    pair = pairs["premise"] * len(read.texts) + pairs["hypothesis"]
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

    origins = made[["row", "row_against"]].to_numpy()
    counts = {
        **read.drop(same.to_numpy(), contradictory.to_numpy(), duplicate.to_numpy()),
        "neutral": int((neutral & ~same).sum()),
        "usable": len(usable),
        "premises": premises,
        "alone": int((usable.groupby("place")["label"].nunique() == 1).sum()),
        "unpaired": len(usable) - len(np.unique(origins)),
        "triplets": len(made),
    }
    table = made[["premise", "hypothesis", "hypothesis_against"]].to_numpy()
    return Triplets(counts, read.skipped, read.texts, table, origins, read)


def checked(sources: Sequence[Iterable[Row | Skipped]], columns: int = 3, *, names: Sequence[str] = ()) -> Triplets:
    """Rows that are triplets already (positive pairs with 2 columns), in file order, without the defective ones."""
    read = _Read(sources, columns, names)
    table, anchor = read.table, read.table[:, 0]
    same = (table[:, 1:] == anchor[:, None]).any(axis=1)
    contradictory = np.zeros(len(table), dtype=bool)
    if columns == 3:
        entailed, contradicted = (anchor * len(read.texts) + side for side in table[:, 1:].T)
        contradictory = (np.isin(entailed, contradicted) | np.isin(contradicted, entailed)) & ~same
    duplicate = pd.DataFrame(table).duplicated().to_numpy() & ~same & ~contradictory
    kept = np.flatnonzero(~(same | contradictory | duplicate))
    counts = {
        **read.drop(same, contradictory, duplicate),
        "neutral": 0,
        "usable": len(kept),
        "premises": len(np.unique(anchor)),
        "alone": 0,
        "unpaired": 0,
        "triplets": len(kept),
    }
    return Triplets(counts, read.skipped, read.texts, table[kept], kept[:, None], read)
