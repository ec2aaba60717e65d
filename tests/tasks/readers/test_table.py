"""Guards: files are cut into rows by quoting, encoding and byte order marks, and lines are counted.

python -m pytest --import-mode=importlib tests/tasks/readers/test_table.py
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.readers.table import DataFile, open_table, table_rows
from tasks.readers.texts import plain_lines


def rows(path: Path, quoted: bool = True, columns: tuple[str, ...] = ("a", "b")) -> list[tuple[int, list[str]]]:
    table = replace(open_table(path), quoted=quoted)
    return list(table_rows(table, columns, "", DataFile(path, 2)))


def test_quotes_are_csvs_or_text(write: Callable) -> None:
    path = write('a\tb\n"say ""yes"""\t"no" he said\n"x\t"y"\n')
    assert rows(path, quoted=False) == [(2, ['say "yes"', '"no" he said']), (3, ['"x', '"y"'])]
    path = write('a\tb\n"one\ttwo\nthree"\tend\nnext\tx\n')
    assert rows(path) == [(2, ["one\ttwo\nthree", "end"]), (4, ["next", "x"])]


def test_only_line_feeds_end_lines(write: Callable) -> None:
    path = write("a\tb\none\u2028line\tx\x85y\x0bz\nlast\tw\n")
    assert rows(path, quoted=False) == [(2, ["one\u2028line", "x\x85y\x0bz"]), (3, ["last", "w"])]


@pytest.mark.parametrize("quoted", [True, False])
def test_blank_lines_count_as_lines(write: Callable, refusal: Callable, quoted: bool) -> None:
    path = write("\n \na\tb\n\n1\t2\n\n\n3\t4\n")
    assert rows(path, quoted) == [(5, ["1", "2"]), (8, ["3", "4"])]
    assert refusal(rows, write("a\tb\n\n1\t2\n5\n"), quoted) == "file.csv:4: 1 column, the header has 2"


def test_undecodable_lines_are_errors(write: Callable, refusal: Callable) -> None:
    path = write("a\tb\n" + "1\t2\n" * 5000 + "caf\xe9\tx\n", encoding="latin-1")
    assert list(plain_lines(path, "latin-1"))[-1] == (5002, "caf\xe9\tx")
    assert refusal(rows, path) == "file.csv:5002: not UTF-8 text"
    nul = "not text: a NUL byte"
    for encoding, problem in {"utf-16": "not UTF-8 text", "utf-16-le": nul, "utf-16-be": nul}.items():
        path = write("ab\n", encoding=encoding)
        assert refusal(lambda path: list(plain_lines(path)), path) == f"file.csv:1: {problem}"


def test_json_lines(write: Callable, refusal: Callable) -> None:
    path = write('\ufeff{"a": "x\\ny", "b": 2.5, "c": [1]}\n\n{"b": "z", "a": 3}\n')
    assert rows(path) == [(1, ["x\ny", "2.5"]), (3, ["3", "z"])]
    assert refusal(rows, path, True, ("a", "c")).startswith("file.csv:1: c: neither text nor a number")
    assert refusal(rows, path, True, ("a", "d")) == "file.csv:1: d: missing; the line has 'a', 'b', 'c'"
    first = '{"a": "x", "b": "y"}\n'
    hostile = ['{"a": ' + "[" * 99_999 + "\n", '{"a": ' + "1" * 5_000 + "}\n", '{"a": "\\u0000"}\n']
    for bad in ('{"a": 1\n', "[1]\n", *hostile):
        message = refusal(rows, write(first + bad))
        assert message.startswith("file.csv:2: ") and len(message) < 200
