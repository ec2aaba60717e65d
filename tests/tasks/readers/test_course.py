"""Guards: the course's files are read with their quirks, no row is lost in silence, a bad one is named by its place.

python -m pytest --import-mode=importlib tests/tasks/readers/test_course.py
"""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minbert import UserError
from minbert.token_cache import Issue, Row
from tasks import readers

SST = "\tid\tsentence\tsentiment\n"
QUORA = "\tid\tsentence1\tsentence2\tis_duplicate\n"
KINDS = {"sst": ("single", 5), "quora": ("pair-class", 2)}


def course_rows(path: Path, name: str, split: str) -> readers.DataFile:
    kind, classes = KINDS[name]
    return readers.open_as(path, kind, split, classes=classes)


@pytest.fixture
def read(write: Callable[..., Path]) -> Callable[..., readers.DataFile]:
    """A function that writes a file of the course and reads it."""

    def write_and_read(name: str, content: str, split: str = "train") -> readers.DataFile:
        return course_rows(write(content), name, split)

    return write_and_read


def test_sst_sentences_are_cleaned(read: Callable) -> None:
    data = read("sst", SST + "0\tA1B \t It 's A Film .\t3\n17\tc2\t no\t0.0\n")
    assert data.rows == [Row("a1b", ("it 's a film .",), 3.0), Row("c2", ("no",), 0.0)]


def test_pairs_are_cleaned() -> None:
    """CS 224N's preprocess_string, as handed out."""
    assert readers.clean_pair(" Who's  A.B,\tor C? ") == "who 's a .b , or c ?"


def test_quora_train_skips_gaps_by_line(read: Callable) -> None:
    content = QUORA + "0\ta\tx\ty\t0.0\n1\tb\tx\ty\t\n2\tc\tx\t\t1.0\n3\td\t\ty\t\n4\te\tx\ty\t1.0\n"
    data = read("quora", content)
    assert data.rows == [Row("a", ("x", "y"), 0.0), Row("e", ("x", "y"), 1.0)]
    assert data.skipped == [Issue(3, "is_duplicate: empty"), Issue(4, "sentence2: empty"), Issue(5, "sentence1: empty")]


def test_quora_dev_keeps_unlabelled_rows(read: Callable) -> None:
    data = read("quora", QUORA + "1\tb\tx\ty\t\n2\tc\tx\t\t\n4\te\tx\ty\t1.0\n", "dev")
    kept, last = data.rows
    assert (kept.id, kept.texts, kept.line) == ("b", ("x", "y"), 2) and math.isnan(kept.label)
    assert "is_duplicate" in kept.note and "not scored" in kept.note
    assert data.skipped == [Issue(3, "sentence2: empty")]
    assert last == Row("e", ("x", "y"), 1.0)


BAD = [
    ("sst", SST + "0\ta\tx\t5\n", "train", ":2: sentiment: '5'"),
    ("sst", SST + "0\tAb\tx\t1\n1\tc\tx\t1\n2\taB \tx\t1\n", "train", ":4: id: duplicate, first seen on line 2"),
    ("sst", SST + "0\ta\tx\ty\t1\n", "train", ":2: 5 columns"),
    ("sst", SST + '0\ta\t"never closed\t1\n1\tb\tx\t2\n', "train", ":2: malformed quotes"),
]


@pytest.mark.parametrize(("name", "content", "split", "message"), BAD)
def test_error_names_line_and_column(
    read: Callable, refusal: Callable, name: str, content: str, split: str, message: str
) -> None:
    assert refusal(read, name, content, split).startswith(f"file.csv{message}")


cell = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=12)


@given(
    st.lists(st.tuples(cell, cell, st.sampled_from(["0.0", "1.0", "", " "])), min_size=1, max_size=8),
    st.sampled_from(["train", "dev", "test"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_read_is_kept_plus_skipped(tmp_path: Path, rows: list[tuple[str, str, str]], split: str) -> None:
    """Whatever the sentences hold: quotes, tabs, line ends, other scripts."""
    rows = [("a", "b", "1.0"), *rows]  # a file without a usable row is refused
    path = tmp_path / "law.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["", "id", "sentence1", "sentence2", "is_duplicate"])
        writer.writerows([number, f"id{number}", *row] for number, row in enumerate(rows))
    data = course_rows(path, "quora", split)
    assert len(data.rows) + len(data.skipped) == len(rows)
    usable = []
    for number, (first, second, label) in enumerate(rows):
        has_texts = first.split() and second.split()
        has_label = split == "dev" or label.strip()
        if split == "test" or (has_texts and has_label):
            usable.append((f"id{number}", (readers.clean_pair(first), readers.clean_pair(second))))
    assert [(row.id, row.texts) for row in data.rows] == usable


def test_find_file_prefers_the_sub_folder(tmp_path: Path) -> None:
    (tmp_path / "course").mkdir()
    message = r"a\.csv or sts-dev\.csv; python data/get_data\.py course "
    with pytest.raises(UserError, match=message):
        readers.find_file(tmp_path, "course", ["a.csv", "sts-dev.csv"])
    (tmp_path / "a.csv").write_text("x")
    assert readers.find_file(tmp_path, "course", ["a.csv"]) == tmp_path / "a.csv"
    (tmp_path / "course" / "a.csv").write_text("x")
    assert readers.find_file(tmp_path, "course", ["a.csv"]) == tmp_path / "course" / "a.csv"
