"""Guards: SentEval's layout is found and read: subsets, splits, classes, encodings, blank gold lines, blank sentences.

python -m pytest --import-mode=importlib tests/tasks/readers/test_senteval.py
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from minbert import UserError
from minbert.token_cache import Issue, Row
from tasks.benchmarks import transfer
from tasks.readers import DataFile, open_as, senteval

BENCH = "main-news\theadlines\t2014\t0007\t{}\t{}\t{}\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
LATIN_1 = ("MR/", "SUBJ/", "TREC/")


@pytest.fixture
def layout(write: Callable, tmp_path: Path) -> Path:
    """A small copy of the layout; each file holds what its original would trip a reader with."""
    files = {
        "STS/STS13-en-test/STS.input.FNWN.txt": 'He said " no .\tShe said no .\nA\tB\nC\tD\n',
        "STS/STS13-en-test/STS.gs.FNWN.txt": "2.5\n\n0\n",
        "STS/STS13-en-test/STS.input.headlines.txt": "One\tTwo\n",
        "STS/STS13-en-test/STS.gs.headlines.txt": "5.000\n",
        "STS/STS13-en-test/STS.input.OnWN.txt": "Uno\tDue\n",
        "STS/STS13-en-test/STS.gs.OnWN.txt": "1\n",
        "STS/STS13-en-test/STS.gs.SMT.txt": "1\n",
        "STS/STSBenchmark/sts-test.csv": BENCH.format("3.200", 'a " b', "c"),
        "stsbenchmark/sts-test.csv": BENCH.format("4", "A", "B") + BENCH.format("1", "C", "D\tsource\tLDC"),
        "stsbenchmark/sts-dev.csv": BENCH.format("0", "E", "F"),
        "SICK/SICK_train.txt": SICK + "\n1\tA dog runs\tA dog sleeps\t2.5\tCONTRADICTION\n",
        "SICK/SICK_trial.txt": SICK + "\n4\tA\tB\t3\tNEUTRAL\n",
        "SICK/SICK_test_annotated.txt": SICK + "\r\n6\tA\tB\t5\tENTAILMENT\r\n",
        "MR/rt-polarity.pos": "a caf\xe9 of wit .\n",
        "MR/rt-polarity.neg": "dull\x85 and long\n  \n",
        "SUBJ/subj.objective": "he leaves .\n",
        "SUBJ/subj.subjective": "a joy .\n",
        "SST/binary/sentiment-train": 'so " good\t1\nbad\t0\n',
        "SST/binary/sentiment-dev": "fine\t1\n",
        "SST/binary/sentiment-test": "poor\t0\n",
        "TREC/train_5500.label": "DESC:manner How ?\nNUM:count How many \xe9clairs : two ?\n",
        "TREC/TREC_10.label": "ABBR:exp What is NASA ?\n",
        "MRPC/msr_paraphrase_train.txt": '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\t" A , he\tA\n',
        "MRPC/msr_paraphrase_test.txt": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tA\tB\n",
    }
    for name, content in files.items():
        encoding = "latin-1" if name.startswith(LATIN_1) else "utf-8"
        write(content, f"downstream/{name}", encoding)
    return tmp_path


def test_root_is_found_from_its_parents(layout: Path) -> None:
    assert senteval.root(layout) == senteval.root(layout / "downstream") == layout / "downstream"
    (layout / "data").mkdir()
    with pytest.raises(UserError, match=r"no SentEval data there.*python data/get_data\.py senteval "):
        senteval.root(layout / "data")
    (layout / "downstream").rename(layout / "data" / "downstream")
    (layout / "data").rename(layout / "senteval")
    assert senteval.root(layout) == layout / "senteval" / "downstream"


def scored(layout: Path, name: str, split: str = "test") -> dict[str, DataFile]:
    """The files of a set with scores, by subset."""
    paths = senteval.scored_files(senteval.root(layout), name, split)
    return {subset: open_as(path, "pair-score") for subset, path in paths.items()}


def test_sts_pairs_have_gold_scores(layout: Path) -> None:
    subsets = scored(layout, "STS13")
    assert list(subsets) == ["FNWN", "headlines", "OnWN"], "SMT is not among them"
    assert subsets["FNWN"].rows == [Row("1", ('He said " no .', "She said no ."), 2.5), Row("3", ("C", "D"), 0.0)]
    assert subsets["FNWN"].skipped == [Issue(2, "no gold score")]
    assert subsets["headlines"].rows == [Row("1", ("One", "Two"), 5.0)]


def test_shorter_gold_file_is_error(layout: Path, refusal: Callable) -> None:
    (layout / "downstream/STS/STS13-en-test/STS.gs.FNWN.txt").write_text("1\n2\n")
    message = refusal(lambda: scored(layout, "STS13"))
    assert message.removeprefix("downstream/STS/STS13-en-test/").startswith("STS.gs.FNWN.txt: ends before line 3")


def test_sts_b_in_both_copies(layout: Path) -> None:
    (first,) = scored(layout, "STS-B")["STS-B"].rows
    assert first == Row("1", ('a " b', "c"), 3.2), "the tokenised copy comes first, as in SentEval"
    (dev,) = scored(layout, "STS-B", "dev")["STS-B"].rows
    assert dev == Row("1", ("E", "F"), 0.0)
    (layout / "downstream/STS/STSBenchmark/sts-test.csv").unlink()
    raw = scored(layout, "STS-B")["STS-B"].rows
    assert raw == [Row("1", ("A", "B"), 4.0), Row("2", ("C", "D"), 1.0)], "the source behind a row is left out"
    with pytest.raises(UserError, match=r"STSBenchmark/sts-train\.csv: no such file"):
        scored(layout, "STS-B", "train")


def test_sick_has_scores_and_classes(layout: Path) -> None:
    assert scored(layout, "SICK")["SICK"].rows == [Row("6", ("A", "B"), 5.0)]
    for split, label in (("train", 2.0), ("dev", 1.0), ("test", 0.0)):
        path = senteval.scored_files(senteval.root(layout), "SICK", split)["SICK"]
        assert [row.label for row in open_as(path, "nli").rows] == [label]


def test_sets_of_two_files(layout: Path) -> None:
    first, second, blank = transfer.read_set(layout, "MR")["all"]
    assert first == Row("pos-1", ("a café of wit .",), 1.0)
    assert second == Row("neg-1", ("dull\x85 and long",), 0.0)
    assert (blank.texts, blank.label, blank.line) == ((".",), 0.0, 2) and "blank line" in blank.note
    assert [row.label for row in transfer.read_set(layout, "SUBJ")["all"]] == [1.0, 0.0], "objective is 1"


def test_sets_with_splits(layout: Path) -> None:
    sst = transfer.read_set(layout, "SST2")
    assert sst["train"] == [Row("1", ('so " good',), 1.0), Row("2", ("bad",), 0.0)]
    assert [row.label for row in sst["dev"]] == [1.0]
    assert [row.label for row in sst["test"]] == [0.0]
    trec = transfer.read_set(layout, "TREC")
    assert trec["train"] == [Row("1", ("How ?",), 1.0), Row("2", ("How many éclairs : two ?",), 5.0)]
    assert [row.label for row in trec["test"]] == [0.0]
    mrpc = transfer.read_set(layout, "MRPC")
    assert mrpc["train"] == [Row("2", ('" A , he', "A"), 1.0)]
    assert [row.label for row in mrpc["test"]] == [0.0]
