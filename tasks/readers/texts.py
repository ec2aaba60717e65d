"""Equality of texts up to formatting, and their words.

Two texts are equal if their letters and digits are, ignoring case, width, white space, punctuation and symbols. So the
raw and the tokenised form of a sentence are equal. Words are runs of letters and digits; each Chinese character and
each Japanese kana is a word.
"""

import re
import unicodedata

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_ALONE}]|[^\\W_{_ALONE}]+")


def words(text: str) -> list[str]:
    """The words of a text in order, normalised by NFKC and case folding."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def key(text: str, parts: list[str] | None = None) -> str:
    """The key that equal texts share. `parts` are the text's `words`, if known; without words, its other characters."""
    return "".join(words(text) if parts is None else parts) or "".join(text.split())
