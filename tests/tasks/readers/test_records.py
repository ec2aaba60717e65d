"""Guards: files are cut into records by quoting, encoding and byte order marks, lines are counted, texts have keys.

python -m pytest --import-mode=importlib tests/tasks/readers/test_records.py
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks import readers
from tasks.readers import records
from tasks.readers.records import Record

AB = ("a", "b")


def table(path: Path, quoted: bool = True) -> Iterator[Record]:
    return records.table_records(path, AB, AB, "\t", header=True, quoted=quoted)


def test_the_two_ways_to_read_a_quote(write: Callable) -> None:
    path = write('a\tb\n"say ""yes"""\t"no" he said\n"x\t"y"\n')
    assert list(table(path, quoted=False)) == [(2, ('say "yes"', '"no" he said')), (3, ('"x', '"y"'))]
    whole = write('a\tb\n"one\ttwo\nthree"\tend\nnext\tx\n')
    assert list(table(whole)) == [(2, ("one\ttwo\nthree", "end")), (4, ("next", "x"))]


def test_other_separators_of_lines_end_none(write: Callable) -> None:
    path = write("a\tb\none\u2028line\tx\x85y\x0bz\nlast\tw\n")
    assert list(table(path, quoted=False)) == [(2, ("one\u2028line", "x\x85y\x0bz")), (3, ("last", "w"))]


@pytest.mark.parametrize("quoted", [True, False])
def test_blank_lines_are_no_rows_but_count_as_lines(write: Callable, refusal: Callable, quoted: bool) -> None:
    path = write("\n \na\tb\n\n1\t2\n\n\n3\t4\n5\n")
    assert refusal(table, path, quoted) == "file.csv:9: 1 column, the header has 2"
    rows = table(path, quoted)
    assert [next(rows), next(rows)] == [(5, ("1", "2")), (8, ("3", "4"))]


def test_the_line_that_is_not_utf_8(write: Callable, refusal: Callable) -> None:
    path = write("a\tb\n" + "1\t2\n" * 5000 + "caf\xe9\tx\n", encoding="latin-1")
    assert list(records.line_records(path, "latin-1"))[-1] == (5002, ("caf\xe9\tx",))
    assert refusal(table, path) == "file.csv:5002: not UTF-8 text"
    assert refusal(records.line_records, write("a\nb", encoding="utf-16")) == "file.csv:1: not UTF-8 text"
    for encoding in ("utf-16-le", "utf-16-be"):
        assert refusal(records.line_records, write("ab\n", encoding=encoding)) == "file.csv:1: not text: a NUL byte"


def test_json_lines(write: Callable, refusal: Callable) -> None:
    path = write('\ufeff{"a": "x\\ny", "b": 2.5, "c": [1]}\n\n{"b": "z", "a": 3}\n')
    assert list(records.json_records(path, AB)) == [(1, ("x\ny", "2.5")), (3, ("3", "z"))]
    assert refusal(records.json_records, path, ("a", "c")).startswith("file.csv:1: c: neither text nor a number")
    message = refusal(records.json_records, path, ("a", "d"))
    assert message == "file.csv:1: d: missing; the line has 'a', 'b', 'c'"
    for bad, words in {'{"a": 1\n': "file.csv:1: not JSON", "[1]\n": "file.csv:1: not a JSON object"}.items():
        assert refusal(records.json_records, write(bad), AB).startswith(words)
    for hostile in ('{"a": ' + "[" * 99_999 + "\n", '{"a": ' + "1" * 5_000 + "}\n"):
        assert len(refusal(records.json_records, write(hostile), AB)) < 200


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
