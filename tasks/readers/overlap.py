"""How many scored rows are in the rows of other files.

Texts are compared by `tasks.readers.text_key`, since sets spell, space and tokenise the same sentence differently, and
pairs in either order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from tasks.readers import text_key

Texts = tuple[str, ...]
Numbers = tuple[int, ...]
"""One text or a pair of texts, by their numbers in ascending order."""


class Overlap(NamedTuple):
    """The counts of a scored set: its `rows`, those that are the `same` as another row, those `sharing` a text."""

    rows: int
    same: int
    sharing: int


class ScoredRows:
    """The scored rows of some sets, single texts or pairs, in which the rows of other files are looked up."""

    def __init__(self, sets: Mapping[str, Sequence[Texts]]) -> None:
        self._numbers: dict[str, int] = {}  # of each text key, in order of appearance
        self._rows: dict[str, list[Numbers]] = {}
        for name, rows in sets.items():
            self._rows[name] = [self._number(row) for row in rows]

    def _number(self, row: Texts) -> Numbers:
        numbers = [self._numbers.setdefault(text_key(text), len(self._numbers)) for text in row]
        return tuple(sorted(numbers))

    def numbers_in(self, rows: Iterable[Texts]) -> set[Numbers]:
        """The scored texts among the one to three texts of each of other rows, and every two of a row as a pair."""
        texts: set[Numbers] = set()
        for row in rows:
            numbers = []
            for text in row:
                number = self._numbers.get(text_key(text))
                if number is not None:
                    numbers.append(number)
            numbers.sort()
            texts.update(combinations(numbers, 1), combinations(numbers, 2))
        return texts

    def overlap(self, name: str, texts: Collection[Numbers]) -> Overlap:
        """Count the rows of the set `name` among `texts`, the scored texts and pairs in other rows."""
        same = 0
        sharing = 0
        for row in self._rows[name]:
            same += row in texts
            sharing += any((number,) in texts for number in row)
        return Overlap(len(self._rows[name]), same, sharing)
