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
    """How many `rows` a scored set has, how many are the `same` as a row elsewhere, how many are `sharing` a text."""

    rows: int
    same: int
    sharing: int


class ScoredRows:
    """The scored rows of some sets, single texts or pairs, in which the rows of other files are looked up."""

    def __init__(self, sets: Mapping[str, Sequence[Texts]]) -> None:
        self._numbers: dict[str, int] = {}
        self._rows = {name: [self._numbered(row) for row in rows] for name, rows in sets.items()}
        self._distinct = {name: set(rows) for name, rows in self._rows.items()}

    def _numbered(self, row: Texts) -> Numbers:
        return tuple(sorted(self._numbers.setdefault(text_key(text), len(self._numbers)) for text in row))

    def numbers_in(self, row: Texts) -> set[Numbers]:
        """The scored texts in a row of another file, one to three texts, and every two of them as a pair."""
        numbers = sorted(self._numbers[key] for key in map(text_key, row) if key in self._numbers)
        return {*combinations(numbers, 1), *combinations(numbers, 2)}

    def numbers_in_all(self, rows: Iterable[Texts]) -> set[Numbers]:
        """The scored texts and pairs in some rows."""
        return set().union(*map(self.numbers_in, rows))

    def holds(self, name: str, row: Texts) -> bool:
        """Whether a row of another file has a row of the set `name`."""
        return not self.numbers_in(row).isdisjoint(self._distinct[name])

    def overlap(self, name: str, texts: Collection[Numbers]) -> Overlap:
        """Count the rows of the set `name` among `texts`, the scored texts and pairs in other rows."""
        rows = self._rows[name]
        same = sum(row in texts for row in rows)
        return Overlap(len(rows), same, sum(any((number,) in texts for number in row) for row in rows))
