"""Guards: the check lists every file and its skipped rows, goes on past a broken one, and knows the real overlaps.

python -m pytest --import-mode=importlib tests/data/test_check.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/data/test_check.py -m realdata
"""

from pathlib import Path

import pandas as pd
import pytest

from minbert.errors import UserError
from tasks.data.check import CheckedFile, check, overlaps, read_files

STS = "\tid\tsentence1\tsentence2\tsimilarity\n"
TRAIN = [
    ("A man plays the guitar.", "A woman plays a flute.", "1.5"),
    ("Two dogs run over the green field today", "A bird sits on the roof", "0.5"),
    ("It rains", "The sun shines", "2.0"),
    ("the sun shines!", "it rains", "1.0"),
]


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
    (tmp_path / "ids-sst-dev.csv").write_text("\tid\tsentence\tsentiment\n0\ts0\tFine.\t3\n", encoding="utf-8")
    return tmp_path


def read_all(data: Path) -> dict[str, CheckedFile]:
    return {file.name: file for file in read_files(data)}


def counts(pairs: pd.DataFrame, training: str, scored: str) -> tuple[int, int, int]:
    """Scored rows, those that are in the training split, and those that share a text with it."""
    (row,) = pairs[(pairs["training"] == training) & (pairs["scored"] == scored)].itertuples()
    return row.rows, row.same, row.sharing


def test_the_rows_and_the_overlaps_of_a_small_folder(folder: Path) -> None:
    files = read_all(folder)
    assert files["ids-sst-dev.csv"].rows == [("fine.",)], "a file that lies beside the folders"
    quora = files["course/quora-train.csv"]
    assert quora.rows == [("who ?", "what ?")]
    assert quora.skipped == [(3, "sentence2: empty"), (4, "is_duplicate: empty")]
    pairs = overlaps([*files.values()])
    assert counts(pairs, "course STS train", "course STS dev") == (2, 0, 1)
    assert counts(pairs, "course STS train", "STS12 test") == (1, 1, 1)
    assert not len(pairs[pairs["scored"].str.contains("train")])


def test_the_command_prints_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(folder)
    screen = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in screen.splitlines()]
    assert "course/quora-train.csv 3 1 2" in lines, "read, kept, skipped"
    assert lines[lines.index("Skipped rows") + 1 :][:2] == ["course/quora-train.csv", "1: sentence2: empty (line 3)"]
    assert "course STS train STS12 test 1 1 (100.0%) 1 (100.0%)" in lines


def test_a_broken_file_is_named_and_the_others_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "course" / "sts-dev.csv"
    path.write_text(STS + "0\td0\tSnow\tIce\tfar\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"1 of 5 files are broken, the first: .*sts-dev.csv:2: similarity: 'far' is not"
    ):
        check(folder)
    screen = capsys.readouterr().out
    assert f"Broken files, left out above\n  {path}:2: " in screen and "course STS train  STS12 test" in screen


@pytest.mark.realdata
def test_known_overlaps_of_the_real_files(real_data: Path) -> None:
    files = read_all(real_data)
    assert not any(one.broken for one in files.values())
    pairs = overlaps([*files.values()])
    sts = [counts(pairs, "course STS train", f"STS{year} test") for year in range(12, 17)]
    assert [same for _, same, _ in sts] == [1061, 526, 1593, 1322, 346]
    assert [rows for rows, _, _ in sts] == [3108, 1500, 3750, 3000, 1186]
    assert [counts(pairs, "course STS train", f"STS-B {split}")[1] for split in ("test", "dev")] == [951, 1038]
    phrases = [counts(pairs, "SST2 train", f"{name} all")[:2] for name in ("MR", "SUBJ")]
    assert phrases == [(10_662, 5_542), (10_000, 2_107)]
    rows, same, sharing = counts(pairs, "Quora train", "Quora dev")
    assert round(100 * sharing / rows) == 25 and same == 0
    dev = files["course/quora-dev.csv"]
    assert (len(dev.rows), len(dev.skipped), len(dev.noted)) == (10_107, 1, 1)
