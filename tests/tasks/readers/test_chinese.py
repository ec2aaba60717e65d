"""Guards: the forms in which the Chinese sets circulate give the same rows, and the file of each split is found.

python -m pytest --import-mode=importlib tests/tasks/readers/test_chinese.py
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from minbert.token_cache import Row
from tasks.readers import chinese, open_as

PAIRS = [("怎么开通, 花呗", "如何开通花呗", 1.0), ("你好", "再见", 0.0)]
FORMS = {
    "canonical": ("", "{0}\t{1}\t{2:g}\n"),
    "numbered": ("", "{3}\t{0}\t{1}\t{2:g}\n"),
    "bars": ("", "x-1||{0}||{1}||{2:g}\n"),
    "header": ("sentence1\tsentence2\tlabel\n", "{0}\t{1}\t{2:g}\n"),
    "commas": ("sentence1,sentence2,label\n", '"{0}",{1},{2:g}\n'),
}


@pytest.mark.parametrize(("marks", "line_end"), [("", "\n"), ("\ufeff", "\r\n"), ("\ufeff\ufeff", "\n")])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows(write: Callable, form: str, marks: str, line_end: str) -> None:
    header, row = FORMS[form]
    content = header + "".join(row.format(*pair, number) for number, pair in enumerate(PAIRS, 1))
    path = write((marks + content).replace("\n", line_end), "train.csv")
    first = 2 if header else 1
    expected = [Row(str(line), (a, b), label) for line, (a, b, label) in enumerate(PAIRS, first)]
    for kind in ("pair-class", "pair-score"):
        assert open_as(path, kind).rows == expected


def test_each_split_has_one_file(write: Callable, tmp_path: Path) -> None:
    names = ["ATEC/atec_train.csv", "ATEC_CCKS/dev.csv", "ATEC_CCKS/train.csv", "BQ/notes.md", "LCQMC/valid.txt"]
    paths = {name: write("x", f"zh/{name}") for name in names}
    assert chinese.folder(tmp_path) == tmp_path / "zh"
    assert chinese.files(tmp_path) == chinese.files(tmp_path / "zh")
    assert chinese.files(tmp_path) == {
        ("ATEC", "train"): paths["ATEC/atec_train.csv"],
        ("ATEC", "dev"): paths["ATEC_CCKS/dev.csv"],
        ("LCQMC", "dev"): paths["LCQMC/valid.txt"],
    }
