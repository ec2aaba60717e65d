"""Guards: the check reports every file, goes on past a broken one, and counts overlaps as a plain loop over rows does.

python -m pytest --import-mode=importlib tests/data/test_check.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/data/test_check.py -m realdata
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from minbert.errors import UserError
from minbert.token_cache import Row
from tasks.data.__main__ import check
from tasks.data.check import duplicates, frame, overlaps, report

STS = "\tid\tsentence1\tsentence2\tsimilarity\n"
TRAIN = [
    ("A man plays the guitar.", "A woman plays a flute.", "1.5"),
    ("Two dogs run over the green field today", "A bird sits on the roof", "0.5"),
    ("It rains", "The sun shines", "2.0"),
    ("the sun shines!", "it rains", "1.0"),
]
Texts = list[tuple[str, ...]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Course STS with a train and a dev file, question pairs with gaps, and one subset of STS12."""
    course, sts12 = tmp_path / "course", tmp_path / "senteval" / "downstream" / "STS" / "STS12-en-test"
    course.mkdir()
    sts12.mkdir(parents=True)
    rows = "".join(f"{i}\tt{i}\t{a}\t{b}\t{score}\n" for i, (a, b, score) in enumerate(TRAIN))
    (course / "sts-train.csv").write_text(STS + rows, encoding="utf-8")
    dev = "0\td0\tA bird sits on the roof\ttwo dogs run over the green field now today\t1.0\n1\td1\tSnow\tIce\t4.0\n"
    (course / "sts-dev.csv").write_text(STS + dev, encoding="utf-8")
    questions = (
        "\tid\tsentence1\tsentence2\tis_duplicate\n0\tq0\tWho?\tWhat?\t1.0\n1\tq1\tWhy?\t\t0.0\n2\tq2\tA?\tB?\t\n"
    )
    (course / "quora-train.csv").write_text(questions, encoding="utf-8")
    pairs = "a man plays the guitar .\ta woman plays a flute .\nno score\there\n"
    (sts12 / "STS.input.MSRvid.txt").write_text(pairs, encoding="utf-8")
    (sts12 / "STS.gs.MSRvid.txt").write_text("3.2\n\n", encoding="utf-8")
    return tmp_path


def find(rows: list[dict[str, Any]], **what: str) -> dict[str, Any]:
    (found,) = [row for row in rows if all(row[name] == value for name, value in what.items())]
    return found


def test_the_report_of_a_small_folder(folder: Path) -> None:
    content = report(folder)
    quora = find(content["files"], file="course/quora-train.csv")
    assert (quora["read"], quora["kept"]) == (3, 1)
    assert quora["skipped"] == [{"line": 3, "why": "sentence2: empty"}, {"line": 4, "why": "is_duplicate: empty"}]
    train = find(content["files"], set="course STS", split="train")
    assert (train["repeated"], train["disagreeing"]) == (1, 1)
    own = find(content["overlaps"], training="course STS train", scored="course STS dev")
    assert (own["rows"], own["same"], own["sharing"]) == (2, 0, 1)
    other = find(content["overlaps"], training="course STS train", scored="STS12 test")
    assert (other["rows"], other["same"], other["training_same"]) == (1, 1, 1)
    for entry in content["files"]:
        assert entry["read"] == entry["kept"] + len(entry["skipped"])


def test_the_command_prints_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(folder)
    screen = capsys.readouterr().out
    assert "1: sentence2: empty (line 3)" in screen
    lines = [" ".join(line.split()) for line in screen.splitlines()]
    assert "course STS train STS12 test 1 1 (100.0%) 1 (100.0%) 1 of 4" in lines


def test_a_broken_file_is_named_and_the_others_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "course" / "sts-dev.csv"
    path.write_text(STS + "0\td0\tSnow\tIce\tfar\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"1 of 4 files are broken, the first: .*sts-dev.csv:2: similarity: 'far' is not"
    ):
        check(folder)
    assert "Broken files, left out above" in capsys.readouterr().out
    assert sum("kept" in entry for entry in report(folder)["files"]) == 3


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum()) or text


def by_hand(rows: Texts, others: Texts) -> tuple[int, int]:
    """The rows that are among the others, and those that share a text with them."""
    there, texts = [[plain(text) for text in row] for row in others], {plain(text) for row in others for text in row}
    there += [row[::-1] for row in there if len(row) == 2]
    same = sum([plain(text) for text in row] in there for row in rows)
    return same, sum(any(plain(text) in texts - {""} for text in row) for row in rows)


def made(rows: Texts, values: list[float] | None = None) -> pd.DataFrame:
    values = values or [math.nan] * len(rows)
    return frame([Row(str(n), row, value) for n, (row, value) in enumerate(zip(rows, values, strict=True))])


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_overlaps_are_those_of_a_plain_loop(columns: int) -> None:
    generator = np.random.default_rng(columns)
    words = ["dog", "cat", "girl"] if columns > 1 else [f"word{n}" for n in range(50)]
    pool = [form for word in words for form in (word, f"{word.title()} .", f"the {word}!")] + ["", "?"]
    train, test = ([tuple(generator.choice(pool, columns).tolist()) for _ in range(count)] for count in (60, 45))
    (pair,) = overlaps({("A", "train"): made(train), ("B", "test"): made(test)})
    assert (pair["same"], pair["sharing"]) == by_hand(test, train) and pair["same"]
    assert pair["training_same"] == by_hand(train, test)[0]


def test_duplicates_are_pairs_in_either_order_and_their_labels_are_compared() -> None:
    rows: Texts = [
        ("A dog.", "A cat"),
        ("a dog", "a cat!"),
        ("A CAT", "a dog"),
        ("a dog", "a bird"),
        ("a dog", "a cat"),
    ]
    assert duplicates(made(rows, [1.0, 1.0, 0.0, 0.0, 1.0])) == {"repeated": 3, "disagreeing": 1}
    assert duplicates(made(rows)) == {"repeated": 3, "disagreeing": 0}, "no labels"
    assert duplicates(made([("a", "b", "c"), ("b", "a", "c")]))["repeated"] == 0, "a triplet has an order"


@pytest.fixture(scope="module")
def real(real_data: Path) -> dict[str, Any]:
    return report(real_data)


@pytest.mark.realdata
def test_known_overlaps_of_the_real_files(real: dict[str, Any]) -> None:
    assert all(entry["broken"] is None for entry in real["files"])

    def against(scored: str, training: str = "course STS train") -> dict[str, Any]:
        return find(real["overlaps"], training=training, scored=scored)

    sts = [against(f"STS{year} test") for year in range(12, 17)]
    assert [pair["same"] for pair in sts] == [1061, 526, 1593, 1322, 346]
    assert [pair["rows"] for pair in sts] == [3108, 1500, 3750, 3000, 1186]
    assert [against(f"STS-B {split}")["training_same"] for split in ("test", "dev")] == [961, 1046]
    questions = against("Quora dev", "Quora train")
    assert round(100 * questions["sharing"] / questions["rows"]) == 25 and questions["same"] == 0
    dev = find(real["files"], file="course/quora-dev.csv")
    assert (dev["read"], len(dev["skipped"]), len(dev["noted"])) == (10_108, 1, 1)
