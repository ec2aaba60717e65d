"""Guards: what is wrong with prediction files is said with its line, scores and intervals are right, zips are the same.

python -m pytest --import-mode=importlib tests/tasks/test_predictions_check.py
"""

import csv
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score

from minbert.errors import UserError
from tasks import TASKS, compare, predictions, submission
from tasks.settings import LEADERBOARD

SAMPLE = Path(__file__).parent.parent.parent / "data" / "sample"
LABELS = {"sst": "sentiment", "quora": "is_duplicate", "sts": "similarity"}
Change = Callable[[list[bytes]], list[bytes]]


def gold(name: str) -> list[tuple[str, float]]:
    with open(SAMPLE / "course" / TASKS[name]().files.dev, encoding="utf-8", newline="") as file:
        return [(row["id"], float(row[LABELS[name]])) for row in csv.DictReader(file, delimiter="\t")]


def made(folder: Path, seed: int = 0, wrong: float = 0.3) -> Path:
    """Six prediction files for the sample, of which about `wrong` are not the gold label."""
    folder.mkdir()
    draws = np.random.default_rng(seed)
    for name in LEADERBOARD:
        task = TASKS[name]()
        for split in ("dev", "test"):
            rows = submission.expected(task, split, SAMPLE)
            labels = np.nan_to_num(rows.gold)
            top = len(task.classes) or 6
            noise = np.where(draws.random(len(labels)) < wrong, draws.integers(top, size=len(labels)), labels)
            values = noise if task.classes else np.clip(labels + draws.normal(0, wrong, len(labels)), 0, 5)
            lines = [f"{id_} , {task.written(value)} \n" for id_, value in zip(rows.ids, values.tolist())]
            (folder / predictions.file_name(task, split)).write_text(task.files.header + "".join(lines))
    return folder


def findings(folder: Path, name: str) -> list[tuple[int, str]]:
    (file,) = (one for one in submission.check(folder, SAMPLE) if one.path.name == name)
    return [(one.line, one.why) for one in file.findings]


def test_a_good_submission_has_no_findings(tmp_path: Path) -> None:
    folder = made(tmp_path / "predictions")
    for place in (folder, tmp_path):  # the folder itself, or the run folder around it
        files = submission.check(place, SAMPLE)
        assert [file.path.name for file in files] == [
            f"{short}-{split}-output.csv" for split in ("dev", "test") for short in ("sst", "para", "sts")
        ]
        assert not any(file.findings for file in files)
        submission.demand_clean(place, files)


CHANGES: list[tuple[str, Change, int, str]] = [
    ("sst-dev", lambda rows: rows[:3] + rows[4:], 0, "without a prediction: 1 id ("),
    ("sst-dev", lambda rows: [*rows[:5], rows[2], *rows[5:]], 6, "stands on line 3 already"),
    ("para-test", lambda rows: [*rows, b"nobody , 1.0 \n"], 52, "id 'nobody' is not in quora-test-student.csv"),
    ("sst-dev", lambda rows: [b"id,Predicted_Sentiment\n", *rows[1:]], 1, "the header is 'id,Predicted_Sentiment'"),
    ("sts-dev", lambda rows: [rows[0].replace(b"iliary", b"ilarity"), *rows[1:]], 1, "Predicted_Similiary"),
    ("sst-dev", lambda rows: [b"\xef\xbb\xbf" + rows[0], *rows[1:]], 1, "the header is"),
    ("sst-dev", lambda rows: [*rows[:9], rows[9].replace(b" , ", b","), *rows[10:]], 10, "not '{id} , {value} ' but"),
    ("sst-dev", lambda rows: [*rows[:9], rows[9].replace(b" \n", b"\n"), *rows[10:]], 10, "not '{id} , {value} ' but"),
    ("sst-dev", lambda rows: [*rows[:9], rows[9].replace(b"\n", b"\r\n"), *rows[10:]], 10, "ends in a carriage return"),
    ("sst-dev", lambda rows: [*rows[:4], b"\n", *rows[4:]], 5, "not '{id} , {value} ' but ''"),
    ("sst-dev", lambda rows: [*rows[:4], b"\xff" + rows[4], *rows[5:]], 5, r"'\\xff"),
    ("sst-dev", lambda rows: [*rows[:-1], rows[-1].removesuffix(b"\n")], 51, "no line feed at its end"),
    ("sst-dev", lambda rows: [rows[0], *rows[2:], rows[1]], 51, "out of order"),
    ("sst-test", lambda rows: [*rows[:7], _valued(rows[7], b"5"), *rows[8:]], 8, "value '5' is not one of 0, 1, 2"),
    ("sst-test", lambda rows: [*rows[:7], _valued(rows[7], b"2.0"), *rows[8:]], 8, "value '2.0' is not one of 0, 1"),
    ("para-dev", lambda rows: [*rows[:7], _valued(rows[7], b"1"), *rows[8:]], 8, "value '1' is not one of 0.0, 1.0"),
    ("sts-dev", lambda rows: [*rows[:7], _valued(rows[7], b"5.01"), *rows[8:]], 8, "'5.01' is not between 0 and 5"),
    ("sts-dev", lambda rows: [*rows[:7], _valued(rows[7], b"-0.1"), *rows[8:]], 8, "'-0.1' is not between 0 and 5"),
    ("sts-dev", lambda rows: [*rows[:7], _valued(rows[7], b"nan"), *rows[8:]], 8, "'nan' is not a plain number"),
    ("sts-dev", lambda rows: [*rows[:7], _valued(rows[7], b"1_0"), *rows[8:]], 8, "'1_0' is not a plain number"),
    ("sts-dev", lambda rows: [*rows[:7], _valued(rows[7], b"np.float32(3.5)"), *rows[8:]], 8, "not a plain number"),
    ("sts-test", lambda rows: [], 1, "the header is ''"),
]  # fmt: skip


def _valued(row: bytes, value: bytes) -> bytes:
    return row.split(b" , ")[0] + b" , " + value + b" \n"


@pytest.mark.parametrize(
    ("name", "change", "line", "why"), CHANGES, ids=[f"{n}-{c[3][:20]}" for n, c in enumerate(CHANGES)]
)
def test_what_is_wrong_is_said_with_its_line(name: str, change: Change, line: int, why: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    path = folder / f"{name}-output.csv"
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    found = findings(folder, path.name)
    assert [place for place, said in found if why in said] == [line], found
    with pytest.raises(UserError, match=f"1 of 6 prediction files .* first at .*{name}-output.csv"):
        submission.demand_clean(folder, submission.check(folder, SAMPLE))


def test_an_id_in_capitals_and_a_missing_file_are_said(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    path = folder / "sst-dev-output.csv"
    id_ = gold("sst")[0][0]
    path.write_text(path.read_text().replace(id_, id_.upper()))
    assert findings(folder, path.name)[1] == (2, f"id {id_.upper()!r} is not in ids-sst-dev.csv; it has {id_!r}")
    path.unlink()
    assert findings(folder, path.name) == [(0, "no such file")]
    with pytest.raises(UserError, match="no such folder"):
        submission.check(tmp_path / "nowhere", SAMPLE)


def test_many_findings_are_cut_and_counted(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    path = folder / "sst-dev-output.csv"
    path.write_text(path.read_text().replace(" , ", ","))
    text = submission.as_text(submission.check(folder, SAMPLE))
    assert f"  {path}:2: not" in text and "and 41 more in this file" in text
    assert "50 ids (" in text and "and 40 more)" in text


def test_scores_are_scikit_learns_and_scipys(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    files = {(file.task.name, file.split): file for file in submission.check(folder, SAMPLE)}
    expected = {}
    for name in TASKS:
        pairs = gold(name)
        said = dict(line.split(" , ") for line in files[name, "dev"].path.read_text().splitlines()[1:])
        values, labels = [float(said[id_]) for id_, _ in pairs], [label for _, label in pairs]
        expected[name] = accuracy_score(labels, values) if name != "sts" else pearsonr(values, labels).statistic
        assert submission.score(files[name, "dev"]) == (pytest.approx(expected[name]), 50)
    norm = (expected["sst"] + expected["quora"] + (expected["sts"] + 1) / 2) / 3
    assert submission.norm(list(files.values())) == pytest.approx(norm)
    text = submission.scores_text(list(files.values()))
    assert f"{norm:.4f}" in text and "test" not in text  # the sample's test files have no labels


def test_a_file_with_findings_is_not_scored_and_nor_is_the_norm(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    (folder / "sts-dev-output.csv").write_text("")
    files = submission.check(folder, SAMPLE)
    assert submission.norm(files) is None
    text = submission.scores_text(files)
    assert "not scored" in text and text.endswith("undefined")


def test_a_constant_similarity_counts_as_zero(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    path = folder / "sts-dev-output.csv"
    header, *rows = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(row.split(" , ")[0] + " , 2.5 \n" for row in rows))
    files = submission.check(folder, SAMPLE)
    scores = {file.task.name: submission.score(file)[0] for file in files if file.split == "dev"}
    assert scores["sts"] is None
    assert submission.norm(files) == pytest.approx((scores["sst"] + scores["quora"]) / 3)


def test_two_submissions_are_compared_pair_by_pair(tmp_path: Path) -> None:
    first, second = (
        submission.check(made(tmp_path / str(seed), seed, wrong), SAMPLE) for seed, wrong in ((1, 0.9), (2, 0.05))
    )
    norms = (submission.norm(first), submission.norm(second))
    tasks = [submission.scored(files) for files in (first, second)]
    found = {one.name: one for one in compare.differences(*tasks, norms, resamples=300)}
    assert found.keys() == {*TASKS, "dev norm"}
    for one in found.values():
        assert one.around is not None and one.around.low < one.value < one.around.high
    assert found["dev norm"].value == pytest.approx(submission.norm(second) - submission.norm(first))
    assert found["sst"].verdict == found["dev norm"].verdict == "better"
    same = compare.differences(tasks[0], tasks[0], norms, resamples=20)
    assert {one.verdict for one in same} == {"cannot be told apart"}


def test_the_zip_has_the_courses_layout_and_the_same_bytes(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    submission.pack(submission.check(folder, SAMPLE), tmp_path / "a.zip")
    for path in folder.iterdir():
        path.touch()
        path.chmod(0o600)
    submission.pack(submission.check(folder, SAMPLE)[::-1], tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}  # no time of day
        assert archive.namelist() == sorted(f"predictions/{path.name}" for path in folder.iterdir())
        assert all(archive.read(f"predictions/{path.name}") == path.read_bytes() for path in folder.iterdir())


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, other, data = made(tmp_path / "p"), made(tmp_path / "q", 3), str(SAMPLE)
    predictions.main(["check", str(folder), "--data", data, "--gold", "--compare", str(other)])
    printed = capsys.readouterr().out
    assert printed.count("  ok") == 6 and "dev norm" in printed and "q less p" in printed
    predictions.main(["submit", str(folder), "--data", data, "--out", str(tmp_path / "s.zip")])
    assert "6 files under predictions/" in capsys.readouterr().out
    (folder / "sst-dev-output.csv").unlink()
    for arguments in (["check"], ["check", "--gold"], ["submit", "--out", str(tmp_path / "t.zip")]):
        command, *flags = arguments
        with pytest.raises(UserError, match="1 of 6 prediction files"):
            predictions.main([command, str(folder), "--data", data, *flags])
        assert "no such file" in capsys.readouterr().out
    assert not (tmp_path / "t.zip").exists()
    with pytest.raises(UserError, match="no file can be written there"):
        predictions.main(["submit", str(other), "--data", data, "--out", str(tmp_path / "no" / "s.zip")])
    with pytest.raises(UserError, match=r"^--compare .*none: no such folder"):
        predictions.main(["check", str(other), "--data", data, "--compare", str(tmp_path / "none")])
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError, match="required: --out"):
        predictions.main(["submit", str(other)])
