"""CBCL's Table 2: are the proper nouns of failed pairs rarer in the fine-tuning sentences than those of others?"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from tasks.augment import wordnet
from tasks.intervals import Interval, interval, mean_draws
from tasks.report.annotation import original_rows
from tasks.runs import Run
from tasks.tables import MISSING, Table

EXAMINED = 1300  # dev pairs, as in CBCL, section 6.1
_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_TOKEN = re.compile(rf"{_WORD.pattern}|\d+(?:[.,]\d+)*|[^\w\s]")


@dataclass(frozen=True)
class Pair:
    """A dev pair as published, whether its prediction is right, and its proper nouns with their counts in training."""

    texts: tuple[str, ...]
    right: bool
    nouns: dict[str, int]

    @property
    def rarest(self) -> int:
        """The count of the rarest noun."""
        return min(self.nouns.values())


def words(text: str) -> list[str]:
    """The words of a text in lower case, hyphens inside them kept, a possessive 's cut off."""
    return [_bare(word).lower() for word in _WORD.findall(text)]


def _bare(word: str) -> str:
    return re.sub(r"[’']s$", "", word)


def proper_nouns(text: str, tag: wordnet.Tagger) -> list[str]:
    """The words of a text with the tag NNP or NNPS, in order, each once."""
    tagged = tag(_TOKEN.findall(text))
    return list(dict.fromkeys(_bare(token) for token, name in tagged if name in ("NNP", "NNPS") and _WORD.match(token)))


def pairs_of(run: Run, task: str, *, seed: int, data: Path | None = None, most: int = EXAMINED) -> list[Pair]:
    """`most` labelled dev pairs (0: all) with their proper nouns, counted over the sentences of all fine-tuning files.

    A noun is counted as a word whatever its case. Pairs are sampled by the counter (seed, "nouns", task). `UserError`
    if the run has no dev rows of `task`, its data files are missing, or NLTK's tagger is not installed.
    """
    scores = run.tasks.get(task)
    if not run.multitask or scores is None or scores.rows is None or not scores.classes:
        raise UserError(f"{run.folder}: has no dev rows of a task {task} with classes")
    tag = wordnet.tagger(wordnet.find_nltk_data(str(data or "")))
    rows = scores.rows.labelled()
    rows = rows.at(np.sort(numpy_generator(seed, "nouns", task).permutation(len(rows))[: most or None]))
    texts = {row.id: row.texts for row in original_rows(run, task, "dev", data)}
    train = (text for name in run.tasks for row in original_rows(run, name, "train", data) for text in row.texts)
    counts = Counter(word for text in train for word in words(text))
    pairs = []
    for id_, right in zip(rows.ids, rows.predicted == rows.gold, strict=True):
        nouns = [noun for text in texts[id_] for noun in proper_nouns(text, tag)]
        pairs.append(Pair(texts[id_], bool(right), {noun: counts[noun.lower()] for noun in nouns}))
    return pairs


def difference(correct: Sequence[Pair], failed: Sequence[Pair]) -> tuple[float, Interval | None]:
    """Failed minus correct in the mean of log10(1 + count of the rarest noun), with a bootstrap interval.

    Each side is resampled by itself, by the counter ("nouns", side).
    """
    one, two = (np.log10([1 + pair.rarest for pair in side]) for side in (correct, failed))
    samples = [mean_draws(side, "nouns", name) for name, side in (("correct", one), ("failed", two))]
    return float(two.mean() - one.mean()), interval(samples[1] - samples[0])


def tables(pairs: Sequence[Pair], shown: int) -> list[Table]:
    """The summary over all pairs, and `shown` correct and failed pairs of those with the rarest nouns."""
    correct, failed = ([pair for pair in pairs if pair.nouns and pair.right == right] for right in (True, False))
    notes = []
    if correct and failed:
        value, around = difference(correct, failed)
        ends = f" (95% bootstrap interval {around.text(2, sign=True)})" if around else ""
        notes.append(f"Incorrect minus correct, mean of log10(1 + count of the rarest noun): {value:+.2f}{ends}.")
    rows, examples = [], []
    for name, side, right in (("predicted correctly", correct, True), ("predicted incorrectly", failed, False)):
        rarest = [pair.rarest for pair in side]
        unseen = rarest.count(0)
        rows.append(
            {
                "dev pairs": name,
                "examined": f"{sum(pair.right == right for pair in pairs):,}",
                "with a proper noun": f"{len(side):,}",
                "a noun unseen in training": f"{unseen:,} ({unseen / len(side):.0%})" if side else MISSING,
                "rarest noun: median count": f"{np.median(rarest):g}" if side else MISSING,
            }
        )
        for pair in sorted(side, key=lambda pair: pair.rarest)[:shown]:
            nouns = ", ".join(f"{noun}: {count:,}" for noun, count in pair.nouns.items())
            examples.append({"pair": " / ".join(pair.texts), "noun frequency": nouns, "dev pairs": name})
    tables = [Table("Proper nouns and failed pairs", pd.DataFrame(rows), tuple(notes))]
    return [*tables, Table("Pairs with the rarest nouns", pd.DataFrame(examples), left=3)] if examples else tables
