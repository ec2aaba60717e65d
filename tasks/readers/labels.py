"""Label columns: the number that a label's text stands for, or an error that says what is accepted."""

import math
from collections.abc import Callable

from minbert.errors import UserError, short_repr

NLI_CLASSES = ("entailment", "neutral", "contradiction")
POLARITIES = ("negative", "positive")
QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
ParseLabel = Callable[[str], float]
"""From the text of a label to its number; raises `UserError` for an invalid one."""


def parse_number(text: str) -> float:
    """The number that a text is; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    return not math.isnan(parse_number(text))


def parse_class(text: str, count: int | None = None) -> float:
    """A class from 0 to `count` - 1; without a count any whole number from 0."""
    value = parse_number(text)
    if count is None:
        if value >= 0 and value.is_integer():
            return value
        raise UserError(f"{short_repr(text)} is not a whole number from 0")
    if value in range(count):
        return value
    accepted = ", ".join(map(str, range(count)))
    raise UserError(f"{short_repr(text)} is not one of {accepted}")


def parse_score(text: str, lowest: int = 0) -> float:
    """A similarity up to 5."""
    value = parse_number(text)
    if lowest <= value <= 5:
        return value
    raise UserError(f"{short_repr(text)} is not between {lowest} and 5")


def parse_relatedness(text: str) -> float:
    """SICK's relatedness, from 1 to 5."""
    return parse_score(text, lowest=1)


def parse_nli(text: str) -> float:
    """The index in `NLI_CLASSES`; SICK writes the classes in capitals."""
    name = text.strip().lower()
    if name in NLI_CLASSES:
        return float(NLI_CLASSES.index(name))
    raise UserError(f"{short_repr(text)} is not one of {', '.join(NLI_CLASSES)}")


def label_parser(kind: str, column: str, classes: int | None = None) -> ParseLabel:
    """How the label column of a kind of rows is read; `classes` is the number of classes, if it is known."""
    if column == "relatedness_score":
        return parse_relatedness
    if kind == "pair-score":
        return parse_score
    if kind == "nli":
        return parse_nli
    if kind == "pair-class" and classes is None:
        classes = 2
    return lambda text: parse_class(text, classes)
