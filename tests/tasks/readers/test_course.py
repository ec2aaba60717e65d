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
from minbert.token_cache import Row, Skipped
from tasks import readers

SST, QUORA, STS = "\tid\tsentence\tsentiment\n", "\tid\tsentence1\tsentence2\tis_duplicate\n", ""
STS = "\tid\tsentence1\tsentence2\tsimilarity\n"
KINDS = {"sst": ("single", 5), "quora": ("pair-class", 2), "sts": ("pair-score", None), "cfimdb": ("single", 2)}


def course_rows(path: Path, name: str, split: str) -> list[Row | Skipped]:
    kind, classes = KINDS[name]
    return list(readers.open_as(path, kind, split, classes=classes).rows)


@pytest.fixture
def read(write: Callable[..., Path]) -> Callable[..., list[Row | Skipped]]:
    return lambda kind, content, split="train": course_rows(write(content), kind, split)


@pytest.fixture
def complaint(read: Callable, refusal: Callable[..., str]) -> Callable[..., str]:
    """The message of a reader that must refuse, with the file's name taken off."""
    return lambda *given: refusal(read, *given).removeprefix("file.csv")


def test_sst_has_a_nameless_column_and_a_leading_space(read: Callable) -> None:
    assert read("sst", SST + "0\tA1B \t It 's A Film .\t3\n17\tc2\t no\t0.0\n") == [
        Row("a1b", ("it 's a film .",), 3.0),
        Row("c2", ("no",), 0.0),
    ]


def test_film_reviews_are_binary_and_keep_their_markup(read: Callable, complaint: Callable) -> None:
    review = '0\tR1\t" A ""classic"" .<br /><br />Go <br /> See it ! "\t1\n'
    assert read("cfimdb", SST + review) == [Row("r1", ('a "classic" .<br /><br />go <br /> see it !',), 1.0)]
    assert complaint("cfimdb", SST + "0\tr1\tdull\t2\n").startswith(":2: sentiment: '2'")


def test_pairs_are_preprocessed_as_by_the_course() -> None:
    """CS 224N's preprocess_string, as handed out."""
    assert readers.clean_pair(" Who's  A.B,\tor C? ") == "who 's a .b , or c ?"


def test_quora_train_skips_gaps_by_line(read: Callable) -> None:
    content = QUORA + "0\ta\tx\ty\t0.0\n1\tb\tx\ty\t\n2\tc\tx\t\t1.0\n3\td\t\ty\t\n4\te\tx\ty\t1.0\n"
    assert read("quora", content) == [
        Row("a", ("x", "y"), 0.0),
        Skipped(3, "is_duplicate: empty"),
        Skipped(4, "sentence2: empty"),
        Skipped(5, "sentence1: empty"),
        Row("e", ("x", "y"), 1.0),
    ]


def test_quora_dev_predicts_a_row_without_a_label_and_skips_one_without_a_sentence(read: Callable) -> None:
    kept, skipped, last = read("quora", QUORA + "1\tb\tx\ty\t\n2\tc\tx\t\t\n4\te\tx\ty\t1.0\n", "dev")
    assert (kept.id, kept.texts, kept.line) == ("b", ("x", "y"), 2) and math.isnan(kept.label)
    assert "is_duplicate" in kept.note and "not scored" in kept.note
    assert skipped == Skipped(3, "sentence2: empty")
    assert last == Row("e", ("x", "y"), 1.0)


def test_quora_test_keeps_every_id(read: Callable) -> None:
    rows = read("quora", "\tid\tsentence1\tsentence2\n1\tB\tx\t\n2\tc\t\t\n", "test")
    assert [(row.id, row.texts) for row in rows] == [("b", ("x", "")), ("c", ("", ""))]


BAD = {
    "label 5": ("sst", SST + "0\ta\tx\t5\n", "train", [":2: sentiment: '5'"]),
    "label missing": ("sst", SST + "0\ta\tx\t\n", "dev", [":2: sentiment: ''"]),
    "sst without text": ("sst", SST + "0\ta\t \t1\n", "train", [":2: sentence:"]),
    "sts without text": ("sts", STS + "0\ta\tx\t\t1\n", "test", [":2: sentence2:"]),
    "double id": (
        "quora",
        QUORA + "".join(f"{n}\t{name}\tx\ty\t0.0\n" for n, name in enumerate(["Ab", "cc", "d", "Cc ", "aB ", "d"])),
        "train",
        [":5: id: duplicate", "first seen on line 3"],
    ),
    "empty id": ("sst", SST + "0\t \tx\t1\n", "train", [":2: id:"]),
    "ragged row": ("sst", SST + "0\ta\tx\t1\n1\tb\tx\n", "train", [":3:", "3 columns", "4"]),
    "too wide": ("sst", SST + "0\ta\tx\ty\t1\n", "train", [":2:", "5 columns", "4"]),
    "header only": ("sst", SST, "train", [": ", "no row"]),
    "cut off in a quote": ("sts", STS + '0\ta\t"x"y\tz\t1\n1\tb\t"open\tz\t1\n', "train", [":2:", "quote"]),
    "open quote": ("sst", SST + '0\ta\t"never closed\t1\n1\tb\tx\t2\n', "train", [":2:"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_its_place(complaint: Callable, case: str) -> None:
    kind, content, split, words = BAD[case]
    message = complaint(kind, content, split)
    assert message.startswith(words[0]), message
    for word in words[1:]:
        assert word in message, message


cell = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=12)


@given(
    st.lists(st.tuples(cell, cell, st.sampled_from(["0.0", "1.0", "", " "])), min_size=1, max_size=8),
    st.sampled_from(["train", "dev", "test"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_read_is_kept_plus_skipped(tmp_path: Path, rows: list[tuple[str, str, str]], split: str) -> None:
    """Whatever the sentences hold: quotes, tabs, line ends, other scripts."""
    path = tmp_path / "law.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["", "id", "sentence1", "sentence2", "is_duplicate"])
        writer.writerows([number, f"id{number}", *row] for number, row in enumerate(rows))
    found = course_rows(path, "quora", split)
    assert len(found) == len(rows)
    kept = [row for row in found if isinstance(row, Row)]
    usable = [
        number
        for number, (first, second, label) in enumerate(rows)
        if split == "test" or (first.split() and second.split() and (split == "dev" or label.strip()))
    ]
    assert [row.id for row in kept] == [f"id{number}" for number in usable]
    assert [row.texts for row in kept] == [tuple(readers.clean_pair(text) for text in rows[i][:2]) for i in usable]


def test_find_looks_in_the_sub_folder_first_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "course").mkdir()
    told = r"course holds a\.csv or sts-dev\.csv; python data/get_data\.py course .*\$DATA_DIR \(--data data/sample"
    with pytest.raises(UserError, match=told):
        readers.find_file(tmp_path, "course", ["a.csv", "sts-dev.csv"])
    (tmp_path / "a.csv").write_text("x")
    assert readers.find_file(tmp_path, "course", ["a.csv"]) == tmp_path / "a.csv"
    (tmp_path / "course" / "a.csv").write_text("x")
    assert readers.find_file(tmp_path, "course", ["a.csv"]) == tmp_path / "course" / "a.csv"
