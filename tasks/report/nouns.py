"""CBCL's Table 2: are the proper nouns of failed pairs rarer in the fine-tuning sentences than those of others?"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from tasks.intervals import RESAMPLES, Interval, interval, resampled
from tasks.report import collect, originals
from tasks.report.collect import Run

EXAMINED = 1300  # dev pairs, as in CBCL, section 6.1
_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_TOKEN = re.compile(rf"{_WORD.pattern}|\d+(?:[.,]\d+)*|[^\w\s]")
_ENDS = frozenset('.?!:"“(')  # after these a capital letter says nothing
Finder = Callable[[str], list[str]]
"""A sentence -> its proper nouns, in order."""


@dataclass(frozen=True)
class Pair:
    """A dev pair as published, whether the run has it right, and its proper nouns with their counts in training."""

    id: str
    texts: tuple[str, ...]
    right: bool
    nouns: dict[str, int]

    @property
    def rarest(self) -> int:
        """The count of the rarest noun."""
        return min(self.nouns.values())


@dataclass(frozen=True)
class Table:
    """The examined pairs, how their nouns were found, and the number of sentences that these were counted in."""

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
    """Words inside a sentence that begin with a capital letter, "I" and its forms aside."""
    return [
        _bare(token)
        for before, token in pairwise(_TOKEN.findall(text))
        if token[0].isupper() and before not in _ENDS and not re.fullmatch(r"I([’'].*)?", token)
    ]


def finder(data: str = "") -> tuple[Finder, str]:
    """NLTK's perceptron tagger (tags NNP and NNPS) where its files lie, else `capitalised`; and which it is."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    from tasks.augment import wordnet

    try:
        folder = wordnet.find(data)
    except UserError:
        folder = None  # neither WordNet nor the tagger beside it is there: said with the table
    tag = wordnet.tagger(folder) if folder else None
    if tag is None:
        return capitalised, "capitalised words inside a sentence (NLTK's tagger is not there)"

    def tagged(text: str) -> list[str]:
        found, before = [], "."
        for token, name in tag(_TOKEN.findall(text)):
            opens = before in _ENDS and token.lower() in ENGLISH_STOP_WORDS  # it takes "Are" for a name there
            if name in ("NNP", "NNPS") and _WORD.fullmatch(token) and not opens:
                found.append(_bare(token))
            before = token
        return found

    return tagged, "NLTK's perceptron tagger (NNP, NNPS)"


def table(run: Run, task: str, *, seed: int, data: Path | None = None, most: int = EXAMINED) -> Table:
    """The proper nouns of `most` labelled dev pairs (0: all), counted over the sentences of all fine-tuning files.

    A noun is counted as a word whatever its case. Pairs are drawn by the counter (seed, "nouns", task). `UserError`
    where the run has no dev rows of `task`, or its data files are gone.
    """
    scored = run.tasks.get(task)
    if run.stage != "multitask" or scored is None or scored.rows is None or not scored.classes:
        raise UserError(f"{run.folder}: has no dev rows of a task {task} with classes")
    rows = scored.rows.labelled()
    chosen = numpy_generator(seed, "nouns", task).permutation(len(rows))[: most or None]
    rows = rows.at(np.sort(chosen))
    texts = {row.id: row.texts for row in originals.rows(run, task, "dev", data)}
    counts, sentences = frequencies(text for name in run.tasks for text in _training(run, name, data))
    find, how = finder(str(data or ""))
    pairs = []
    for place, id_ in enumerate(rows.ids):
        found = dict.fromkeys(noun for text in texts[id_] for noun in find(text))
        unique = {noun.lower(): noun for noun in reversed(found)}
        nouns = {noun: counts[noun.lower()] for noun in found if unique[noun.lower()] == noun}
        pairs.append(Pair(id_, texts[id_], bool(rows.predicted[place] == rows.gold[place]), nouns))
    return Table(pairs, how, sentences)


def _training(run: Run, task: str, data: Path | None) -> Iterable[str]:
    return (text for row in originals.rows(run, task, "train", data) for text in row.texts)


def frequencies(sentences: Iterable[str]) -> tuple[Counter[str], int]:
    """How often each word stands in the sentences, and how many sentences there are."""
    found: Counter[str] = Counter()
    count = 0
    for text in sentences:
        found.update(words(text))
        count += 1
    return found, count


def matched(correct: Sequence[Pair], failed: Sequence[Pair], count: int) -> list[tuple[Pair, Pair, float]]:
    """`count` (correct, failed) pairs of similar topics, each pair used once, and how similar they are.

    Similar is the cosine of their TF-IDF vectors over words, stop words left out; the closest come first.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    if not correct or not failed or not count:
        return []
    how = TfidfVectorizer(tokenizer=words, token_pattern=None, lowercase=False, stop_words=_stop_words())
    vectors = how.fit_transform([" ".join(pair.texts) for pair in (*correct, *failed)])
    # As others use up count - 1 at most, the best one left of a pair is among its `count` nearest.
    search = NearestNeighbors(n_neighbors=min(count, len(correct)), metric="cosine").fit(vectors[: len(correct)])
    away, near = search.kneighbors(vectors[len(correct) :])
    found: dict[int, tuple[int, float]] = {}
    for place in np.argsort(away, axis=None, kind="stable").tolist():
        two, rank = divmod(place, away.shape[1])
        one = int(near[two, rank])
        if two not in found and one not in [taken for taken, _ in found.values()] and len(found) < count:
            found[two] = (one, 1 - float(away[two, rank]))
    return [(correct[one], failed[two], cosine) for two, (one, cosine) in found.items()]


def _stop_words() -> list[str]:
    """scikit-learn's English list, cut into words as the texts are."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return sorted({word for one in ENGLISH_STOP_WORDS for word in words(one)})


def difference(correct: Sequence[Pair], failed: Sequence[Pair], *, seed: int = 0) -> tuple[float, Interval | None]:
    """Failed less correct in the mean of log10(1 + count of the rarest noun), with a bootstrap interval.

    Each side is resampled by itself, by the counter (seed, "nouns", side).
    """
    one, two = (np.log10([1 + pair.rarest for pair in side]) for side in (correct, failed))
    draws = [_means(side, name, seed) for name, side in (("correct", one), ("failed", two))]
    return float(two.mean() - one.mean()), interval(draws[1] - draws[0])


def _means(values: np.ndarray, name: str, seed: int) -> np.ndarray:
    def mean(rows: np.ndarray) -> np.ndarray:
        return np.asarray(values[rows].mean(-1))

    return resampled(mean, len(values), "nouns", name, seed=seed, resamples=RESAMPLES)


def as_markdown(found: Table, shown: int) -> str:
    """The summary over all examined pairs, and Table 2: `shown` correct and failed pairs of similar topics."""
    correct, failed = found.of(right=True), found.of(right=False)
    lines = [
        f"Proper nouns by {found.how}, counted in {found.sentences:,} fine-tuning sentences, whatever their case.", "",
        "| dev pairs | examined | with a proper noun | a noun unseen in training | rarest noun: median count |",
        "|---|---:|---:|---:|---:|",
        *(_summary(name, found, side, right) for name, side, right in
          (("predicted correctly", correct, True), ("predicted incorrectly", failed, False))), "",
    ]  # fmt: skip
    if correct and failed:
        value, around = difference(correct, failed)
        said = "" if around is None else f" (95% bootstrap interval {around.low:+.2f} to {around.high:+.2f})"
        lines += [f"Incorrect less correct, mean of log10(1 + count of the rarest noun): {value:+.2f}{said}.", ""]
    chosen = matched(correct, failed, shown)
    if chosen:
        lines.append("| predicted correctly | noun frequency | predicted incorrectly | noun frequency |")
        lines.append("|---|---|---|---|")
        lines += [f"| {_cells(one)} | {_cells(two)} |" for one, two, _ in chosen]
    return "\n".join(lines).rstrip() + "\n"


def _summary(name: str, found: Table, side: Sequence[Pair], right: bool) -> str:
    examined = sum(pair.right == right for pair in found.pairs)
    if not side:
        return f"| {name} | {examined:,} | 0 | – | – |"
    unseen = sum(pair.rarest == 0 for pair in side)
    median = float(np.median([pair.rarest for pair in side]))
    return f"| {name} | {examined:,} | {len(side):,} | {unseen:,} ({unseen / len(side):.0%}) | {median:g} |"


def _cells(pair: Pair) -> str:
    listed = ", ".join(f"{noun}: {count:,}" for noun, count in pair.nouns.items())
    return f"{_escaped(' / '.join(pair.texts))} | {_escaped(listed)}"


def _escaped(text: str) -> str:
    """A text of the data as one cell of a Markdown table, and no markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", plain)


def write(folder: Path, task: str, *, seed: int, data: Path | None, most: int, shown: int) -> str:
    """The whole as Markdown, of a run folder."""
    return as_markdown(table(collect.read(folder), task, seed=seed, data=data, most=most), shown)
