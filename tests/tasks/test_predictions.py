"""Guards: the leaderboard's files byte for byte, what is said of a wrong one with its line, their scores and zips.

python -m pytest --import-mode=importlib tests/tasks/test_predictions.py
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
from minbert.tokenizer import Tokenizer
from tasks import TASKS, predictions, record
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
            _, ids, labels = predictions.expected(task, split, SAMPLE)
            labels = np.nan_to_num(labels)
            top = len(task.classes) or 6
            noise = np.where(draws.random(len(labels)) < wrong, draws.integers(top, size=len(labels)), labels)
            values = noise if task.classes else np.clip(labels + draws.normal(0, wrong, len(labels)), 0, 5)
            lines = [f"{id_} , {task.written(value)} \n" for id_, value in zip(ids, values.tolist())]
            (folder / record.prediction_file(task, split)).write_text(task.files.header + "".join(lines))
    return folder


def findings(folder: Path, name: str) -> list[tuple[int, str]]:
    (file,) = (one for one in predictions.check(folder, SAMPLE) if one.path.name == name)
    return file.findings


FILES = {
    "sst": "\tid\tsentence\tsentiment\n0\tB2\t x\t3\n1\ta1\t y\t0\n5\tc3 \t z\t1\n",
    "quora": "\tid\tsentence1\tsentence2\tis_duplicate\n0\tB2\tx\ty\t1.0\n1\ta1\tx\tz\t\n5\tc3\tx\tw\t0.0\n",
    "sts": "\tid\tsentence1\tsentence2\tsimilarity\n0\tB2\tx\ty\t1.0\n1\ta1\tx\tz\t5\n5\tc3\tx\tw\t0.2\n",
}
LOGITS = np.array([[0.1, 0.2, 0.3, 0.4, 9], [1, 0, 0, 0, 0], [0, 0, 5, 5, 0]], dtype=np.float32)
NUMBERS = np.array([3.2, -0.1, 1e-12], dtype=np.float32)
EXPECTED = {
    "sst": b"id \t Predicted_Sentiment \nb2 , 4 \na1 , 0 \nc3 , 2 \n",
    "quora": b"id \t Predicted_Is_Paraphrase \nb2 , 1.0 \na1 , 0.0 \nc3 , 1.0 \n",
    "sts": b"id \t Predicted_Similiary \n"
    b"b2 , 3.200000047683716 \na1 , -0.10000000149011612 \nc3 , 9.999999960041972e-13 \n",
}


@pytest.mark.parametrize("name", TASKS)
def test_prediction_files_are_byte_exact(name: str, tiny: Path, tmp_path: Path) -> None:
    task = TASKS[name]("cross")
    source = tmp_path / "source.csv"
    source.write_text(FILES[name])
    examples = task.open(source, "dev", Tokenizer.load(tiny), 32)
    predicted = task.predict(LOGITS if name == "sst" else NUMBERS)
    assert predicted.dtype == np.float64
    path = tmp_path / "new" / record.prediction_file(task, "dev")
    record.write_predictions(path, task, [row.id for row in examples.cache.rows()], predicted)
    assert path.read_bytes() == EXPECTED[name]
    assert path.name == {"sst": "sst", "quora": "para", "sts": "sts"}[name] + "-dev-output.csv"


def row(number: int, change: Callable[[bytes], bytes]) -> Change:
    """One row changed."""
    return lambda rows: [*rows[:number], change(rows[number]), *rows[number + 1 :]]


def value(new: bytes) -> Change:
    """The value of the row in line 8 replaced."""
    return row(7, lambda line: line.split(b" , ")[0] + b" , " + new + b" \n")


CHANGES: list[tuple[str, Change, int, str]] = [
    ("sst-dev", lambda rows: rows[:3] + rows[4:], 0, "without a prediction: 1 id ("),
    ("sst-dev", lambda rows: [*rows[:5], rows[2], *rows[5:]], 6, "line 3"),
    ("para-test", lambda rows: [*rows, b"nobody , 1.0 \n"], 52, "'nobody' is not in quora-test-student.csv"),
    ("sst-dev", lambda rows: [b"id,Predicted_Sentiment\n", *rows[1:]], 1, "header"),
    ("sst-dev", lambda rows: [b"\xef\xbb\xbf" + rows[0], *rows[1:]], 1, "header"),
    ("sts-test", lambda rows: [], 1, "header"),
    ("sst-dev", row(9, lambda line: line.replace(b" , ", b",")), 10, "'{id} , {value} '"),
    ("sst-dev", row(9, lambda line: line.replace(b" \n", b"\n")), 10, "'{id} , {value} '"),
    ("sst-dev", row(9, lambda line: line.replace(b"\n", b"\r\n")), 10, r"\r"),
    ("sst-dev", row(4, lambda line: b"\n" + line), 5, "'{id} , {value} '"),
    ("sst-dev", row(4, lambda line: b"\xff" + line), 5, r"'\\xff"),
    ("sst-dev", lambda rows: [*rows[:-1], rows[-1].removesuffix(b"\n")], 51, "line feed"),
    ("sst-dev", lambda rows: [rows[0], *rows[2:], rows[1]], 51, "out of order"),
    ("sst-dev", row(1, bytes.upper), 2, "is not in ids-sst-dev.csv"),
    ("sst-test", value(b"5"), 8, "'5'"),
    ("sst-test", value(b"2.0"), 8, "'2.0'"),
    ("para-dev", value(b"1"), 8, "'1'"),
    ("sts-dev", value(b"5.01"), 8, "'5.01'"),
    ("sts-dev", value(b"nan"), 8, "'nan'"),
    ("sts-dev", value(b"1_0"), 8, "'1_0'"),
    ("sts-dev", value(b"np.float32(3.5)"), 8, "plain number"),
]


def test_what_is_wrong_is_said_with_its_line(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    for name, change, line, why in CHANGES:
        path = folder / f"{name}-output.csv"
        good = path.read_bytes()
        path.write_bytes(b"".join(change(good.splitlines(keepends=True))))
        found = findings(folder, path.name)
        assert [place for place, said in found if why in said] == [line], found
        with pytest.raises(UserError, match=f"1 of 6 prediction files .* first at .*{name}-output.csv"):
            predictions.demand_clean(folder, predictions.check(folder, SAMPLE))
        path.write_bytes(good)


def test_scores_are_scikit_learns_and_scipys(tmp_path: Path) -> None:
    folder = made(tmp_path / "p")
    files = {(file.task.name, file.split): file for file in predictions.check(folder, SAMPLE)}
    expected = {}
    for name in TASKS:
        pairs = gold(name)
        said = dict(line.split(" , ") for line in files[name, "dev"].path.read_text().splitlines()[1:])
        values, labels = [float(said[id_]) for id_, _ in pairs], [label for _, label in pairs]
        expected[name] = accuracy_score(labels, values) if name != "sts" else pearsonr(values, labels).statistic
        assert files[name, "dev"].score == (pytest.approx(expected[name]), 50)
    norm = (expected["sst"] + expected["quora"] + (expected["sts"] + 1) / 2) / 3
    assert predictions.norm(list(files.values())) == pytest.approx(norm)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, other, data = made(tmp_path / "p"), made(tmp_path / "q", 3), str(SAMPLE)
    predictions.main(["check", str(folder), "--data", data, "--gold", "--compare", str(other)])
    printed = capsys.readouterr().out
    assert printed.count("  ok ") == 6 and "dev norm" in printed and "q (second) minus p (first)" in printed
    predictions.main(["submit", str(folder), "--data", data, "--out", str(tmp_path / "new" / "s.zip")])
    assert "6 files under predictions/" in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "new" / "s.zip") as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    assert packed == {f"predictions/{path.name}": path.read_bytes() for path in folder.iterdir()}
    (folder / "sst-dev-output.csv").unlink()
    for arguments in (["check"], ["check", "--gold"], ["submit", "--out", str(tmp_path / "t.zip")]):
        command, *flags = arguments
        with pytest.raises(UserError, match="1 of 6 prediction files"):
            predictions.main([command, str(folder), "--data", data, *flags])
        assert "no such file" in capsys.readouterr().out
    assert not (tmp_path / "t.zip").exists()
    with pytest.raises(UserError, match="no file can be written there"):
        predictions.main(["submit", str(other), "--data", data, "--out", str(tmp_path)])
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError, match=r"none: no such folder"):
        predictions.main(["check", str(other), "--data", data, "--compare", str(tmp_path / "none")])
    with pytest.raises(UserError, match="required: --out"):
        predictions.main(["submit", str(other)])
