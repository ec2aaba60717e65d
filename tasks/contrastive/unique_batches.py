"""Batches in which no text is contrasted with itself or its positive: rows exchanged between those of an epoch.

With in-batch negatives, an anchor or positive that stands in two rows of a batch would be contrasted with itself, or
with its own positive in the other row.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np

from tasks.examples import Examples, distinct


def sentence_numbers(examples: Examples) -> np.ndarray:
    """A number for every text, int64 [rows, k], equal for those that the encoder sees as one."""
    shape = (len(examples), examples.cache.num_texts)
    _, numbers = distinct(tuple(examples.sentence(row, column)) for row, column in np.ndindex(shape))
    return numbers.reshape(shape)


def separate_repeats(batches: Sequence[np.ndarray], limits: Sequence[int], texts: np.ndarray) -> list[np.ndarray]:
    """The batches with rows exchanged, so that no anchor or positive stands in two rows of a batch.

    `texts` [N, k] has a number for every text of a row, equal for equal texts: anchor, positive and, in column 2, the
    hard negative, which may be that of another row too. A row goes to a later batch if there is one that it fits, in
    exchange for a row of that one. Sizes stay, an epoch keeps its rows, and no row moves to a step at which it
    is not eligible yet. Rows that fit no batch stay, such as those of a text that is in more rows than there are
    batches.
    """
    batches = [batch.copy() for batch in batches]
    index = _TextIndex(batches, texts)
    for number, batch in enumerate(batches):
        for position in index.repeated_positions(batch.tolist()):
            row = int(batch[position])
            if index.clashes_with_all(row):
                continue
            rest = np.delete(batch, position)
            later_first = chain(range(number + 1, len(batches)), range(number))
            fitting = (target for target in later_first if row < limits[target] and not index.clashes(row, target))
            partner = _find_partner(batches, list(islice(fitting, 1)), rest, limits[number], index)
            if partner is None:
                # rare, and many batches: their rows are compared in one go
                partner = _find_partner(batches, list(fitting), rest, limits[number], index)
            if partner is not None:
                target, other = partner
                batch[position] = other
                batches[target][batches[target] == other] = row
                index.move(row, number, target)
                index.move(other, target, number)
    return batches


def _find_partner(
    batches: Sequence[np.ndarray], targets: Sequence[int], rest: np.ndarray, limit: int, index: "_TextIndex"
) -> tuple[int, int] | None:
    """The batch and the number of the first row in `targets` that is below `limit` and fits beside the rows `rest`."""
    if not targets:
        return None
    rows = np.concatenate([batches[target] for target in targets])
    fitting = np.flatnonzero((rows < limit) & ~index.clash_with(rows, rest))
    if not len(fitting):
        return None
    batch_of_row = np.repeat(targets, [len(batches[target]) for target in targets])
    first = fitting[0]
    return int(batch_of_row[first]), int(rows[first])


class _TextIndex:
    """Which batches hold a text, and in how many of their rows.

    A row clashes with a batch if one of its anchors and positives is any text of the batch, or if its hard negative is
    an anchor or a positive of the batch.
    """

    def __init__(self, batches: Sequence[np.ndarray], texts: np.ndarray) -> None:
        self.batch_count = len(batches)
        # A text that occurs once in the epoch clashes with nothing: all such texts get the number 0. With
        # `--equal-steps` a row, and so each of its texts, may occur several times.
        repeated = np.bincount(texts[np.concatenate(batches)].ravel(), minlength=texts.max() + 1) > 1
        texts = np.where(repeated, np.cumsum(repeated), 0)[texts]
        self.text_count = int(repeated.sum()) + 1
        self.columns = texts.T.copy()
        # row -> its anchor and positive (the main texts), and its hard negative; those with the number 0 are left out
        self.main_texts: list[tuple[int, ...]] = [()] * len(texts)
        self.negatives: list[tuple[int, ...]] = [()] * len(texts)
        for row in np.flatnonzero(texts.any(1)).tolist():
            numbers = texts[row].tolist()
            self.main_texts[row] = tuple(filter(None, numbers[:2]))
            self.negatives[row] = tuple(filter(None, numbers[2:]))
        # text -> batch -> number of rows
        self.as_main_text: dict[int, Counter[int]] = defaultdict(Counter)
        self.as_any: dict[int, Counter[int]] = defaultdict(Counter)
        for number, batch in enumerate(batches):
            for row in batch.tolist():
                for counts in self.counts_of(row):
                    counts[number] += 1

    def counts_of(self, row: int) -> Iterator[Counter[int]]:
        """The counts of a row's texts, each by batch."""
        for text in self.main_texts[row]:
            yield self.as_main_text[text]
            yield self.as_any[text]
        for text in self.negatives[row]:
            yield self.as_any[text]

    def move(self, row: int, source: int, target: int) -> None:
        """Count a row of one batch as a row of another."""
        for counts in self.counts_of(row):
            counts[target] += 1
            counts[source] -= 1
            if not counts[source]:
                del counts[source]

    def clashes(self, row: int, batch: int) -> bool:
        """Whether a row clashes with the rows of a batch that are counted."""
        for text in self.main_texts[row]:
            if batch in self.as_any[text]:
                return True
        return any(batch in self.as_main_text[text] for text in self.negatives[row])

    def clash_with(self, rows: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """Whether each of `rows` clashes with one of the rows `rest`: bool [rows]."""
        used = np.zeros(self.text_count, dtype=bool)
        used[self.columns[:2, rest]] = True
        used[0] = False
        negatives_clash = used[self.columns[2:, rows]].any(0)
        used[self.columns[2:, rest]] = True
        used[0] = False
        return negatives_clash | used[self.columns[:2, rows]].any(0)

    def clashes_with_all(self, row: int) -> bool:
        """Whether a row clashes with every batch because of one of its texts."""
        if any(len(self.as_any[text]) == self.batch_count for text in self.main_texts[row]):
            return True
        return any(len(self.as_main_text[text]) == self.batch_count for text in self.negatives[row])

    def repeated_positions(self, batch: Sequence[int]) -> list[int]:
        """The positions in a batch of the rows that clash with an earlier one."""
        positions = []
        main_texts: set[int] = set()
        all_texts: set[int] = set()
        for position, row in enumerate(batch):
            if all_texts.isdisjoint(self.main_texts[row]) and main_texts.isdisjoint(self.negatives[row]):
                main_texts.update(self.main_texts[row])
                all_texts.update(self.main_texts[row], self.negatives[row])
            else:
                positions.append(position)
        return positions
