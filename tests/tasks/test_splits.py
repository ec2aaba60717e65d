"""Guards: a dev file that is the train file, or a part of it, is said to be so.

python -m pytest --import-mode=importlib tests/tasks/test_splits.py
"""

from pathlib import Path

import pytest

from tasks import splits

ROWS = ["\tid\tsentence\tsentiment", *(f"{n}\tx{n}\tfilm {n}\t1" for n in range(4))]


@pytest.mark.parametrize(
    ("dev", "words"),
    [(ROWS, "is the same as"), (ROWS[:3], "is a part of"), ([*ROWS, "9\ty\tnew\t0"], "has all rows of"), (None, "")],
)
def test_dev_rows_in_the_train_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dev: list[str] | None, words: str
) -> None:
    train, path = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("\n".join(ROWS))
    path.write_text("\n".join(dev or [ROWS[0], ROWS[1], "9\ty\tnew\t0"]))
    splits._note_dev_in_train(train, path)
    said = "".join(capsys.readouterr())
    assert (f"{path} {words} {train}" in said) if words else not said
