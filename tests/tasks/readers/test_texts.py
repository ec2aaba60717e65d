"""Guards: which texts are the same text, and what their words are.

python -m pytest --import-mode=importlib tests/tasks/readers/test_texts.py
"""

import pytest

from tasks import readers


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A man, playing  a guitar.", "a man , playing a guitar ."),
        ("Don't!", "do n't"),
        ("ＡＢＣ　１２", "abc 12"),
        ("怎么 开通？", "怎么开通"),
        ("STRASSE", "straße"),
        ("?!", " ? ! "),
        ("你好，世界！", "你好 世界"),
    ],
)
def test_case_width_white_space_and_punctuation_do_not_count(one: str, other: str) -> None:
    assert readers.text_key(one) == readers.text_key(other)


@pytest.mark.parametrize(
    ("one", "other"), [("a cat", "a cut"), ("?", "!"), ("", "."), ("8 men", "9 men"), ("花", "话")]
)
def test_letters_and_digits_do(one: str, other: str) -> None:
    assert readers.text_key(one) != readers.text_key(other)


def test_words_are_runs_of_letters_and_digits_and_single_chinese_characters() -> None:
    assert readers.words("It 's 2nd-rate, THE_END") == ["it", "s", "2nd", "rate", "the", "end"]
    assert readers.words("用iPhone付款") == ["用", "iphone", "付", "款"]
