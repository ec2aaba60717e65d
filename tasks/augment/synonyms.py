"""Synonym replacement in training, by one of three methods (CBCL, section 4.4).

Method 1 replaces each noun, adjective, verb and adverb with probability p; the paper says "each word", but closed-class
words have no synonyms. Method 2 does the same for nouns and adjectives only. Both draw once per row. Method 3, the
paper's best, draws at every step: with probability p a batch is augmented, and then ONE adjective of each sentence is
replaced, alternately the first or the last one that has a synonym.

Letter case is kept, and `a` or `an` before a replaced word is adapted. The rest of the text is unchanged, and so are
labels and row ids. Every replacement is a pure function of (seed, row or step).
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.files import write_atomic
from minbert.seeds import digest, numpy_generator
from minbert.token_cache import TokenCache
from minbert.tokenizer import Tokenizer
from minbert.training import ranks
from minbert.training.plan import Step
from minbert.training.settings import TrainingSettings
from tasks.augment import wordnet
from tasks.augment.punctuation import Change, splice
from tasks.augment.wordnet import KINDS, Tagged, WordNet, tag
from tasks.examples import E, Examples

if TYPE_CHECKING:
    from tasks.augment import SynonymSettings

MOST_ADJECTIVES = 3
"""Adjectives per sentence that method 3 replaces in the last epoch with `--synonyms-grow`."""

Ids = dict[tuple[int, int], list[int]]
"""(row, column) of a changed text -> its new token ids."""


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
    draws = (int.from_bytes(bits[4 * i : 4 * i + 4], "little") for i in range(len(picked)))
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


def article(given: str, word: str) -> str:
    """`a` or `an`, whichever is right before `word`, in the letter case of the old article `given`."""
    right = "an" if takes_an(word) else "a"
    if given.lower() == right:
        return given
    if given[0].islower():
        return right
    return right.upper() if len(word) > 1 and word.isupper() else right.capitalize()


def growing(epoch: int, epochs: int, most: float) -> float:
    """Growing augmentation: the probability in `epoch` (1..epochs), most * epoch / epochs.

    SelfCCL (section 6) names it as future work; the form follows its linear pacing function (section 4.3.2). Raises
    `ValueError` for an epoch outside 1..epochs.
    """
    if not 1 <= epoch <= epochs:
        raise ValueError(f"epoch {epoch} is not between 1 and {epochs}")
    return most * (epoch / epochs)


@dataclass
class Synonyms:
    """Augmentation of the training sets of a run by one of the three methods.

    Methods 1 and 2 rewrite a whole set before training, or before each epoch with `--synonyms-grow`, and write the
    texts before and after to `folder` for inspection. Method 3 rewrites the rows of a batch in the step.
    """

    settings: "SynonymSettings"
    training: TrainingSettings
    tokenizer: Tokenizer
    tagged: Mapping[str, Tagged]
    folder: Path
    _rewritten: dict[str, tuple[int, Ids]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        settings: "SynonymSettings",
        training: TrainingSettings,
        sets: Mapping[str, Examples],
        tokenizer: Tokenizer,
        *,
        data: str,
        folder: Path,
    ) -> tuple["Synonyms", dict[str, Any]]:
        """The augmentation of some sets, and its entry for the manifest; see `synonym_augmentation`."""
        words, method = WordNet(wordnet.find(data), settings.synonyms_senses), int(settings.synonyms)
        tagged = {name: tag(list(_texts(one.cache)), words).only(KINDS[method]) for name, one in sets.items()}
        account = {
            "tagging": sorted({one.tagging for one in tagged.values()}),
            "sets": {
                name: {
                    "texts": len(one),
                    "replaceable words": len(one.places),
                    "coverage": round(one.coverage(method), 4),
                }
                for name, one in tagged.items()
            },
        }
        return cls(settings, training, tokenizer, tagged, folder), {"synonyms": account}

    def __call__(self, examples: E, batch: Step) -> E:
        """The examples with the texts changed for this step."""
        epoch = self._epoch(batch)
        if self.settings.synonyms == "3":
            return examples.changed(self._of_batch(examples.cache, batch, epoch))
        if self._rewritten.get(batch.task, (0, {}))[0] != epoch:
            self._rewritten[batch.task] = epoch, self._rewrite(examples.cache, batch.task, epoch)
        return examples.changed(self._rewritten[batch.task][1])

    def _epoch(self, batch: Step) -> int:
        """The epoch, from 1, that sets the rate of replacement: the current one if it grows, else the last."""
        epochs = self.training.epochs
        # Modulo, because sequential plans number epochs over all tasks.
        return batch.epoch % epochs + 1 if self.settings.synonyms_grow else epochs

    def _of_batch(self, cache: TokenCache, batch: Step, epoch: int) -> Ids:
        how, seed, tagged, new = self.settings, self.training.seed, self.tagged[batch.task], {}
        if not chosen(batch.number, p=how.synonyms_p, seed=seed, name=batch.task):
            return {}
        count = max(1, MOST_ADJECTIVES * epoch // self.training.epochs) if how.synonyms_grow else 1
        places = [(int(row), column) for row in batch.rows for column in range(cache.columns)]
        for row, column in places:
            text, number = cache.text(row, column), row * cache.columns + column
            changes = live(
                tagged, number, text, batch=batch.number, turn=batch.turn, seed=seed, name=batch.task, count=count
            )
            if changes:
                new[row, column] = splice(text, changes)
        return self._tokenised(new)

    def _rewrite(self, cache: TokenCache, name: str, epoch: int) -> Ids:
        how, training, tagged = self.settings, self.training, self.tagged[name]
        p, new, lines = growing(epoch, training.epochs, how.synonyms_p), {}, []
        for number, text in enumerate(_texts(cache)):
            row, column = divmod(number, cache.columns)
            name_of_row = cache.row_id(row)
            changes = drawn(tagged, number, text, p=p, seed=training.seed, row=name_of_row, column=column)
            after = splice(text, changes)
            lines.append((name_of_row, column, text, after))
            if changes:
                new[row, column] = after
        if ranks.rank() == 0:
            suffix = f"-epoch-{epoch}" if how.synonyms_grow else ""
            self._write(self.folder / f"{name}{suffix}.tsv", lines)
        return self._tokenised(new)

    def _write(self, path: Path, lines: list[tuple[str, int, str, str]]) -> None:
        """Write a TSV table with one line per text, changed or not."""
        file = io.StringIO()
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([("id", "column", "before", "after"), *lines])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, file.getvalue())

    def _tokenised(self, texts: Mapping[tuple[int, int], str]) -> Ids:
        return dict(zip(texts, self.tokenizer.encode(list(texts.values())), strict=True))


def _texts(cache: TokenCache) -> Iterator[str]:
    """All texts, row by row; within a row, column by column."""
    return (cache.text(row, column) for row in range(len(cache)) for column in range(cache.columns))
