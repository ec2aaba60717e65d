"""The rows of all files as numbers, so that files can be compared without holding their texts.

Every distinct sentence, set of words and row has one number in the whole corpus; a file keeps arrays of them.
Axes: `N` rows of a file, `C` texts a row.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from tasks.readers import texts

K = TypeVar("K")


class Numbers(dict[K, int]):
    """Numbers from 0 in the order of first asking: `numbers[key]` gives a new key the next one."""

    def __missing__(self, key: K) -> int:
        number = self[key] = len(self)
        return number


@dataclass
class Part:
    """The kept rows of one file. A pair is the same row in either order; `ordered` tells the orders apart."""

    name: str
    sentences: np.ndarray  # [N, C]
    bags: np.ndarray  # [N, C] sets of words
    rows: np.ndarray  # [N]
    ordered: np.ndarray  # [N]
    lengths: np.ndarray  # [N * C] words
    labels: np.ndarray  # [N], NaN where a row has none
    places: list[str] = field(repr=False)  # where each row stands, as it is shown

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class Corpus:
    """The numbers given so far. Sentence 0 is the empty one."""

    vocabulary: Numbers[str] = field(default_factory=Numbers)
    sentences: Numbers[str] = field(default_factory=lambda: Numbers({"": 0}))
    bags: Numbers[tuple[int, ...]] = field(default_factory=Numbers)
    rows: Numbers[tuple[int, ...]] = field(default_factory=Numbers)

    def part(self, name: str, rows: Iterable[tuple[str, tuple[str, ...], float]]) -> Part:
        """Take in the rows of a file: (place, texts, label), all of them with equally many texts."""
        places, labels, lengths = [], [], []
        sentences: list[int] = []
        bags: list[int] = []
        columns = 1
        for place, row, label in rows:
            places.append(place)
            labels.append(label)
            columns = len(row)
            for text in row:
                parts = texts.words(text)
                lengths.append(len(parts))
                sentences.append(self.sentences[texts.key(text, parts)])
                bags.append(self.bags[tuple(sorted(set(map(self.vocabulary.__getitem__, parts))))])
        table = np.array(sentences, dtype=np.int32).reshape(-1, columns)
        unordered = np.sort(table, axis=1) if columns == 2 else table
        return Part(
            name,
            table,
            np.array(bags, dtype=np.int32).reshape(-1, columns),
            self._rows(unordered),
            self._rows(table),
            np.array(lengths, dtype=np.int32),
            np.array(labels, dtype=np.float64),
            places,
        )

    def _rows(self, table: np.ndarray) -> np.ndarray:
        return np.array([self.rows[tuple(row)] for row in table.tolist()], dtype=np.int32)


def join(name: str, parts: list[Part]) -> Part:
    """Several files of one split, one after the other."""
    if len(parts) == 1:
        return replace(parts[0], name=name)

    def merged(array: str) -> np.ndarray:
        return np.concatenate([getattr(part, array) for part in parts])

    return Part(
        name,
        merged("sentences"),
        merged("bags"),
        merged("rows"),
        merged("ordered"),
        merged("lengths"),
        merged("labels"),
        [f"{part.name} {place}" for part in parts for place in part.places],
    )
