"""Insert punctuation marks into a sentence, to change its length but not its meaning (EdaCSE, section 3.3).

From 1 to K marks are inserted (EdaCSE, section 5.2), each directly after a word, possibly the last one, as in the
paper's Table 2. In Chinese text every character is a word, as for BERT's tokenizer. The paper says only "randomly":
here the number of marks, each mark and its offset are chosen independently and uniformly, so an offset may get several.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from minbert.seeds import numpy_generator
from minbert.train.plan import PlannedBatch
from tasks.examples import Examples

# EdaCSE, section 5.3 and Tables 12-14: the sets of marks that the paper compares.
MARKS = {
    "english": ".,!?;:",
    "chinese": "。，！？；：",
    "without-exclamation": ".,;:",
    "chinese-without-exclamation": "。，；：",
    "extra": ".,!?;:[]~|",
}

# The Chinese characters that BERT's tokenizer splits into single tokens.
_CHINESE = (
    "\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
_WORD = re.compile(rf"[{_CHINESE}]|[^\s{_CHINESE}]+")


def insertion_points(text: str) -> list[int]:
    """Offsets at which a mark may be inserted: after every word, or the end of a text without words."""
    return [match.end() for match in _WORD.finditer(text)] or [len(text)]


def insertions(
    text: str, *, seed: int, epoch: int, key: int, most: int, marks: str = "english"
) -> list[tuple[int, str]]:
    """The 1 to `most` marks to insert, each with its offset in the text, in the order of the offsets.

    A pure function of the text and (seed, epoch, key); `key` is the sentence's row. `marks` is a key of `MARKS`.
    """
    generator = numpy_generator(seed, "punctuation", epoch, key)
    offsets = insertion_points(text)
    kinds = MARKS[marks]
    count = int(generator.integers(1, most, endpoint=True))
    chosen_offsets = generator.integers(0, len(offsets), count)
    chosen_marks = generator.integers(0, len(kinds), count)
    pairs = [(offsets[offset], kinds[mark]) for offset, mark in zip(chosen_offsets, chosen_marks, strict=True)]
    return sorted(pairs, key=lambda pair: pair[0])


def insert(text: str, marks: Sequence[tuple[int, str]]) -> str:
    """`text` with the marks that `insertions` gives."""
    # from the end, so that the offsets of the marks before stay right
    for offset, mark in reversed(marks):
        text = text[:offset] + mark + text[offset:]
    return text


@dataclass(frozen=True)
class Punctuation:
    """Augmentation in training: column 1 becomes column 0 of each row with the epoch's marks inserted."""

    seed: int
    most: int
    marks: str = "english"

    def __call__(self, examples: Examples, batch: PlannedBatch) -> Examples:
        """The examples with the marks of the step's epoch inserted."""
        rows = batch.rows.tolist()
        texts = []
        for row in rows:
            text = examples.cache.text(row, 0)
            marks = insertions(text, seed=self.seed, epoch=batch.epoch, key=row, most=self.most, marks=self.marks)
            texts.append(insert(text, marks))
        changes = {}
        for row, ids in zip(rows, examples.tokenizer.encode(texts), strict=True):
            changes[row, 1] = ids
        return examples.changed(changes)
