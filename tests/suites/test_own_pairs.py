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
        ("\tid\tsentence1\tsentence2\tsimilarity\n0\tx\tA cat\tA dog\t2.5\n", [("a cat", "a dog")], [2.5]),
        ("\tid\tsentence1\tsentence2\n0\tx\tA cat\tA dog\n", [("a cat", "a dog")], None),
        (
            "\tid\tsentence1\tsentence2\tis_duplicate\n0\tx\tA cat\tA dog\t\n1\ty\tA bat\tA dog\t0.0\n",
            [("a bat", "a dog")],
            [0],
        ),
        ("main\tfile\t2014\t1\t4.2\tA cat.\tA dog.\n", [("A cat.", "A dog.")], [4.2]),
        ('{"sentence1": "a", "sentence2": "b", "score": 2}\n', [("a", "b")], [2]),
        ('sentence1,sentence2,score\n"a, b",c,1\n', [("a, b", "c")], [1]),
    ],
)
def test_forms_of_pairs(tmp_path: Path, content: str, pairs: list, gold: list | None) -> None:
    (tmp_path / "x.tsv").write_text(content)
    found = own_pairs(tmp_path / "x.tsv", seed=0)
    assert found.pairs == pairs and (np.isnan(found.gold).all() if gold is None else found.gold.tolist() == gold)


def test_rows_that_are_left_out_are_counted(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "two.tsv").write_text("a cat\ta dog\nb\t\n\nc\td\n")
    found = own_pairs(tmp_path / "two.tsv", seed=0)
    assert (found.pairs, found.skipped) == ([("a cat", "a dog"), ("c", "d")], 1)
    said = f"note: {tmp_path / 'two.tsv'}: 1 of 3 rows left out, such as line 2: sentence2: empty\n"
    assert capsys.readouterr().err == said
    (tmp_path / "quora.csv").write_text("\tid\tsentence1\tsentence2\n0\tx\tA cat\t\n1\ty\tA cat\tA dog\n")
    assert own_pairs(tmp_path / "quora.csv", seed=0).skipped == 1
    assert "1 of 2 rows left out" in capsys.readouterr().err


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
        ("a\tb\tc\td\n", "x:1: no column 'sentence1' "),
        ("sentence\tlabel\na\t1\n", "neither sentence pairs nor at least two sentences without labels"),
        ("A fine film.\t1\nA poor film.\t0\n", "neither sentence pairs nor at least two sentences without labels"),
        ('{"text": "a"}\n{"text": "b"}\n', "x:1: no column 'sentence1' "),
        ("a\tb\nc\n", "x:2: 1 column, sentence1, sentence2 are 2"),
        ("sentence1\tsentence2\tscore\na\tb\t7\n", "x:2: score: '7' is not between 0 and 5"),
        ("", "the file is empty"),
        ("\t\n \n", "the file is empty"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(UserError, match=words):
        own_pairs(tmp_path / "x", seed=0)


def test_triplets_are_no_sentences() -> None:
    with pytest.raises(UserError, match=r"nli-triplets\.csv:1: no column 'sentence1' .*'hard_neg'"):
        own_pairs(SAMPLE / "nli/nli-triplets.csv", seed=0)
