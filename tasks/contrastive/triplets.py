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

Axes: R rows read, N triplets, P premises.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from minbert.errors import one_of
from minbert.token_cache import Facts, Row, Skipped

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
PER_PREMISE = ("first", "zip", "cross")
"""Of a premise: its first entailment with its first contradiction; its i-th with its i-th; all with all (the papers
say only that triplets are merged on the premise: CBCL, section 5.1; SelfCCL, section 4.2)."""


def fold(text: str) -> str:
    """A text as it is compared: lower case, white space folded."""
    return " ".join(text.lower().split())


@dataclass(frozen=True)
class Counts:
    """Counts of rows and triplets: read = skipped + same_as_anchor + contradictory + duplicates + neutral + usable.

    `skipped` are rows that the reader skipped, `alone` premises with usable rows of one kind only, `unpaired` usable
    rows that are in no triplet.
    """

    read: int
    skipped: int
    same_as_anchor: int
    contradictory: int
    duplicates: int
    neutral: int
    usable: int
    premises: int
    alone: int
    unpaired: int
    triplets: int


@dataclass(frozen=True)
class Triplets:
    """Triplets as numbers of `texts`: `table`, int64 [N, 3]. (N, 2 where a file has no hard negatives.)"""

    counts: Counts
    skipped: tuple[Skipped, ...]
    texts: Sequence[str] = field(repr=False)
    table: np.ndarray = field(repr=False)
    origins: Sequence[np.ndarray] = field(repr=False)  # rows that made it, [N] each: one row, or two
    _read: "_Read" = field(repr=False)

    def __len__(self) -> int:
        return len(self.table)

    def rows(self) -> Iterator[Row | Skipped | Facts]:
        """Every triplet, its id the lines it was made of, as `12-15`; then every row that was dropped; the counts."""
        for number, texts in enumerate(self.table.tolist()):
            places = [int(origin[number]) for origin in self.origins]
            name = "-".join(map(self._read.place, places))
            yield Row(name, tuple(self.texts[text] for text in texts), line=self._read.lines[places[0]])
        yield from self.skipped
        yield {"counts": asdict(self.counts)}


@dataclass
class _Read:
    """The rows of all sources, as numbers of their texts; each distinct text is held once."""

    names: Sequence[str]
    texts: list[str] = field(default_factory=list)
    cells: "array[int]" = field(default_factory=lambda: array("q"))
    labels: "array[int]" = field(default_factory=lambda: array("b"))
    lines: "array[int]" = field(default_factory=lambda: array("q"))
    ends: list[int] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def take(self, sources: Sequence[Iterable[Row | Skipped]], columns: int) -> np.ndarray:
        """Read all sources to their ends: numbers of texts, int64 [R, columns]. A row has its line, or it is its id."""
        assert not self.names or len(self.names) == len(sources), "one name for each source"
        numbers: dict[str, int] = {}
        for source, name in zip(sources, self.names or [""] * len(sources), strict=True):
            for row in source:
                if isinstance(row, Skipped):
                    self.skipped.append(_named(name, row.line, row.why))
                    continue
                assert len(row.texts) == columns, f"a row without {columns} texts"
                for text in row.texts:
                    number = numbers.setdefault(fold(text), len(self.texts))
                    if number == len(self.texts):
                        self.texts.append(text.strip())
                    self.cells.append(number)
                self.labels.append(-1 if math.isnan(row.label) else int(row.label))
                self.lines.append(int(row.line or row.id))
            self.ends.append(len(self.lines))
        return np.frombuffer(self.cells, dtype=np.int64).reshape(-1, columns)

    def source(self, row: int) -> str:
        """The name of a row's source."""
        return self.names[int(np.searchsorted(self.ends, row, side="right"))] if self.names else ""

    def place(self, row: int) -> str:
        """`file:line` of a row, `line` where files have no names."""
        name = self.source(row)
        return f"{name}:{self.lines[row]}" if name else str(self.lines[row])

    def account(self, same: np.ndarray, contradictory: np.ndarray, duplicate: np.ndarray) -> dict[str, int]:
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

    Premises come in the order of their first appearance in any row, their rows in file order. `names` of the sources
    go into ids and reasons. Raises `UserError` where `per_premise` is not one of PER_PREMISE.
    """
    per_premise = one_of(per_premise, PER_PREMISE, "per_premise")
    read = _Read(names)
    premise, hypothesis = read.take(sources, 2).T
    label = np.frombuffer(read.labels, dtype=np.int8)
    assert np.isin(label, (ENTAILMENT, NEUTRAL, CONTRADICTION)).all(), "a pair without a label"
    pair = premise * len(read.texts) + hypothesis
    same, neutral = premise == hypothesis, label == NEUTRAL
    both = np.intersect1d(pair[label == ENTAILMENT], pair[label == CONTRADICTION])
    contradictory = np.isin(pair, both) & ~neutral & ~same
    duplicate = _repeated(pair * 3 + label) & ~neutral & ~same & ~contradictory
    usable = ~(neutral | same | contradictory | duplicate)

    premises, place = _by_appearance(premise)
    entailments, contradictions = (
        rows[np.argsort(place[rows], kind="stable")]
        for rows in (np.flatnonzero(usable & (label == kind)) for kind in (ENTAILMENT, CONTRADICTION))
    )
    has = [np.bincount(place[rows], minlength=premises) for rows in (entailments, contradictions)]
    first, second = _partners(has[0], has[1], per_premise)
    first, second = entailments[first], contradictions[second]
    used = len(np.unique(first)) + len(np.unique(second))
    counts = Counts(
        **read.account(same, contradictory, duplicate),
        neutral=int((neutral & ~same).sum()),
        usable=int(usable.sum()),
        premises=premises,
        alone=int(((has[0] > 0) != (has[1] > 0)).sum()),
        unpaired=int(usable.sum()) - used,
        triplets=len(first),
    )
    table = np.stack([premise[first], hypothesis[first], hypothesis[second]], axis=1)
    return Triplets(counts, tuple(read.skipped), read.texts, table, (first, second), read)


def checked(sources: Sequence[Iterable[Row | Skipped]], columns: int = 3, *, names: Sequence[str] = ()) -> Triplets:
    """Rows that are triplets already (positive pairs with 2 columns), in file order, without the defective ones."""
    read = _Read(names)
    table = read.take(sources, columns)
    width, anchor = len(read.texts), table[:, 0]
    same = (table[:, 1:] == anchor[:, None]).any(axis=1)
    contradictory = np.zeros(len(table), dtype=bool)
    if columns == 3:
        entailed, contradicted = (anchor * width + side for side in table[:, 1:].T)
        contradictory = (np.isin(entailed, contradicted) | np.isin(contradicted, entailed)) & ~same
    key = anchor
    for column in table[:, 1:].T:
        key = np.unique(key, return_inverse=True)[1] * width + column
    duplicate = _repeated(key) & ~same & ~contradictory
    kept = np.flatnonzero(~(same | contradictory | duplicate))
    counts = Counts(
        **read.account(same, contradictory, duplicate),
        neutral=0,
        usable=len(kept),
        premises=len(np.unique(anchor)),
        alone=0,
        unpaired=0,
        triplets=len(kept),
    )
    return Triplets(counts, tuple(read.skipped), read.texts, table[kept], (kept,), read)


def _repeated(keys: np.ndarray) -> np.ndarray:
    """Which keys repeat an earlier one: bool [R]."""
    again = np.ones(len(keys), dtype=bool)
    again[np.unique(keys, return_index=True)[1]] = False
    return again


def _by_appearance(premise: np.ndarray) -> tuple[int, np.ndarray]:
    """How many premises there are, and the place of each row's premise by first appearance: int64 [R]."""
    found, first, which = np.unique(premise, return_index=True, return_inverse=True)
    places = np.empty(len(found), dtype=np.int64)
    places[np.argsort(first)] = np.arange(len(found))
    return len(found), places[which]


def _partners(entailments: np.ndarray, contradictions: np.ndarray, per_premise: str) -> tuple[np.ndarray, np.ndarray]:
    """The entailment and the contradiction of each triplet, as indices into the rows of each kind by premise: [N].

    The arguments are counts [P]. In the cross product each entailment is paired with all contradictions in turn.
    """
    both = np.minimum(entailments, contradictions)
    many = {"first": np.minimum(both, 1), "zip": both, "cross": entailments * contradictions}[per_premise]
    premise = np.repeat(np.arange(len(many)), many)
    within = np.arange(len(premise)) - np.repeat(np.cumsum(many) - many, many)
    width = contradictions[premise] if per_premise == "cross" else 1
    first, second = (within // width, within % width) if per_premise == "cross" else (within, within)
    starts = [np.cumsum(kind) - kind for kind in (entailments, contradictions)]
    return starts[0][premise] + first, starts[1][premise] + second
