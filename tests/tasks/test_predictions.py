"""Guards: prediction files byte for byte, the first wrong line of a file that is not as it should be, and the zip.

python -m pytest --import-mode=importlib tests/tasks/test_predictions.py
"""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import UserError
from minbert.tokenizer import Tokenizer
from tasks import TASKS, predictions, record
from tasks.settings import LEADERBOARD

SAMPLE = Path(__file__).parent.parent.parent / "data" / "sample"
Change = Callable[[list[bytes]], list[bytes]]


def write_all(folder: Path) -> Path:
    """Six prediction files for the sample."""
    folder.mkdir()
    draws = np.random.default_rng(0)
    for name in LEADERBOARD:
        task = TASKS[name]()
        for split in ("dev", "test"):
            _, ids = predictions.expected(task, split, SAMPLE)
            values = draws.uniform(0, 5, len(ids))
            if task.classes:
                values = draws.integers(len(task.classes), size=len(ids)).astype(float)
            text = task.prediction_text(ids, values)
            (folder / record.prediction_file(task, split)).write_text(text)
    return folder


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


@pytest.mark.parametrize("name", EXPECTED)
def test_prediction_files_are_byte_exact(name: str, tiny: Path, tmp_path: Path) -> None:
    task = TASKS[name]("cross")
    source = tmp_path / "source.csv"
    source.write_text(FILES[name])
    examples = task.open(source, "dev", Tokenizer.load(tiny), 32)
    predicted = task.predict(LOGITS if name == "sst" else NUMBERS)
    assert predicted.dtype == np.float64
    text = task.prediction_text([row.id for row in examples.cache.rows()], predicted)
    assert text.encode() == EXPECTED[name]
    short_name = "para" if name == "quora" else name
    assert record.prediction_file(task, "dev") == f"{short_name}-dev-output.csv"


def test_diverged_model_has_no_predictions(examples_of: Callable) -> None:
    with pytest.raises(UserError, match="not finite; a smaller --lr"):
        record.rows_of(examples_of([("x", "y")] * 3), np.array([0, np.nan, 1]))


def row(number: int, change: Callable[[bytes], bytes]) -> Change:
    """One line changed."""
    return lambda lines: [*lines[:number], change(lines[number]), *lines[number + 1 :]]


def value(new: bytes) -> Change:
    """The value of the row in line 8 replaced."""
    return row(7, lambda line: line.split(b" , ")[0] + b" , " + new + b" \n")


CHANGES: list[tuple[str, Change, int, str]] = [
    ("sst-dev", lambda lines: lines[:3] + lines[4:], 4, "the id is"),
    ("sst-dev", lambda lines: lines[:-1], 51, "of ids-sst-dev.csv is missing"),
    ("para-test", lambda lines: [*lines, b"nobody , 1.0 \n"], 52, "one row too many: quora-test-student.csv ends"),
    ("sst-dev", lambda lines: [b"id,Predicted_Sentiment\n", *lines[1:]], 1, "header"),
    ("sst-dev", row(9, lambda line: line.replace(b" , ", b",")), 10, "'{id} , {value} "),
    ("sst-dev", row(9, lambda line: line.replace(b"\n", b"\r\n")), 10, r"\r"),
    ("sst-dev", row(4, lambda line: b"\xff" + line), 5, r"'\\xff"),
    ("sst-dev", lambda lines: [*lines[:-1], lines[-1].removesuffix(b"\n")], 51, "'{id} , {value} "),
    ("sst-dev", row(1, bytes.upper), 2, "but ids-sst-dev.csv has"),
    ("sst-test", value(b"5"), 8, "'5' is not one of 0, 1, 2, 3, 4"),
    ("para-dev", value(b"1"), 8, "'1'"),
    ("sts-dev", value(b"5.01"), 8, "'5.01' is not between 0 and 5"),
    ("sts-dev", value(b"np.float32(3.5)"), 8, "plain number"),
]


def test_first_wrong_line_is_named(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "p")
    assert [*predictions.check(folder, SAMPLE).values()] == [50] * 6
    for name, change, line, why in CHANGES:
        path = folder / f"{name}-output.csv"
        good = path.read_bytes()
        path.write_bytes(b"".join(change(good.splitlines(keepends=True))))
        with pytest.raises(UserError) as raised:
            predictions.check(folder, SAMPLE)
        message = str(raised.value)
        assert message.startswith(f"{path}:{line}: ") and why in message
        assert "\n" not in message
        path.write_bytes(good)


def test_check_and_submit_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_all(tmp_path / "p")
    data = str(SAMPLE)
    predictions.main(["check", str(folder), "--data", data])
    assert capsys.readouterr().out.count(": 50 rows, as expected\n") == 6
    predictions.main(["submit", str(folder), "--data", data, "--out", str(tmp_path / "new" / "s.zip")])
    assert "6 files under predictions/" in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "new" / "s.zip") as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    assert packed == {f"predictions/{path.name}": path.read_bytes() for path in folder.iterdir()}
    (folder / "sst-dev-output.csv").unlink()
    for command, *flags in (["check"], ["submit", "--out", str(tmp_path / "t.zip")]):
        with pytest.raises(UserError, match=r"sst-dev-output.csv: no such file"):
            predictions.main([command, str(folder), "--data", data, *flags])
    assert not (tmp_path / "t.zip").exists() and capsys.readouterr().out == ""
