"""Guards: the check counts kept and skipped rows, and the overlaps of splits; known overlaps of the real files.

python -m pytest --import-mode=importlib tests/data/test_check.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/data/test_check.py -m realdata
"""

from pathlib import Path

import pandas as pd
import pytest

from data.check import CheckedFile, check, overlaps, read_files
from minbert.errors import UserError

SAMPLE = Path(__file__).parents[2] / "data" / "sample"


def counts(pairs: pd.DataFrame, training: str, scored: str) -> tuple[int, int, int]:
    """Scored rows, those that are in the training split, and those that share a text with it."""
    (row,) = pairs[(pairs["training"] == training) & (pairs["scored"] == scored)].itertuples()
    return row.rows, row.same, row.sharing


def test_overlaps_between_splits() -> None:
    def file(set: str, split: str, *rows: tuple[str, ...]) -> CheckedFile:
        return CheckedFile(set, split, f"{set} {split}", rows, [], [])

    pairs = overlaps(
        [
            file("A", "train", ("One dog.", "Two cats"), ("It rains", "The sun shines")),
            file("A", "dev", ("two cats", "one dog"), ("the sun shines !", "Snow"), ("Ice", "Snow")),
            file("B", "test", ("It rains",), ("Hail",)),
            file("B", "dev", ("hail",)),
        ]
    )
    assert counts(pairs, "A train", "A dev") == (3, 1, 2)
    assert counts(pairs, "A train", "B test") == (2, 1, 1)
    assert counts(pairs, "B dev", "B test") == (2, 1, 1)
    # a dev split is compared with its own set alone
    assert len(pairs) == 4


def test_skipped_rows_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["\tid\tsentence1\tsentence2\tis_duplicate", "0\tq0\tWho?\tWhat?\t1.0", "1\tq1\tWhy?\t\t0.0"]
    (tmp_path / "quora-train.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    check(tmp_path)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "quora-train.csv 2 1 1" in lines
    assert lines[lines.index("Skipped rows") + 2] == "1: sentence2: empty (line 3)"


def test_folder_without_data(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no data file of a known name; python data/get_data\.py course"):
        check(tmp_path)


@pytest.mark.realdata
def test_known_overlaps_of_real_files(real_data: Path) -> None:
    files = list(read_files(real_data))
    pairs = overlaps(files)
    sts = [counts(pairs, "course STS train", f"STS{year} test")[:2] for year in range(12, 17)]
    assert sts == [(3108, 1061), (1500, 526), (3750, 1593), (3000, 1322), (1186, 346)]
    assert counts(pairs, "course STS train", "STS-B test")[1] == 951
    assert counts(pairs, "course STS train", "STS-B dev")[1] == 1038
    assert counts(pairs, "SST2 train", "MR all")[:2] == (10_662, 5_542)
    assert counts(pairs, "SST2 train", "SUBJ all")[:2] == (10_000, 2_107)
    rows, same, sharing = counts(pairs, "Quora train", "Quora dev")
    assert round(100 * sharing / rows) == 25
    assert same == 0
    (quora,) = [file for file in files if file.name == "course/quora-dev.csv"]
    assert (len(quora.rows), len(quora.skipped), len(quora.warnings)) == (10_107, 1, 1)
