"""The files of Stanford's CS 224N default project: TAB-separated, quoted as csv does, columns by name."""

from collections.abc import Mapping

_LABELS = {"single": "sentiment", "pair-class": "is_duplicate", "pair-score": "similarity", "pair": ""}
"""Kind -> the course's name of the label."""


def has_names(columns: Mapping[str, str], kind: str) -> bool:
    """Whether the names of a header, by text, `label` or `id`, are the course's; test files have no label."""
    if kind not in _LABELS or "id" not in columns:
        return False
    expected = {role: role for role in columns}
    if "label" in columns:
        expected["label"] = _LABELS[kind]
    return columns == expected


def clean_sentence(text: str) -> str:
    """The course's preprocessing of a single sentence: lower case, surrounding white space removed."""
    return text.lower().strip()


def clean_pair(text: str) -> str:
    """The course's preprocessing of a sentence of a pair: lower case, a space before . ? , ', single spaces."""
    spaced = text.lower().replace(".", " .").replace("?", " ?").replace(",", " ,").replace("'", " '")
    return " ".join(spaced.split())
