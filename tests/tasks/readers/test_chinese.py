"""Guards: the Chinese pairs are recognised by shape, with their byte order marks, line ends, bars and quotes.

python -m pytest --import-mode=importlib tests/tasks/readers/test_chinese.py
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minbert.token_cache import Row, Skipped
from tasks.readers import open_as

A, B, C, D = "今天下雨吗？", "今天会不会下雨", "我想买一张票", '他说"好"'
TWO = [(A, B, 1.0), (C, D, 0.0)]
QUOTED = '"他说""好"""'

FORMS = {
    "ATEC": (f"\ufeff1\t\ufeff{A}\t{B}\t1\r\n2\t{C}\t{QUOTED}\t0\r\n", 1),
    "ATEC with CCKS": (f"text_1\ttext_2\tlabel\n{A}\t{B}\t1\n{C}\t{QUOTED}\t0\n", 2),
    "BQ": (f"\ufeffsentence1,sentence2,label\n{A},{B},1\n{C},{QUOTED},0\n", 2),
    "PAWS-X": (f"id\tsentence1\tsentence2\tlabel\n11\t{A}\t{B}\t1\n12\t{C}\t{D}\t0\n", 2),
    "LCQMC": (f"{A}\t{B}\t1\n{C}\t{D}\t0\n", 1),
    "canonical with CRLF": (f"{A}\t{B}\t1\r\n{C}\t{D}\t0\r\n", 1),
    "cnsd": (f"2012test-0001||{A}||{B}||1\n2012test-0001||{C}||{D}||0\n", 1),
}


def pairs(path: Path, kind: str = "pair-score") -> Iterator[Row | Skipped]:
    return open_as(path, kind).rows


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(write: Callable, form: str) -> None:
    content, first = FORMS[form]
    ids = ["11", "12"] if form == "PAWS-X" else [str(first), str(first + 1)]
    expected = [Row(name, (one, two), label) for name, (one, two, label) in zip(ids, TWO, strict=True)]
    assert list(pairs(write(content))) == expected


def test_a_quote_that_is_no_quoting_stays(write: Callable) -> None:
    (row,) = pairs(write(f'id\tsentence1\tsentence2\tlabel\n1\t"拉斯"前进了。\t{A}"雨"\t0\n'))
    assert row.texts == ('"拉斯"前进了。', f'{A}"雨"')
