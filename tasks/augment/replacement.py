"""Synonym replacement in one text, by one of three methods (CBCL, section 4.4).

Method 1 replaces each noun, adjective, verb and adverb with probability p; the paper says "each word", but closed-class
words have no synonyms. Method 2 does the same for nouns and adjectives only. Both draw once per row. Method 3, the
paper's best, is live: with probability p a batch is augmented, and then ONE adjective of each sentence is replaced,
alternately the first or the last one that has a synonym.

Letter case is kept, and `a` or `an` before a replaced word is adapted. The rest of the text is unchanged.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from minbert.seeds import digest, numpy_generator
from tasks.augment.tagging import Tagged


@dataclass(frozen=True)
class Change:
    """One replaced span of a text: a word, with the article before it if that changes too."""

    start: int
    end: int
    new: str


def splice(text: str, changes: Sequence[Change]) -> str:
    """Apply the changes, which must be sorted and must not overlap."""
    pieces, done = [], 0
    for one in changes:
        pieces += [text[done : one.start], one.new]
        done = one.end
    return "".join([*pieces, text[done:]])


def drawn(tagged: Tagged, number: int, text: str, *, p: float, seed: int, row: str, column: int) -> list[Change]:
    """Methods 1 and 2: the changes of text `number` of `tagged`, in column `column` of the row with the id `row`.

    A word is replaced if its draw is below p, so a larger p keeps the replacements of a smaller p and adds more. Draws
    and choices depend only on (seed, row id, column, place), not on other rows of the file.
    """
    places = tagged.of(number)
    draws = numpy_generator(seed, "synonyms", row, column).random((len(places), 2)).tolist()
    return [_change(tagged, text, place, pick) for place, (draw, pick) in zip(places, draws, strict=True) if draw < p]


def chosen(batch: int, *, p: float, seed: int, name: str = "") -> bool:
    """Method 3: whether batch `batch` of the set `name` is augmented, with probability p."""
    return bool(numpy_generator(seed, "synonyms live", name, batch).random() < p)


def live(
    tagged: Tagged, number: int, text: str, *, batch: int, turn: int, seed: int, name: str = "", count: int = 1
) -> list[Change]:
    """Method 3: the changes of text `number` of `tagged` (adjectives only) in a batch that is augmented.

    Replaces the first `count` adjectives if `turn` is even, else the last `count`. Draws depend only on (seed, name,
    batch, number), not on the other rows of the batch, chunks or ranks.
    """
    places = tagged.of(number)
    picked = places[:count] if turn % 2 == 0 else places[-count:]
    if not picked:
        return []
    bits = digest(seed, "synonyms live", name, batch, number)
    draws = (int.from_bytes(bits[4 * (i % 8) : 4 * (i % 8) + 4], "little") for i in range(len(picked)))
    return [_change(tagged, text, place, draw / 2**32) for place, draw in zip(picked, draws, strict=True)]


def _change(tagged: Tagged, text: str, place: Sequence[int], pick: float) -> Change:
    """The replacement at one place; `pick` in [0, 1) chooses among the synonyms.

    Raises `ValueError` if the text is not the one that was tagged.
    """
    before, start, end, group = place
    old, options = text[start:end], tagged.candidates[group]
    if old.lower() != tagged.words[group]:
        raise ValueError(
            f"{text!r} is not the text that was tagged: {tagged.words[group]!r} should be at {start}, not {old!r}"
        )
    new = in_case(options[int(pick * len(options))], old)
    if before < 0:
        return Change(start, end, new)
    given = text[before:start].rstrip()
    space, right = text[before + len(given) : start], article(given, new)
    return Change(start, end, new) if right == given else Change(before, end, right + space + new)


def in_case(word: str, like: str) -> str:
    """`word` in the letter case of `like`: `large`, `Large` or `LARGE`. Its own capitals (`USA`) are kept."""
    if like.isupper() and len(like) > 1:
        return word.upper()
    return word[0].upper() + word[1:] if like[0].isupper() else word


# Not from the package inflect, which takes longer to import than everything else here.
_SILENT_H = re.compile(r"hour|heir|honest|honou?r")
# Written with a vowel, pronounced with y or w: university, European, one, use, utility. Not: unimportant, utter, urge.
_GLIDE = re.compile(
    r"eu|ewe|one(?![a-z])|once|ouija|ubi|ufo|uk[eru]|unanim|uni(?!n|m|d|gn|ron|rr|ss|sol|llum|tali)|"
    r"us[aeu]|usu|ut[aio]|uten|uter|ur[aeio](?!g)|uv"
)
_SAID_LETTERS = "AEFHILMNORSX"


def takes_an(word: str) -> bool:
    """Whether a word takes `an`: depends on its sound, inferred from its spelling and well-known exceptions."""
    if len(word) > 1 and re.fullmatch(r"[A-Z][B-DF-HJ-NP-TV-XZ]+", word):
        return word[0] in _SAID_LETTERS  # without a vowel it is spelled out: an FM station, a USB stick
    lower = word.lower()
    if lower[0] == "h":
        return _SILENT_H.match(lower) is not None
    return lower[0] in "aeiou" and _GLIDE.match(lower) is None


def article(given: str, before: str) -> str:
    """`a` or `an`, whichever is right before the word `before`, in the letter case of the old article `given`."""
    right = "an" if takes_an(before) else "a"
    if given.lower() == right:
        return given
    if given[0].islower():
        return right
    return right.upper() if len(before) > 1 and before.isupper() else right.capitalize()
