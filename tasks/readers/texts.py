"""What makes two texts the same text, and the words a text is made of.

Same text: the letters and digits of both are the same, case and width aside; white space, punctuation and symbols do
not count. So the raw and the tokenised form of a sentence are the same text. Words: runs of letters and digits; a
Chinese, Japanese kana or compatibility ideograph is a word by itself.
"""

import re
import unicodedata

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_ALONE}]|[^\\W_{_ALONE}]+")


def words(text: str) -> list[str]:
    """The words of a text in order, case and width folded."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def key(text: str, parts: list[str] | None = None) -> str:
    """What equal texts share, from a text and its `words`; a text without letters and digits is its marks."""
    return "".join(words(text) if parts is None else parts) or "".join(text.split())
