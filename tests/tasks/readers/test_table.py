"""Guards: files are cut into rows by quoting, encoding and byte order marks, and lines are counted.

python -m pytest --import-mode=importlib tests/tasks/readers/test_table.py
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from minbert.token_cache import Row
from tasks.readers import open_as
from tasks.readers.table import open_table, read_lines


def rows(path: Path, quoted: bool = True) -> list[tuple[int, list[str]]]:
    table = replace(open_table(path), quoted=quoted)
    return [(line, list(record.values())) for line, record in table.records()]


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


def test_names_are_different(write: Callable, refusal: Callable) -> None:
    assert refusal(rows, write("a,b,b,,\n1,2,3,4,5\n")) == "file.csv:1: two columns are named 'b'"
    assert rows(write("a,b,,\n1,2,,\n")) == [(2, ["1", "2", ""])]


def test_undecodable_lines_are_errors(write: Callable, refusal: Callable) -> None:
    path = write("a\tb\n" + "1\t2\n" * 5000 + "caf\xe9\tx\n", encoding="latin-1")
    assert list(read_lines(path, "latin-1"))[-1] == "caf\xe9\tx"
    assert refusal(rows, path) == "file.csv:5002: not UTF-8 text"
    assert refusal(rows, write("ab\n", encoding="utf-16")) == "file.csv:1: not UTF-8 text"


def test_json_lines(write: Callable, refusal: Callable) -> None:
    path = write('\ufeff{"text": "x\\ny", "label": 2.0, "c": [1]}\n\n{"label": "3", "text": 7}\n')
    assert open_as(path, "single").rows == [Row("1", ("x\ny",), 2.0), Row("3", ("7",), 3.0)]
    first = '{"text": "x", "label": 1}\n'
    late = '{"text": "y", "label": 1, "split": "test"}\n'
    path = write(first + late)
    assert len(open_as(path, "single").rows) == 2
    assert refusal(open_as, path, "single", "train").endswith(":2: split: the first line has no such key")
    late = '{"text": "y", "label": 1, "id": "b"}\n'
    assert refusal(open_as, write(first + late), "single").endswith(":2: id: the first line has no such key")
    message = refusal(open_as, write(first + '{"text": [1], "label": 1}\n'), "single")
    assert message.startswith("file.csv:2: text: neither text nor a number")
    missing = "file.csv:2: label: missing; the line has 'text'"
    assert refusal(open_as, write(first + '{"text": "y"}\n'), "single") == missing
    assert refusal(open_as, write(first + "{}\n"), "single").startswith("file.csv:2: text: missing")
    absent = open_as(write(first + '{"text": NaN, "label": 1}\n{"text": null, "label": 1}\n'), "single").skipped
    assert [issue.reason for issue in absent] == ["text: empty", "text: empty"]
    for bad in ('{"text": 1\n', "[1]\n", '{"text": "\\u0000", "label": 1}\n', '{"text": "\\ud800", "label": 1}'):
        message = refusal(open_as, write(first + bad), "single")
        assert message.startswith("file.csv:2: ") and len(message) < 200
