"""Synonyms put in their places: the changes of one text, drawn for a row (methods 1, 2) or live for a batch (method 3).

Letter case is kept, `a` and `an` follow the new word, and all else in a text stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from minbert.errors import UserError
from minbert.seeds import digest, numpy_generator
from minbert.token_cache import Row
from tasks.contrastive.synonyms.inflection import article, in_shape
from tasks.contrastive.synonyms.tagging import Tagged

KINDS = {1: "navr", 2: "na", 3: "a"}
"""Method -> the parts of speech it replaces."""


@dataclass(frozen=True)
class Change:
    """One replaced stretch of a text: a word, with the article before it where that changes too."""

    start: int
    end: int
    new: str


def change(text: str, place: Sequence[int], word: str, synonym: str) -> Change:
    """The replacement at one place (see `Tagged`), letter case kept and the article made right.

    `ValueError` where the text is not the one that was tagged.
    """
    before, start, end, _ = place
    old = text[start:end]
    if old.lower() != word:
        raise ValueError(f"{text!r} is not the text that was tagged: {word!r} should be at {start}, not {old!r}")
    new = in_shape(synonym, old)
    if before < 0:
        return Change(start, end, new)
    given, space = text[before:start].rstrip(), text[before:start][len(text[before:start].rstrip()) :]
    right = article(given, new)
    return Change(start, end, new) if right == given else Change(before, end, right + space + new)


def splice(text: str, changes: Sequence[Change]) -> str:
    """The text with all changes made; they are in order and do not overlap."""
    pieces, done = [], 0
    for one in changes:
        pieces += [text[done : one.start], one.new]
        done = one.end
    return "".join([*pieces, text[done:]])


def check_probability(p: float) -> None:
    """`UserError` unless 0 <= p <= 1."""
    if not 0 <= p <= 1:
        raise UserError(f"--p: {p} is not between 0 and 1")


def changes_of(row: Row, tagged: Tagged, first: int, p: float, seed: int) -> list[list[Change]]:
    """The changes of each text of a row whose texts are number `first`, `first` + 1, ... of `tagged`.

    A word is replaced where its draw is below p, so a larger p keeps the replacements of a smaller one and adds to
    them. Draws and choices are of (seed, row id, column, place): nothing else in the file matters.
    """
    found = []
    for column, text in enumerate(row.texts):
        places = tagged.of(first + column)
        draws = numpy_generator(seed, "synonyms", row.id, column).random((len(places), 2)).tolist()
        changes = []
        for place, (draw, pick) in zip(places, draws, strict=True):
            if draw < p:
                options = tagged.candidates[place[3]]
                changes.append(change(text, place, tagged.words[place[3]], options[int(pick * len(options))]))
        found.append(changes)
    return found


class LiveSynonyms:
    """Method 3, in the training step. What it does is a function of (seed, batch number, text number) alone.

    `tagged` holds the texts of a data file; ids are the texts' numbers in it (row * columns + column). Several files
    in one run are told apart by `name`. Batch mates, chunks and ranks change nothing.
    """

    def __init__(self, tagged: Tagged, p: float = 0.25, seed: int = 0, *, name: str = "") -> None:
        check_probability(p)
        self._tagged, self._p, self._seed, self._name = tagged.only(KINDS[3]), p, seed, name

    def chosen(self, batch_number: int) -> bool:
        """Whether a batch is augmented: with probability p."""
        draw = numpy_generator(self._seed, "synonyms live", self._name, batch_number).random()
        return bool(draw < self._p)

    def changes(
        self, batch_number: int, text_number: int, text: str, count: int = 1, turn: int | None = None
    ) -> list[Change]:
        """The changes of one text in a batch that is augmented: `count` adjectives from the front, or from the end.

        Front and end take turns by the parity of `turn`: `batch_number` unless batches of other sets lie in between.
        """
        places = self._tagged.of(text_number)
        picked = places[:count] if (batch_number if turn is None else turn) % 2 == 0 else places[-count:]
        if not picked:
            return []
        bits = digest(self._seed, "synonyms live", self._name, batch_number, text_number)
        found = []
        for number, place in enumerate(picked):
            options = self._tagged.candidates[place[3]]
            draw = int.from_bytes(bits[4 * (number % 8) : 4 * (number % 8) + 4], "little")
            found.append(change(text, place, self._tagged.words[place[3]], options[draw * len(options) >> 32]))
        return found

    def texts(
        self, batch_number: int, ids: Sequence[int], texts: Sequence[str], count: int = 1, turn: int | None = None
    ) -> list[str]:
        """The texts of a batch as they are trained on: unchanged, or all augmented. `count` > 1 is for growing."""
        if count < 1:
            raise ValueError(f"count {count} is less than 1")
        if not self.chosen(batch_number):
            return list(texts)
        pairs = zip(ids, texts, strict=True)
        return [splice(text, self.changes(batch_number, int(number), text, count, turn)) for number, text in pairs]
