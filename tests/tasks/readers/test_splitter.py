"""Guards: files are cut into records by their quoting, encoding and byte order marks, and lines are counted right.

python -m pytest --import-mode=importlib tests/tasks/readers/test_splitter.py
"""

import csv
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minbert import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers import layouts, open_as, splitter

AB = ("a", "b")


def test_the_three_ways_to_take_a_quote(write: Callable) -> None:
    path = write('a\tb\n"say ""yes"""\t"no" he said\n"x\ty\n')
    assert next(splitter.split_records(path, AB, quotes="none")) == (2, ('"say ""yes"""', '"no" he said'))
    by_cell = list(splitter.split_records(path, AB, quotes="cell"))
    assert by_cell == [(2, ('say "yes"', '"no" he said')), (3, ('"x', "y"))]
    whole = write('a\tb\n"one\ttwo\nthree"\tend\nnext\tx\n')
    assert list(splitter.split_records(whole, AB)) == [(2, ("one\ttwo\nthree", "end")), (4, ("next", "x"))]


cell = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\ufeff\r\n\t"), min_size=1, max_size=9)


@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=6), st.sampled_from(["csv", "cell"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
def test_what_csv_writes_is_read_back(tmp_path: Path, pairs: list[tuple[str, str]], quotes: str) -> None:
    with open(tmp_path / "law.tsv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL).writerows([AB, *pairs])
    assert [found for _, found in splitter.split_records(tmp_path / "law.tsv", AB, quotes=quotes)] == pairs


def test_byte_order_marks_before_the_header_and_before_the_first_cell(write: Callable) -> None:
    path = write("\ufeff\ufeffa\tb\r\n\ufeff1\t\ufeffone\r\n2\ttwo\ufeffs\r\n")
    assert list(splitter.split_records(path, AB, quotes="none")) == [(2, ("1", "one")), (3, ("2", "two\ufeffs"))]
    bare = write("\ufeffone\t\ufeff1\n", "bare.tsv")
    assert list(splitter.split_records(bare, AB, names=AB)) == [(1, ("one", "1"))]


def test_only_line_feeds_end_a_line(write: Callable) -> None:
    path = write("a\tb\none\u2028line\tx\x85y\x0bz\rv\nlast\tw\n")
    assert list(splitter.split_records(path, AB, quotes="none")) == [
        (2, ("one\u2028line", "x\x85y\x0bz\rv")),
        (3, ("last", "w")),
    ]


@pytest.mark.parametrize("quotes", ["csv", "cell", "none"])
def test_blank_lines_are_no_rows_but_count_as_lines(write: Callable, refusal: Callable, quotes: str) -> None:
    path = write("a\tb\n\n1\t2\n\n\n3\t4\n5\n")
    message = refusal(splitter.split_records, path, AB)
    assert message == "file.csv:7: 1 column, the header has 2"
    found = splitter.split_records(path, AB, quotes=quotes)
    assert [next(found), next(found)] == [(3, ("1", "2")), (6, ("3", "4"))]


def test_wider_rows_and_a_column_that_ends_them(write: Callable, refusal: Callable) -> None:
    path = write("a\tb\n1\t2\n1\tx\ty\t3\n")
    assert [cells for _, cells in splitter.split_records(path, AB, wider=True)] == [("1", "2"), ("1", "x")]
    assert [cells for _, cells in splitter.split_records(path, AB, wider=True, final="b")] == [("1", "2"), ("1", "3")]
    assert refusal(splitter.split_records, path, AB) == "file.csv:3: 4 columns, the header has 2"
    short = write("a\tb\n1\n")
    assert refusal(lambda: splitter.split_records(short, AB, wider=True)) == "file.csv:2: 1 column, the header has 2"


def test_latin_1_and_the_line_of_a_byte_that_is_not_utf_8(write: Callable, refusal: Callable) -> None:
    path = write("a\tb\n" + "1\t2\n" * 5000 + "caf\xe9\tx\n", encoding="latin-1")
    assert list(splitter.line_records(path, "latin-1"))[-1] == (5002, ("caf\xe9\tx",))
    assert refusal(splitter.split_records, path, AB) == "file.csv:5002: not UTF-8"


def test_json_lines(write: Callable, refusal: Callable) -> None:
    path = write('\ufeff{"a": "x\\ny", "b": 2.5, "c": [1]}\n\n{"b": "z", "a": 3}\n')
    assert list(splitter.json_records(path, AB)) == [(1, ("x\ny", "2.5")), (3, ("3", "z"))]
    assert refusal(splitter.json_records, path, ("a", "c")).startswith("file.csv:1: c: neither text nor a number")
    message = refusal(splitter.json_records, path, ("a", "d"))
    assert message == "file.csv:1: d: missing; the line has 'a', 'b', 'c'"
    for bad, words in {'{"a": 1\n': "file.csv:1: not JSON", "[1]\n": "file.csv:1: not a JSON object"}.items():
        assert refusal(splitter.json_records, write(bad), AB).startswith(words)
    assert refusal(splitter.json_records, write('{"a": true, "b": ""}\n'), AB).startswith("file.csv:1: a: neither")
    for hostile in ('{"a": ' + "[" * 99_999 + "\n", '{"a": ' + "1" * 5_000 + "}\n", '{"a": "\\ud800", "b": ""}\n'):
        assert len(refusal(splitter.json_records, write(hostile), AB)) < 200


@given(st.lists(st.fixed_dictionaries({"a": st.text(max_size=9), "b": st.text(max_size=9)}), min_size=1, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_json_lines_are_read_back(tmp_path: Path, objects: list[dict[str, str]]) -> None:
    path = tmp_path / "law.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8", newline="")
    assert [dict(zip(AB, cells, strict=True)) for _, cells in splitter.json_records(path, AB)] == objects


def head_of(path: Path) -> tuple[list[str], str]:
    head = splitter.Head.of(path)
    return head.keys, head.delimiter


def test_head_tells_tabs_commas_and_json_apart(write: Callable, tmp_path: Path) -> None:
    assert head_of(write('\ufeffa,"b, c"\n')) == (["a", "b, c"], ",")
    assert head_of(write("a, b\tc\n")) == (["a, b", "c"], "\t")
    assert head_of(write('{"a": 1, "b": 2}\n')) == (["a", "b"], "json")
    for bad in (write(""), write(b"\xef\xbb\xbf\n  \n"), tmp_path / "absent.tsv", tmp_path):
        with pytest.raises(UserError, match=str(bad)):
            head_of(bad)


def test_plain_lines(write: Callable) -> None:
    path = write('\ufeffOne sentence. \r\n\r\n  \nTwo "quoted, with a\ttab\u2028and more\n')
    assert list(open_as(path, "lines").rows) == [
        Row("1", ("One sentence.",)),
        Skipped(2, "sentence: empty"),
        Skipped(3, "sentence: empty"),
        Row("4", ('Two "quoted, with a\ttab\u2028and more',)),
    ]


def test_rows_name_the_gap_and_keep_the_order(write: Callable, refusal: Callable) -> None:
    label = layouts.Label(lambda value: value > 1, "is too small", words={"many": 9.0}, gaps={"?": "nobody knows"})
    found = [(2, (" x ", "y", " many ", "I")), (3, ("x", "y", "?", "J")), (5, ("x", " ", "2.5", "K"))]
    assert list(layouts.checked_rows(Path("f"), found, AB, label, ids=True)) == [
        Row("i", ("x", "y"), 9.0),
        Skipped(3, "nobody knows"),
        Skipped(5, "b: empty"),
    ]
    bad = [*found, (6, ("x", "y", "1", "L"))]
    assert refusal(lambda: layouts.checked_rows(Path("f"), bad, AB, label)) == "f:6: label: '1' is too small"
    twice = [*found[:1], (7, ("x", "y", "2", "i "))]
    assert refusal(lambda: layouts.checked_rows(Path("f"), twice, AB, label, ids=True)) == (
        "f:7: id: duplicate, first seen on line 2"
    )


@pytest.mark.parametrize(
    ("label", "good", "bad"),
    [
        (layouts.SCORE, "0 5 2.25 0.0", "-0.1 5.01 nan inf x"),
        (layouts.BINARY, "0 1 0.0 1.0", "2 0.5 nan -1"),
        (layouts.class_label(3), "0 1 2 2.0", "3 1.5 nan"),
        (layouts.ANY_CLASS, "0 7 12.0", "-1 1.5 nan inf"),
    ],
)
def test_label_rules(label: layouts.Label, good: str, bad: str) -> None:
    assert [label.parse(text) for text in good.split()] == [float(text) for text in good.split()]
    for text in [*bad.split(), ""]:
        with pytest.raises(UserError, match=r"^'.*' is n"):
            label.parse(text)


def test_a_long_file_streams_in_little_memory(write: Callable) -> None:
    lines = (f"a first sentence\ta second one\t{number / 60_000}\n" for number in range(60_000))
    path = write("sentence1\tsentence2\tlabel\n" + "".join(lines))
    tracemalloc.start()
    found = layouts.checked_rows(
        path, splitter.split_records(path, ("sentence1", "sentence2", "label")), AB, layouts.SCORE
    )
    assert sum(isinstance(row, Row) for row in found) == 60_000
    assert tracemalloc.get_traced_memory()[1] < 1_000_000, "the file has 2 MB, a list of its rows more"
    tracemalloc.stop()
