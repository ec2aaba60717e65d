"""Examples: the rows of a token cache as inputs of the encoder, which both stages collate into ragged batches.

Axes: B rows of a batch.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import numpy as np

from minbert.errors import UserError
from minbert.ragged import Ragged
from minbert.token_cache import TokenCache
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.plan import PlannedBatch

Input = tuple[list[int], list[int]]
"""The token ids and the token types of one sequence."""
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Examples:
    """Rows of a token cache, with the tokenizer and the maximum length used to build batches.

    `changes` holds new token ids (whole texts, no special tokens) by (row, column), from augmentation.
    """

    cache: TokenCache
    tokenizer: Tokenizer
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
        tokens = self.cache.token_counts().sum(1)
        return np.minimum(tokens + self.cache.num_texts + 1, self.max_length)

    def truncated(self, form: str) -> tuple[int, int]:
        """Number of inputs longer than `max_length`, and number of inputs.

        An input of the form `bi` is a text by itself, of the other forms a whole row.
        """
        tokens = self.cache.token_counts()
        if form == "bi" or self.cache.num_texts == 1:
            lengths = tokens + 2
        else:
            # `paper` has a second [CLS], before the second text
            special = 4 if form == "paper" else 3
            lengths = tokens.sum(1) + special
        return int((lengths > self.max_length).sum()), lengths.size

    def changed(self, changes: Mapping[tuple[int, int], Sequence[int]]) -> Self:
        """The same rows, with the given token ids in place of the cached ones; see `changes` of the class."""
        return replace(self, changes=changes) if changes else self

    def ids(self, row: int, column: int) -> list[int]:
        """Token ids of one text, neither truncated nor with special tokens."""
        if (row, column) in self.changes:
            return list(self.changes[row, column])
        return self.cache.ids(row, column).tolist()

    def sentence(self, row: int, column: int) -> list[int]:
        """[CLS] text [SEP] of one text, truncated to `max_length`."""
        return [self.tokenizer.cls, *self.ids(row, column)[: self.max_length - 2], self.tokenizer.sep]

    def joined(self, row: int, form: str = "cross") -> Input:
        """Both texts of a row in one sequence.

        `cross`: [CLS] a [SEP] b [SEP], token types 0 and 1. `paper`: [CLS] a [SEP] [CLS] b [SEP], token type 0.
        """
        cls = self.tokenizer.cls
        sep = self.tokenizer.sep
        if form == "paper":
            first, second = self._truncate_pair(row, special=4)
            ids = [cls, *first, sep, cls, *second, sep]
            return ids, [0] * len(ids)
        first, second = self._truncate_pair(row, special=3)
        ids = [cls, *first, sep, *second, sep]
        return ids, [0] * (len(first) + 2) + [1] * (len(second) + 1)

    def ragged(self, rows: np.ndarray, form: str = "") -> Ragged:
        """One batch of rows: B sequences [CLS] a [SEP] of single sentences, whatever the form.

        Of pairs, `cross` and `paper` give the B sequences of `joined`. `bi` gives 2B: [CLS] a [SEP] of every row, then
        [CLS] b [SEP] of every row. `joint` gives 3B: the B of `cross`, then the 2B of `bi`.
        """
        if self.cache.num_texts == 1:
            return Ragged.from_lists([self.sentence(row, 0) for row in rows])
        sentences = []
        if form in ("bi", "joint"):
            for column in (0, 1):
                sentences += [self.sentence(row, column) for row in rows]
        if form == "bi":
            return Ragged.from_lists(sentences)
        ids = []
        types = []
        for row in rows:
            ids_of_pair, types_of_pair = self.joined(row, form)
            ids.append(ids_of_pair)
            types.append(types_of_pair)
        for sentence in sentences:
            ids.append(sentence)
            types.append([0] * len(sentence))
        return Ragged.from_lists(ids, types)

    def _truncate_pair(self, row: int, special: int) -> tuple[list[int], list[int]]:
        """Both texts, truncated longest first until they fit; the longer one keeps the extra token of an odd room."""
        first = self.ids(row, 0)
        second = self.ids(row, 1)
        room = self.max_length - special
        if len(first) + len(second) <= room:
            return first, second
        # where cutting the longer text, token by token, would end
        shorter = min(len(first), len(second), room // 2)
        kept = room - shorter if len(first) > len(second) else shorter
        return first[:kept], second[: room - kept]


def check_vocabulary(source: str, examples: Examples, *, allow: bool) -> None:
    """Warn if the tokenizer's vocabulary lacks over 5% of the tokens of a file.

    Raises `UserError` above 50%, unless `allow`: such texts are of another language than the vocabulary.
    """
    token_ids = examples.cache.token_ids
    if not len(token_ids):
        return
    share = float(np.mean(token_ids == examples.tokenizer.unknown))
    message = f"{source}: {share:.0%} of the tokens are unknown to the encoder's vocabulary"
    if share > 0.5 and not allow:
        raise UserError(f"{message}; choose weights for this language, or go on with --allow-unknown")
    if share > 0.05:
        distributed.note(message)


def note_truncated(source: str, examples: Examples, form: str) -> None:
    """Warn if inputs are longer than the maximum length; `form` is as in `Examples.truncated`."""
    longer, count = examples.truncated(form)
    if longer:
        length = examples.max_length
        distributed.note(f"{source}: {longer:,} of {count:,} inputs cut to {length} tokens")


Augmentation = Callable[[Examples, PlannedBatch], Examples]
"""Function from the examples and a step to the examples with some of that step's texts changed."""


def distinct(texts: Iterable[K]) -> tuple[list[K], np.ndarray]:
    """The different texts in order of appearance, and each text's number among them: int64 [texts]."""
    numbers: dict[K, int] = {}
    index = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), dtype=np.int64)
    return list(numbers), index


def unchanged(examples: Examples, batch: PlannedBatch) -> Examples:
    """No augmentation."""
    return examples
