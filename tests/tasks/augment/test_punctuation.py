"""Guards: punctuation marks are inserted and nothing else: their number, their places, their kinds, and the same again.

python -m pytest --import-mode=importlib tests/tasks/augment/test_punctuation.py
"""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from tokenizers.normalizers import BertNormalizer

from tasks.augment.punctuation import MARKS, insert, insertion_points, insertions

ENGLISH = "the ferry leaves at noon"
CHINESE = "渡船中午离开"
COUNTER = {"seed": 7, "epoch": 2, "key": 5}
characters = st.characters(exclude_categories=["Cs"], max_codepoint=0x2B81F)
texts = st.one_of(st.text(characters, max_size=30), st.text(alphabet="ab c，渡船中，.", max_size=30))


def without(text: str, pairs: list[tuple[int, str]]) -> str:
    """The text with the marks taken out again, from behind: each stands at its offset plus those before it."""
    for number in reversed(range(len(pairs))):
        offset, mark = pairs[number]
        at = offset + number
        assert text[at] == mark
        text = text[:at] + text[at + 1 :]
    return text


@given(texts, st.integers(1, 7), st.sampled_from(sorted(MARKS)), st.integers(0, 2**40), st.integers(0, 9))
def test_without_marks_it_is_the_original(text: str, most: int, marks: str, key: int, epoch: int) -> None:
    counter = {"seed": 3, "epoch": epoch, "key": key, "most": most, "marks": marks}
    pairs = insertions(text, **counter)
    changed = insert(text, pairs)
    assert 1 <= len(pairs) <= most and len(changed) == len(text) + len(pairs)
    for offset, mark in pairs:
        assert mark in MARKS[marks]
        assert offset in insertion_points(text)
    assert without(changed, pairs) == text


# As in BERT's tokenizer, except that the library leaves out the first 256 characters of extension E.
SEPARATE = BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False)


@given(texts)
def test_marks_follow_words_and_chinese_characters(text: str) -> None:
    words = SEPARATE.normalize_str(text).split()
    ends = insertion_points(text)
    if not words:
        assert ends == [len(text)]
        return
    assert [text[start:end].strip() for start, end in zip([0, *ends], ends)] == words
    assert all(not text[end - 1].isspace() for end in ends)


@pytest.mark.parametrize("most", [2, 5])
def test_number_of_marks_is_uniform(most: int) -> None:
    counts = Counter(len(insertions(ENGLISH, seed=1, epoch=0, key=key, most=most)) for key in range(3000))
    assert set(counts) == set(range(1, most + 1))
    assert chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize(("text", "marks"), [(ENGLISH, "english"), (CHINESE, "chinese"), (ENGLISH, "extra")])
def test_offsets_and_marks_are_uniform(text: str, marks: str) -> None:
    pairs: Counter[tuple[int, str]] = Counter()
    for key in range(2000):
        pairs.update(insertions(text, seed=4, epoch=1, key=key, most=3, marks=marks))
    assert set(pairs) == set(product(insertion_points(text), MARKS[marks]))
    assert chisquare(list(pairs.values())).pvalue > 1e-3


def test_marks_depend_on_counters_alone() -> None:
    first = insertions(ENGLISH, **COUNTER, most=7)
    assert insertions(ENGLISH, **COUNTER, most=7) == first
    for name, value in (("seed", 8), ("epoch", 3), ("key", 6)):
        assert insertions(ENGLISH, **{**COUNTER, name: value}, most=7) != first


def test_sets_are_the_papers() -> None:
    assert set(MARKS["english"]) == {".", ",", "!", "?", ";", ":"}
    assert set(MARKS["extra"]) == {".", ",", "!", "?", ";", ":", "[", "]", "~", "|"}
    assert set(MARKS["english"]) - set(MARKS["without-exclamation"]) == {"!", "?"}
    assert set(MARKS["chinese"]) - set(MARKS["chinese-without-exclamation"]) == {"！", "？"}
    assert not set(MARKS["chinese"]) & set(MARKS["english"]) and len(MARKS["chinese"]) == 6
