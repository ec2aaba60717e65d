"""Guards: the reader of a file is found by its first line, and no row is lost: read = kept + skipped + other splits.

python -m pytest --import-mode=importlib tests/tasks/readers/test_readers.py
"""

import gzip
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from minbert.token_cache import Issue
from minbert.tokenizer import Tokenizer
from tasks.readers import kind_of, open_as, read_texts, text_key, tokenised

ONE = ("It is warm.",)
PAIR = ("It is warm.", "It isn't cold.")
TWO = "It is warm.\tIt isn't cold."
COURSE = ("it is warm .", "it isn 't cold .")
HEAD = "\tid\tsentence1\tsentence2"
SICK = f"pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n5\t{TWO}\t2.5\tCONTRADICTION\n"
MRPC = f"\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\t{TWO}\n"
SNLI = (
    "gold_label\tsentence1_binary_parse\tsentence1_parse\tsentence1\tsentence2\tcaptionID\tpairID\tlabel1\tlabel2\n"
    f"contradiction\t( x )\t(ROOT x)\t{TWO}\t1.jpg#0\t1.jpg#0r1n\tcontradiction\t\n"
)
SNLI_JSON = f'{{"gold_label": "contradiction", "pairID": "1", "sentence1": "{PAIR[0]}", "sentence2": "{PAIR[1]}"}}\n'

# kind, file name, content, split, id, texts, label
GOOD = [
    ("lines", "a.txt", "It is warm.\n", "train", "1", ONE, math.nan),
    ("single", "a", "\tid\tsentence\tsentiment\n0\tQ\tIt is warm.\t4\n", "train", "q", ("it is warm.",), 4),
    ("single", "a", "0\t\tid\tsentence\n0\t0\tQ\tIt is warm.\n", "test", "q", ("it is warm.",), math.nan),
    ("single", "a", "It is warm. \t1\n", "train", "1", ONE, 1),
    ("single", "a", "LOC:city It is warm.\n", "train", "1", ONE, 4),
    ("single", "a.jsonl", '{"text": "It is warm.", "label": 2}\n', "train", "1", ONE, 2),
    ("single", "a.csv", "text,id\nIt is warm.,K\n", "test", "k", ONE, math.nan),
    ("pair-class", "a", f"{HEAD}\tis_duplicate\n0\tQ\t{TWO}\t1.0\n", "train", "q", COURSE, 1),
    ("pair-class", "a.txt", MRPC, "train", "2", PAIR, 1),
    ("pair-class", "a.txt", f"{TWO}\t0\n", "train", "1", PAIR, 0),
    ("pair-class", "a", f"id\tquestion1\tquestion2\tis_duplicate\n3\t{TWO}\t1\n", "train", "3", PAIR, 1),
    ("pair-score", "a", f"{HEAD}\tsimilarity\n0\tQ\t{TWO}\t2.5\n", "dev", "q", COURSE, 2.5),
    ("pair-score", "a", f"{HEAD}\n0\tQ\t{TWO}\n", "test", "q", COURSE, math.nan),
    ("pair-score", "a.csv", f"main\tx\t2012\t01\t2.500\t{TWO}\n", "train", "1", PAIR, 2.5),
    ("pair-score", "a.txt", SICK, "train", "5", PAIR, 2.5),
    ("pair-score", "a", f"index\tsentence1\tsentence2\tscore\n0\t{TWO}\t2.5\n", "train", "2", PAIR, 2.5),
    ("pair-score", "a", '1\tIt is warm.\t"It ""is"" cold."\t1\n', "train", "1", ("It is warm.", 'It "is" cold.'), 1),
    ("pair", "a", f"{TWO}\n", "train", "1", PAIR, math.nan),
    ("nli", "a.txt", SICK, "train", "5", PAIR, 2),
    ("nli", "a.tsv", f"premise\thypothesis\tlabel\tsource\n{TWO}\tentailment\tsnli\n", "train", "2", PAIR, 0),
    ("nli", "a.csv", 'premise,hypothesis,label\nA,"""No,"" B",neutral\n', "train", "2", ("A", '"No," B'), 1),
    ("nli", "a.tsv", 'premise\thypothesis\tlabel\nA\t"No," "B\tneutral\n', "train", "2", ("A", '"No," "B'), 1),
    ("nli", "snli.txt", SNLI, "train", "2", PAIR, 2),
    ("nli", "snli.jsonl", SNLI_JSON, "train", "1", PAIR, 2),
    ("triplet", "a.csv", "sent0,sent1,hard_neg\nA,B,C\n", "train", "2", ("A", "B", "C"), math.nan),
    ("triplet", "a.tsv", "anchor\tpositive\r\nA\tB\r\n", "train", "2", ("A", "B"), math.nan),
    ("triplet", "a", 'positive\tanchor\tx\nb, c\t"a" too\t1\n', "train", "2", ('"a" too', "b, c"), math.nan),
    ("triplet", "a", '{"negative": "C", "anchor": "A", "positive": "B"}\n', "train", "1", ("A", "B", "C"), math.nan),
]


@pytest.mark.parametrize("case", GOOD, ids=lambda case: f"{case[0]}-{case[4]}")
def test_a_form_is_recognised(write: Callable, case: tuple) -> None:
    kind, name, content, split, row_id, texts, label = case
    path = write(content, name)
    data = open_as(path, kind, split)
    assert data.num_texts == len(texts)
    (row,) = data.rows
    assert (row.id, row.texts) == (row_id, texts)
    np.testing.assert_equal(row.label, label)
    (unlabelled,) = read_texts(path).rows
    assert [*map(text_key, unlabelled.texts)] == [*map(text_key, texts)]


# kind, split, file name, content, kept, skipped, rows of other splits
LAW = [
    ("single", "test", "a", "\tid\tsentence\n0\ta\tx\n1\tb\t \n", 2, 0, 0),
    ("single", "", "a", "HUM:ind Who ?\n\nHUM:ind\nLOC:city Where ?\n", 2, 2, 0),
    ("single", "dev", "a.csv", "sentence,label,split\nx,1,train\ny,0,dev\n,0,dev\n", 1, 1, 1),
    ("pair-score", "", "a.csv", f"main\tx\t2012\t01\t2.5\t{TWO}\nmain\tx\t2012\t02\t2.5\t\ty\n", 1, 1, 0),
]


@pytest.mark.parametrize("case", LAW)
def test_read_is_kept_plus_skipped(write: Callable, tiny: Path, case: tuple) -> None:
    kind, split, name, content, kept, skipped, other_splits = case
    path = write(content, name)
    data = open_as(path, kind, split)
    assert (len(data.rows), len(data.skipped), data.other_splits) == (kept, skipped, other_splits)
    entry = tokenised(path, kind, Tokenizer.load(tiny), split).manifest_entry()
    assert entry["read"] == kept + skipped + other_splits
    assert (entry["kept"], len(entry["skipped"]), entry.get("left_out", 0)) == (kept, skipped, other_splits)


def test_read_texts_keeps_the_original(write: Callable) -> None:
    path = write("\tid\tsentence\tsentiment\n0\tA\t It's \t9\n1\tB\t\t1\n")
    data = read_texts(path, "single")
    (row,) = data.rows
    assert (row.id, row.texts) == ("A", ("It's",))
    assert math.isnan(row.label), "the label is not read"
    assert data.skipped == [Issue(3, "sentence: empty")]


def test_texts_need_no_gold_scores(write: Callable) -> None:
    write("\n4\n", "STS.gs.x.txt")
    path = write("a\tb\nc\td\n", "STS.input.x.txt")
    assert [row.texts for row in read_texts(path).rows] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        ("single", "id\tsentence\n", "no column 'sentiment' "),
        ("single", "0\t\tid\tsentence\n", "no column 'sentiment' "),  # the course's test file
        ("triplet", "anchor,negative\na,b\n", "no column 'sent1' "),
    ],
)
def test_unknown_headers_are_errors(write: Callable, refusal: Callable, kind: str, content: str, words: str) -> None:
    assert refusal(open_as, write(content), kind).startswith(f"file.csv:1: {words}")
    assert refusal(kind_of, write(content), [kind]).startswith(f"file.csv:1: {words}")


def test_unknown_nli_labels_are_errors(write: Callable, refusal: Callable) -> None:
    path = write("premise\thypothesis\tlabel\na\tb\tmaybe\n")
    assert refusal(open_as, path, "nli").startswith("file.csv:2: label: 'maybe'")


def test_empty_and_missing_files_are_errors(write: Callable, refusal: Callable) -> None:
    path = write("")
    assert refusal(open_as, path, "single") == "file.csv: the file is empty"
    path.unlink()
    assert refusal(open_as, path, "single").endswith("file.csv: no such file")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.parquet", b"PAR1\x15\x04\x15\x00PAR1", "is a Parquet file"),
        ("a.json", b'[{"sentence": "x", "label": 1}]', "is a JSON array"),
        ("a.csv", b"sentence;label\nx;1\n", "separated by semicolons"),
        ("a.csv", b"a fine film, really,1\n", "has no header"),
        ("a.csv", b"a fine film,positive\n", "names of the columns"),
    ],
)
def test_other_formats_are_named(write: Callable, refusal: Callable, name: str, content: bytes, what: str) -> None:
    path = write(content, name)
    assert what in refusal(open_as, path, "single", "train")
    assert what in refusal(open_as, path, "single", "test")


def test_a_split_column_selects_rows(write: Callable, refusal: Callable) -> None:
    path = write("sentence,label,split\na,0,train\nb,1,Validation\nc,-1,test\nd,1,train\n")
    for split, ids in (("train", ["2", "5"]), ("dev", ["3"]), ("test", ["4"])):
        assert [row.id for row in open_as(path, "single", split).rows] == ids
    path = write("sentence,label,split\na,0,train\nb,1,test\n")
    assert len(open_as(path, "single").rows) == 2
    assert "no row of the split 'dev'" in refusal(open_as, path, "single", "dev")
    path = write("sentence,label,split\na,0,train\nb,1,Training\n")
    assert "file.csv:3: split: 'Training' is not one of train" in refusal(open_as, path, "single", "train")
    path = write('{"text": "a", "label": 1, "split": "test"}\n{"text": "b", "label": 1, "split": "train"}\n', "a.jsonl")
    assert [row.texts for row in open_as(path, "single", "train").rows] == [("b",)]


def test_message_is_about_the_nearest_kind(write: Callable, refusal: Callable) -> None:
    path = write("premise,hypothesis,relation\na cat,a dog,neutral\n")
    assert "'gold_label'" in refusal(kind_of, path, ("triplet", "nli"))


@pytest.mark.parametrize("label", ["-1", "-1.0", ""])
def test_placeholder_labels_are_no_labels(write: Callable, refusal: Callable, label: str) -> None:
    path = write(f"id\tsentence\tsentiment\na\tuneasy mishmash\t{label}\nb\tgood\t1\n")
    unlabelled, labelled = open_as(path, "single", "test", classes=5).rows
    assert math.isnan(unlabelled.label)
    assert labelled.label == 1
    assert "file.csv:2:" in refusal(open_as, path, "single", "dev")


def test_repeated_header_is_skipped(write: Callable) -> None:
    data = open_as(write("sentence,label\nx,1\nsentence,label\n"), "single")
    assert data.skipped == [Issue(3, "repeats the header")]
    assert len(data.rows) == 1


def test_packed_table_is_no_plain_text(write: Callable, refusal: Callable) -> None:
    path = write(gzip.compress(b"number,comments\n1,a fine film\n"), "a.csv.gz")
    assert "no column 'sentence'" in refusal(read_texts, path, "single")


def test_plain_text_has_no_header(write: Callable) -> None:
    content = "sentence, fragment\nA fine film, really\nwell, hm\n"
    plain = write(content, "a.txt")
    packed = write(gzip.compress(content.encode()), "a.txt.gz")
    for data in (read_texts(plain, "single"), open_as(plain, "lines"), read_texts(packed, "single")):
        assert [row.texts[0] for row in data.rows] == content.splitlines()


def test_carriage_returns_inside_are_errors(write: Callable, refusal: Callable) -> None:
    """Read as text, a file of old Macintosh line ends would be one row."""
    for content, line in (("sent0,sent1,hard_neg\rA,B,C\rA,B,C", 1), ("sent0,sent1,hard_neg\nA,B,C\rA,B,C\n", 2)):
        message = refusal(open_as, write(content), "triplet")
        assert message.startswith(f"file.csv:{line}: a carriage return")


@pytest.mark.parametrize(
    ("text", "other", "alike"),
    [
        ("A man, playing  a guitar.", "a man , playing a guitar .", True),
        ("Don't!", "do n't", True),
        ("ＡＢＣ　１２", "abc 12", True),
        ("怎么 开通？", "怎么开通", True),
        ("STRASSE", "straße", True),
        ("?!", " ? ! ", True),
        ("a cat", "a cut", False),
        ("?", "!", False),
        ("", ".", False),
        ("花", "话", False),
    ],
)
def test_text_keys_compare_letters(text: str, other: str, alike: bool) -> None:
    assert (text_key(text) == text_key(other)) == alike
