"""Meaningless punctuation marks put into a sentence, to change its length and not its sense (EdaCSE, section 3.3).

1 to K marks, the number uniform (EdaCSE, section 5.2). A mark stands directly after a word, never before the first, and
may end the sentence, as in the paper's Table 2; of Chinese text every character is a word, as it is to BERT's
tokenizer. The paper says "randomly" and no more: here each mark and its place are drawn independently, each mark and
each place equally likely, so two marks may meet at one place.
"""

import re
from dataclasses import dataclass

from minbert.errors import UserError, one_of
from minbert.seeds import numpy_generator
from minbert.tokenizer import Tokenizer
from minbert.training.plan import Step
from tasks.augment.replacement import Change, splice
from tasks.examples import E

# EdaCSE, section 5.3 and Tables 12-14: the kinds that the paper compares.
MARKS = {
    "english": ".,!?;:",
    "chinese": "。，！？；：",
    "without-exclamation": ".,;:",
    "chinese-without-exclamation": "。，；：",
    "extra": ".,!?;:[]~|",
}

# The Chinese characters that BERT's tokenizer sets apart.
_CHINESE = (
    "\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
_WORD = re.compile(rf"[{_CHINESE}]|[^\s{_CHINESE}]+")


def places(text: str) -> list[int]:
    """Where a mark may stand, as offsets into the text: after every word; at the end of a text without one."""
    return [match.end() for match in _WORD.finditer(text)] or [len(text)]


def insertions(
    text: str, *, seed: int, epoch: int, key: int, most: int = 3, marks: str = "english"
) -> list[tuple[int, str]]:
    """The 1 to `most` marks to insert, as (offset, mark) by rising offset: a function of the counter and the text.

    The counter is (seed, epoch, key), `key` being the sentence's row. `marks` names a set of `MARKS`; `UserError` for
    another name, or `most` below 1.
    """
    marks = one_of(marks, MARKS, "marks")
    if most < 1:
        raise UserError(f"most: {most} is less than 1")
    generator = numpy_generator(seed, "punctuation", epoch, key)
    free, kinds = places(text), MARKS[marks]
    count = int(generator.integers(1, most, endpoint=True))
    chosen = generator.integers(0, len(free), count), generator.integers(0, len(kinds), count)
    return sorted(((free[place], kinds[mark]) for place, mark in zip(*chosen, strict=True)), key=lambda pair: pair[0])


def insert(text: str, *, seed: int, epoch: int, key: int, most: int = 3, marks: str = "english") -> str:
    """`text` with its `insertions`."""
    found = insertions(text, seed=seed, epoch=epoch, key=key, most=most, marks=marks)
    return splice(text, [Change(offset, offset, mark) for offset, mark in found])


@dataclass(frozen=True)
class Punctuation:
    """In training: column 1 is text number `source` of each row with the marks of the epoch."""

    tokenizer: Tokenizer
    source: int
    seed: int
    most: int
    marks: str = "english"

    def __call__(self, examples: E, batch: Step) -> E:
        """The examples with the marks of this epoch."""
        rows = batch.rows.tolist()
        texts = [self.marked(examples.cache.text(row, self.source), batch.epoch, row) for row in rows]
        changed = ((row, 1) for row in rows)
        return examples.changed(dict(zip(changed, self.tokenizer.encode(texts), strict=True)))

    def marked(self, text: str, epoch: int, row: int) -> str:
        """The text of a row in an epoch."""
        return insert(text, seed=self.seed, epoch=epoch, key=row, most=self.most, marks=self.marks)
