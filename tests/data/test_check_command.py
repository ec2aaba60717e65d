"""Guards: the check reports every file, continues past a broken one, and its numbers add up.

python -m pytest --import-mode=importlib tests/data/test_check_command.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/data/test_check_command.py -m realdata
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minbert.errors import UserError
from minbert.files import sha256_of
from tasks.data.__main__ import check as main
from tasks.data.check.files import sources, split_of
from tasks.data.check.report import report
from tasks.data.check.screen import render

SCRIPT = Path(__file__).parent.parent.parent / "data" / "get_data.py"
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
    return tmp_path


def find(rows: list[dict[str, Any]], **what: str) -> dict[str, Any]:
    (found,) = [row for row in rows if all(row[name] == value for name, value in what.items())]
    return found


def test_the_report_of_a_small_folder(folder: Path) -> None:
    found = report(folder)
    quora = find(found["files"], file="course/quora-train.csv")
    assert (quora["read"], quora["kept"]) == (3, 1)
    assert quora["skipped"] == [{"line": 3, "why": "sentence2: empty"}, {"line": 4, "why": "is_duplicate: empty"}]
    train = find(found["files"], set="course STS", split="train")
    assert train["duplicates"] == {"rows": 1, "swapped": 1, "disagreeing": 1, "examples": [["t2", "t3"]]}
    own = find(found["overlaps"], left="course STS train", right="course STS dev")
    assert own["watched"] and own["of_right"] == {
        "rows": 2,
        "same": 0,
        "same_order": 0,
        "sharing_a_sentence": 1,
    }
    other = find(found["overlaps"], left="course STS train", right="STS12 test")
    assert other["watched"] and other["of_left"]["same"] == other["of_right"]["same"] == 1
    assert other["examples"] == [["t0", "1"]]


def test_every_row_read_is_kept_or_listed(folder: Path) -> None:
    for entry in report(folder)["files"]:
        assert entry["read"] == entry["kept"] + len(entry["skipped"])
        counted = entry["labels"]["missing"] + sum(
            sum(some.values() if isinstance(some, dict) and "min" not in some else some["histogram"]["counts"])
            for some in (entry["labels"]["counts"], entry["labels"]["scores"])
            if some
        )
        assert counted == entry["kept"]
        assert sum(entry["words"]["histogram"].values()) == entry["words"]["texts"]


def test_the_command_prints_tables_and_writes_json(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "check.json"
    main(["--data", str(folder), "--json", str(target)])
    written = json.loads(target.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert written == report(folder)
    screen = capsys.readouterr().out
    assert max(map(len, screen.splitlines())) <= 110
    assert "1: sentence2: empty (line 3)" in screen
    line = next(line for line in screen.splitlines() if line.split()[:2] == ["STS12", "test"])
    assert " ".join(line.split()) == "STS12 test 1 1 100.0% 1 100.0% | 1 25.0% 1 1 25.0%"


def test_a_broken_file_is_named_and_the_others_are_checked(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = folder / "course" / "sts-dev.csv"
    path.write_text(STS + "0\td0\tSnow\tIce\tfar\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"1 of 4 files are broken, the first: .*sts-dev.csv:2: similarity: 'far' is not"
    ):
        main(["--data", str(folder), "--json", str(tmp_path / "out.json")])
    assert "Broken files, left out above" in capsys.readouterr().out
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert written["broken"] == 1 and len(written["splits"]) == 3


@pytest.mark.parametrize("name", ["nothing-there", "empty"])
def test_a_folder_without_data_says_what_helps(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    folder = tmp_path / name
    with pytest.raises(UserError) as caught:
        main(["--data", str(folder)])
    assert f"python data/get_data.py course --data {folder}" in str(caught.value) and "\n" not in str(caught.value)


def test_the_same_rows_under_another_spelling_are_compared_once(folder: Path) -> None:
    for name, text in (("STS/STSBenchmark", "a dog barks ."), ("stsbenchmark", "A dog barks.")):
        place = folder / "senteval" / "downstream" / name
        place.mkdir(parents=True)
        (place / "sts-test.csv").write_text(f"g\tf\t2012\t1\t2.5\t{text}\tIt rains\n", encoding="utf-8")
    found = report(folder)
    assert find(found["splits"], name="STS-B tokenised test")["same_rows_as"] == "STS-B test"
    assert not [one for one in found["overlaps"] if "tokenised" in one["left"] + one["right"]]


def test_the_manifest_of_a_fetched_set_is_held_against_the_files(folder: Path) -> None:
    course = folder / "course"
    files = [{"path": name, "sha256": sha256_of(course / name)} for name in ("sts-train.csv", "sts-dev.csv")]
    files.append({"path": "gone.csv", "sha256": "0"})
    (course / "manifest.json").write_text(json.dumps({"complete": True, "files": files}), encoding="utf-8")
    with open(course / "sts-dev.csv", "a", encoding="utf-8") as file:
        file.write("9\td9\tone\ttwo\t1.0\n")
    (one,) = report(folder)["manifests"]
    assert (one["manifest"], one["complete"], one["files"]) == ("course/manifest.json", True, 3)
    assert (one["missing"], one["changed"], one["broken"]) == (["gone.csv"], ["sts-dev.csv"], None)


def test_files_are_found_directly_in_the_folder_too(folder: Path) -> None:
    inside = {(one.set, one.split) for one in sources(folder / "course")}
    assert inside == {("course STS", "train"), ("course STS", "dev"), ("Quora", "train")}
    assert {one.set for one in sources(folder / "senteval")} == {"STS12"}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("ids-sst-test-student.csv", "test"),
        ("atec_nlp_sim_train.csv", "train"),
        ("ATEC.valid.data", "dev"),
        ("SICK_trial.txt", "dev"),
        ("multinli_1.0_dev_matched.jsonl", "dev"),
        ("constraint.txt", "all"),
    ],
)
def test_splits_are_read_off_names(name: str, split: str) -> None:
    assert split_of(name) == split


def test_a_terminal_without_block_characters_gets_the_tables_too(folder: Path) -> None:
    command = [sys.executable, str(SCRIPT), "check", "--data", str(folder)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True)
    assert b"STS12 test" in done.stdout and not done.stderr


@pytest.fixture(scope="module")
def real(real_data: Path) -> dict[str, Any]:
    return report(real_data)


@pytest.mark.realdata
def test_known_overlaps_of_the_course_similarity_pairs(real: dict[str, Any]) -> None:
    def against(right: str) -> dict[str, Any]:
        return find(real["overlaps"], left="course STS train", right=right)

    scored = [against(f"STS{year} test")["of_right"]["same"] for year in range(12, 17)]
    assert scored == [1061, 526, 1593, 1322, 346]
    rows = [find(real["splits"], name=f"STS{year} test")["rows"] for year in range(12, 17)]
    assert rows == [3108, 1500, 3750, 3000, 1186]
    assert [against(f"STS-B {split}")["of_left"]["same_order"] for split in ("test", "dev")] == [953, 1039]


@pytest.mark.realdata
def test_known_values_of_the_question_pairs_and_of_the_inference_pairs(real: dict[str, Any]) -> None:
    questions = find(real["overlaps"], left="Quora train", right="Quora dev")
    shared, whole = (questions["of_right"][what] for what in ("sharing_a_sentence", "rows"))
    assert round(100 * shared / whole) == 25 and questions["of_right"]["same"] == 0
    dev = find(real["files"], file="course/quora-dev.csv")
    assert (dev["read"], len(dev["skipped"]), len(dev["noted"])) == (10_108, 1, 1)
    for split in ("dev", "test"):
        found = find(real["overlaps"], left="NLI pairs train", right=f"SNLI {split}")["of_right"]
        assert found["same"] == found["rows"]


@pytest.mark.realdata
def test_no_real_file_is_broken_and_the_screen_is_narrow(real: dict[str, Any]) -> None:
    assert real["broken"] == 0
    assert max(map(len, render(real).splitlines())) <= 110
