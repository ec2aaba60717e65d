"""Guards: a user's own pairs are read in every form of the data, and nothing is taken for a pair that is none.

python -m pytest --import-mode=importlib tests/suites/test_own_pairs.py
"""

from pathlib import Path

import numpy as np
import pytest

from minbert import UserError
from tasks.benchmarks.sets import own_pairs

SAMPLE = Path(__file__).parents[2] / "data/sample"
Capture = pytest.CaptureFixture[str]


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
    found = own_pairs(tmp_path / "x.tsv", seed=0)
    assert found.pairs == pairs and (np.isnan(found.gold).all() if gold is None else found.gold.tolist() == gold)


def test_single_sentences_get_partners_by_the_seed(tmp_path: Path) -> None:
    lines = [f"Sentence, number {i}." for i in range(9)]
    (tmp_path / "x.txt").write_text("\n".join(lines))
    found = own_pairs(tmp_path / "x.txt", seed=0)
    assert sorted(a for a, _ in found.pairs) == sorted(b for _, b in found.pairs) == sorted(lines)
    assert all(a != b for a, b in found.pairs) and found.pairs == own_pairs(tmp_path / "x.txt", seed=0).pairs
    assert found.pairs != own_pairs(tmp_path / "x.txt", seed=1).pairs
    (tmp_path / "x.txt").write_text("one line\n")
    with pytest.raises(UserError, match=r"x\.txt: neither sentence pairs nor at least two sentences"):
        own_pairs(tmp_path / "x.txt", seed=0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("sent0,sent1,hard_neg\na,b,c\n", "x:1: no column 'sentence1' "),
        ("sentence\tlabel\na\t1\n", "neither sentence pairs nor at least two sentences without labels"),
        ("A fine film.\t1\nA poor film.\t0\n", "neither sentence pairs nor at least two sentences without labels"),
        ("", "the file is empty"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(UserError, match=words):
        own_pairs(tmp_path / "x", seed=0)
