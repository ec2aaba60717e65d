"""Guards: a user's own pairs are read in every form of the data, and nothing is taken for a pair that is none.

python -m pytest --import-mode=importlib tests/suites/test_own_pairs.py
"""

from pathlib import Path

import numpy as np
import pytest

from minbert import UserError
from tasks.benchmarks.sets import own_pairs


@pytest.mark.parametrize(
    ("content", "pairs", "gold"),
    [
        ("a cat\ta dog\t3\nb\tc\t0.5\n", [("a cat", "a dog"), ("b", "c")], [3, 0.5]),
        ("a cat\ta dog\nb\tc\n", [("a cat", "a dog"), ("b", "c")], None),
        ("sentence1\tsentence2\tlabel\na\tb\t1\n", [("a", "b")], [1]),
        ("sentence1\tsentence2\na\tb\n", [("a", "b")], None),
        ('{"sentence1": "a", "sentence2": "b", "score": 2}\n', [("a", "b")], [2]),
        ('sentence1,sentence2,score\n"a, b",c,1\n', [("a, b", "c")], [1]),
    ],
)
def test_forms_of_pairs(tmp_path: Path, content: str, pairs: list, gold: list | None) -> None:
    (tmp_path / "x.tsv").write_text(content)
    found = own_pairs(tmp_path / "x.tsv")
    assert found.pairs == pairs and (np.isnan(found.gold).all() if gold is None else found.gold.tolist() == gold)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("sent0,sent1,hard_neg\na,b,c\n", "x:1: no column 'sentence1' "),
        ("sentence\tlabel\na\t1\n", "holds single sentences"),
        ("A fine film.\t1\nA poor film.\t0\n", "holds single sentences"),
        ("", "the file is empty"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(UserError, match=words):
        own_pairs(tmp_path / "x")
