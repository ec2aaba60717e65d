"""CBCL's Table 2: are the proper nouns of failed pairs rarer in the fine-tuning sentences than those of others?"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from sklearn.neighbors import NearestNeighbors

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from tasks.intervals import Interval, interval, mean_draws
from tasks.report.annotation import original_rows
from tasks.report.collect import Run
from tasks.tables import MISSING, Table

EXAMINED = 1300  # dev pairs, as in CBCL, section 6.1
_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_TOKEN = re.compile(rf"{_WORD.pattern}|\d+(?:[.,]\d+)*|[^\w\s]")
_ENDS = frozenset('.?!:"“(')  # a capital letter after these does not mark a name
Finder = Callable[[str], list[str]]
"""A sentence -> its proper nouns, in order."""


@dataclass(frozen=True)
class Pair:
    """A dev pair as published, whether its prediction is right, and its proper nouns with their counts in training."""

    id: str
    texts: tuple[str, ...]
    right: bool
    nouns: dict[str, int]

    @property
    def rarest(self) -> int:
        """The count of the rarest noun."""
        return min(self.nouns.values())


@dataclass(frozen=True)
class NounTable:
    """The examined pairs, how their nouns were found, and in how many sentences they were counted."""

    pairs: list[Pair]
    how: str
    sentences: int

    def of(self, *, right: bool) -> list[Pair]:
        """The correct or the failed pairs that hold a proper noun."""
        return [pair for pair in self.pairs if pair.nouns and pair.right == right]


def words(text: str) -> list[str]:
    """The words of a text in lower case, hyphens inside them kept, a possessive 's cut off."""
    return [_bare(word).lower() for word in _WORD.findall(text)]


def _bare(word: str) -> str:
    return re.sub(r"[’']s$", "", word)


def capitalised(text: str) -> list[str]:
    """Words inside a sentence that begin with a capital letter, except "I" and its forms."""
    return [
        _bare(token)
        for before, token in pairwise(_TOKEN.findall(text))
        if token[0].isupper() and before not in _ENDS and not re.fullmatch(r"I([’'].*)?", token)
    ]


def finder(data: str = "") -> tuple[Finder, str]:
    """NLTK's perceptron tagger (tags NNP and NNPS) if it is installed, else `capitalised`; and a name for it."""
    from tasks.augment import wordnet

    try:
        folder = wordnet.find(data)
    except UserError:
        folder = None  # neither WordNet nor the tagger; the table names the method
    tag = wordnet.tagger(folder) if folder else None
    if tag is None:
        return capitalised, "capitalised words inside a sentence (NLTK's tagger is not installed)"

    def tagged(text: str) -> list[str]:
        found, before = [], "."
        for token, name in tag(_TOKEN.findall(text)):
            opens = before in _ENDS and token.lower() in ENGLISH_STOP_WORDS  # it takes "Are" for a name there
            if name in ("NNP", "NNPS") and _WORD.fullmatch(token) and not opens:
                found.append(_bare(token))
            before = token
        return found

    return tagged, "NLTK's perceptron tagger (NNP, NNPS)"


def noun_table(run: Run, task: str, *, seed: int, data: Path | None = None, most: int = EXAMINED) -> NounTable:
    """The proper nouns of `most` labelled dev pairs (0: all), counted over the sentences of all fine-tuning files.

    A noun is counted as a word whatever its case. Pairs are drawn by the counter (seed, "nouns", task). `UserError`
    if the run has no dev rows of `task`, or its data files are missing.
    """
    scored = run.tasks.get(task)
    if not run.multitask or scored is None or scored.rows is None or not scored.classes:
        raise UserError(f"{run.folder}: has no dev rows of a task {task} with classes")
    rows = scored.rows.labelled()
    chosen = numpy_generator(seed, "nouns", task).permutation(len(rows))[: most or None]
    rows = rows.at(np.sort(chosen))
    texts = {row.id: row.texts for row in original_rows(run, task, "dev", data)}
    train = [text for name in run.tasks for row in original_rows(run, name, "train", data) for text in row.texts]
    counts = word_counts(train)
    find, how = finder(str(data or ""))
    pairs = []
    for place, id_ in enumerate(rows.ids):
        found = dict.fromkeys(noun for text in texts[id_] for noun in find(text))
        unique = {noun.lower(): noun for noun in reversed(found)}
        nouns = {noun: counts[noun.lower()] for noun in found if unique[noun.lower()] == noun}
        pairs.append(Pair(id_, texts[id_], bool(rows.predicted[place] == rows.gold[place]), nouns))
    return NounTable(pairs, how, len(train))


def word_counts(sentences: Iterable[str]) -> Counter[str]:
    """The number of occurrences of each word in the sentences."""
    return Counter(word for text in sentences for word in words(text))


def matched(correct: Sequence[Pair], failed: Sequence[Pair], count: int) -> list[tuple[Pair, Pair, float]]:
    """`count` (correct, failed) pairs of similar topics, each pair used once, and how similar they are.

    Similarity is the cosine of TF-IDF vectors over words without stop words; the most similar pairs come first.
    """
    if not correct or not failed or not count:
        return []
    stop_words = sorted({word for one in ENGLISH_STOP_WORDS for word in words(one)})  # cut as the texts are
    how = TfidfVectorizer(tokenizer=words, token_pattern=None, lowercase=False, stop_words=stop_words)
    vectors = how.fit_transform([" ".join(pair.texts) for pair in (*correct, *failed)])
    # Others take at most count - 1 of them, so the best free partner is among the `count` nearest.
    search = NearestNeighbors(n_neighbors=min(count, len(correct)), metric="cosine").fit(vectors[: len(correct)])
    away, near = search.kneighbors(vectors[len(correct) :])
    found: dict[int, tuple[int, float]] = {}
    for place in np.argsort(away, axis=None, kind="stable").tolist():
        two, rank = divmod(place, away.shape[1])
        one = int(near[two, rank])
        if two not in found and one not in [taken for taken, _ in found.values()] and len(found) < count:
            found[two] = (one, 1 - float(away[two, rank]))
    return [(correct[one], failed[two], cosine) for two, (one, cosine) in found.items()]


def difference(correct: Sequence[Pair], failed: Sequence[Pair]) -> tuple[float, Interval | None]:
    """Failed minus correct in the mean of log10(1 + count of the rarest noun), with a bootstrap interval.

    Each side is resampled by itself, by the counter ("nouns", side).
    """
    one, two = (np.log10([1 + pair.rarest for pair in side]) for side in (correct, failed))
    draws = [mean_draws(side, "nouns", name) for name, side in (("correct", one), ("failed", two))]
    return float(two.mean() - one.mean()), interval(draws[1] - draws[0])


def as_markdown(found: NounTable, shown: int) -> str:
    """The summary over all examined pairs, and Table 2: `shown` correct and failed pairs of similar topics."""
    correct, failed = found.of(right=True), found.of(right=False)
    notes = [f"Proper nouns by {found.how}, counted in {found.sentences:,} fine-tuning sentences, whatever their case."]
    if correct and failed:
        value, around = difference(correct, failed)
        spread = "" if around is None else f" (95% bootstrap interval {around.low:+.2f} to {around.high:+.2f})"
        notes.append(f"Incorrect less correct, mean of log10(1 + count of the rarest noun): {value:+.2f}{spread}.")
    rows = [_summary("predicted correctly", found, right=True), _summary("predicted incorrectly", found, right=False)]
    tables = [Table("Proper nouns and failed pairs", pd.DataFrame(rows), tuple(notes))]
    if chosen := matched(correct, failed, shown):
        heads = ["predicted correctly", "noun frequency", "predicted incorrectly", "noun frequency"]
        cells = pd.DataFrame([[*_cells(one), *_cells(two)] for one, two, _ in chosen], columns=heads)
        tables.append(Table("Pairs of similar topics", cells, left=len(heads)))
    return "\n".join(table.markdown() for table in tables).rstrip() + "\n"


def _summary(name: str, found: NounTable, *, right: bool) -> dict[str, str]:
    rarest, examined = [pair.rarest for pair in found.of(right=right)], sum(pair.right == right for pair in found.pairs)
    unseen = rarest.count(0)
    return {
        "dev pairs": name,
        "examined": f"{examined:,}",
        "with a proper noun": f"{len(rarest):,}",
        "a noun unseen in training": f"{unseen:,} ({unseen / len(rarest):.0%})" if rarest else MISSING,
        "rarest noun: median count": f"{np.median(rarest):g}" if rarest else MISSING,
    }


def _cells(pair: Pair) -> list[str]:
    return [" / ".join(pair.texts), ", ".join(f"{noun}: {count:,}" for noun, count in pair.nouns.items())]
