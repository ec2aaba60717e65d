"""Examples as views of the token cache: rows of sentences, which both stages collate into ragged batches.

Axes: B rows of a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import numpy as np

from minbert.ragged import Ragged
from minbert.token_cache import TokenCache
from minbert.train.plan import PlannedBatch


@dataclass(frozen=True)
class Examples:
    """Rows of a token cache, with the special token ids and the maximum length used to build batches.

    `changes` holds new token ids (whole texts, no special tokens) by (row, column), from augmentation.
    """

    cache: TokenCache
    cls: int
    sep: int
    max_length: int
    changes: Mapping[tuple[int, int], Sequence[int]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.cache)

    @property
    def labels(self) -> np.ndarray:
        """Labels, NaN for rows without one: float64 [rows]."""
        return self.cache.labels

    def lengths(self) -> np.ndarray:
        """Length of each row as one input, with special tokens, for sorting: int [rows]. `paper` has one more."""
        return np.minimum(self.cache.token_counts().sum(1) + self.cache.columns + 1, self.max_length)

    def truncated(self, form: str = "bi") -> tuple[int, int]:
        """Number of inputs longer than `max_length`, and number of inputs: every text by itself."""
        lengths = self.cache.token_counts() + 2
        return int((lengths > self.max_length).sum()), lengths.size

    def changed(self, changes: Mapping[tuple[int, int], Sequence[int]]) -> Self:
        """The same rows, with the given token ids in place of the cached ones; see `changes` of the class."""
        return replace(self, changes=changes) if changes else self

    def ids(self, row: int, column: int) -> list[int]:
        """Token ids of one text, neither truncated nor with special tokens."""
        new = self.changes.get((row, column)) if self.changes else None
        return self.cache.ids(row, column).tolist() if new is None else list(new)

    def sentence(self, row: int, column: int) -> list[int]:
        """[CLS] text [SEP] of one text, truncated to `max_length`."""
        return [self.cls, *self.ids(row, column)[: self.max_length - 2], self.sep]


class Single(Examples):
    """One sentence per row; `form` makes no difference."""

    def ragged(self, rows: np.ndarray, form: str = "") -> Ragged:
        """[CLS] a [SEP] for each row: B sentences."""
        return Ragged.from_lists([self.sentence(row, 0) for row in rows])


class Pair(Examples):
    """Two sentences per row."""

    def ragged(self, rows: np.ndarray, form: str) -> Ragged:
        """`cross`: [CLS] a [SEP] b [SEP], token types 0 and 1. `paper`: [CLS] a [SEP] [CLS] b [SEP], token type 0.

        Both give B sequences. `bi` gives 2B: [CLS] a [SEP] of every row, then [CLS] b [SEP] of every row. `joint` gives
        3B: those of `cross`, then those of `bi`.
        """
        sentences = [self.alone(row, column) for column in (0, 1) for row in rows] if form in ("bi", "joint") else []
        if form == "bi":
            return Ragged.from_lists([ids for ids, _ in sentences])
        joined = [self.joined(row, form) for row in rows] + sentences
        return Ragged.from_lists([ids for ids, _ in joined], [types for _, types in joined])

    def alone(self, row: int, column: int) -> tuple[list[int], list[int]]:
        """Token ids and token types of one text by itself, [CLS] a [SEP]."""
        ids = self.sentence(row, column)
        return ids, [0] * len(ids)

    def joined(self, row: int, form: str = "cross") -> tuple[list[int], list[int]]:
        """Token ids and token types of a row's texts in one sequence, of the form `cross` or `paper` of `ragged`."""
        if form == "paper":
            first, second = self._cut(row, special=4)
            ids = [self.cls, *first, self.sep, self.cls, *second, self.sep]
            return ids, [0] * len(ids)
        first, second = self._cut(row, special=3)
        return [self.cls, *first, self.sep, *second, self.sep], [0] * (len(first) + 2) + [1] * (len(second) + 1)

    def truncated(self, form: str = "bi") -> tuple[int, int]:
        """As `Examples.truncated`; an input of the other forms than `bi` is a whole row."""
        if form == "bi":
            return super().truncated()
        lengths = self.cache.token_counts().sum(1) + (4 if form == "paper" else 3)
        return int((lengths > self.max_length).sum()), len(lengths)

    def _cut(self, row: int, special: int) -> tuple[list[int], list[int]]:
        """Both texts, truncated longest first until they fit; the longer one keeps the extra token of an odd room."""
        first, second = self.ids(row, 0), self.ids(row, 1)
        room = self.max_length - special
        if len(first) + len(second) > room:
            short = min(len(first), len(second), room // 2)
            keep = room - short if len(first) > len(second) else short
            first, second = first[:keep], second[: room - keep]
        return first, second


E = TypeVar("E", bound=Examples)
Augmentation = Callable[[E, PlannedBatch], E]
"""Function from the examples and a step to the examples with some of that step's texts changed."""


def unchanged(examples: E, batch: PlannedBatch) -> E:
    """No augmentation."""
    return examples
