"""Guards: a file's layout is recognised for the kind asked for, and a file of another kind is refused in one sentence.

python -m pytest --import-mode=importlib tests/tasks/readers/test_layouts.py
"""

from collections.abc import Callable

import pytest

from minbert.token_cache import Row, Skipped
from tasks.readers import open_as, read_texts, text_key
from tasks.readers.layouts import KINDS

ONE, PAIR = ("It is warm.",), ("It is warm.", "It isn't cold.")
TWO = "It is warm.\tIt isn't cold."
COURSE = ("it is warm .", "it isn 't cold .")
HEAD = "\tid\tsentence1\tsentence2"
SICK = f"pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n5\t{TWO}\t2.5\tCONTRADICTION\n"
MRPC = f"\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\t{TWO}\n"
BARS = "x-1||It is warm.||It isn't cold.||"

# kind, file name, content, split, id, texts, label (None: none)
GOOD = [
    ("lines", "a.txt", "It is warm.\n", "train", "1", ONE, None),
    ("single", "a", "\tid\tsentence\tsentiment\n0\tQ\tIt is warm.\t4\n", "train", "q", ("it is warm.",), 4),
    ("single", "a", "0\t\tid\tsentence\n0\t0\tQ\tIt is warm.\n", "test", "q", ("it is warm.",), None),
    ("single", "a", "It is warm. \t1\n", "train", "1", ONE, 1),
    ("single", "a", "LOC:city It is warm.\n", "train", "1", ONE, 4),
    ("single", "a.tsv", "sentence\tlabel\nIt is warm.\t0\n", "train", "2", ONE, 0),
    ("single", "a.jsonl", '{"text": "It is warm.", "label": 2}\n', "train", "1", ONE, 2),
    ("single", "a.csv", "text,id\nIt is warm.,K\n", "test", "k", ONE, None),
    ("pair-class", "a", f"{HEAD}\tis_duplicate\n0\tQ\t{TWO}\t1.0\n", "train", "q", COURSE, 1),
    ("pair-class", "a.txt", MRPC, "train", "2", PAIR, 1),
    ("pair-class", "a.txt", f"{TWO}\t0\n", "train", "1", PAIR, 0),
    ("pair-class", "a", f"id\tquestion1\tquestion2\tis_duplicate\n3\t{TWO}\t1\n", "train", "3", PAIR, 1),
    ("pair-class", "a", "sentence1,sentence2,label\nIt is warm.,It isn't cold.,1\n", "train", "2", PAIR, 1),
    ("pair-class", "a", f"\ufeff1\t\ufeff{TWO}\t1\r\n", "train", "1", PAIR, 1),
    ("pair-class", "a", f"{BARS}0\n", "train", "1", PAIR, 0),
    ("pair-score", "a", f"{HEAD}\tsimilarity\n0\tQ\t{TWO}\t2.5\n", "dev", "q", COURSE, 2.5),
    ("pair-score", "a", f"{HEAD}\n0\tQ\t{TWO}\n", "test", "q", COURSE, None),
    ("pair-score", "a.csv", f"main\tx\t2012\t01\t2.500\t{TWO}\n", "train", "1", PAIR, 2.5),
    ("pair-score", "a.txt", SICK, "train", "5", PAIR, 2.5),
    ("pair-score", "a", f"index\tsentence1\tsentence2\tscore\n0\t{TWO}\t2.5\n", "train", "2", PAIR, 2.5),
    ("pair-score", "a", '1\tIt is warm.\t"It ""is"" cold."\t1\n', "train", "1", ("It is warm.", 'It "is" cold.'), 1),
    ("pair-score", "a", f"text_1\ttext_2\tlabel\n{TWO}\t1\n", "train", "2", PAIR, 1),
    ("pair-score", "a", f"id\tsentence1\tsentence2\tlabel\n11\t{TWO}\t1\n", "train", "11", PAIR, 1),
    ("pair", "a", f"{TWO}\n", "train", "1", PAIR, None),
    ("nli", "a.txt", SICK, "train", "5", PAIR, 2),
    ("nli", "a.tsv", f"premise\thypothesis\tlabel\n{TWO}\tentailment\n", "train", "2", PAIR, 0),
    ("triplet", "a.csv", "sent0,sent1,hard_neg\nA,B,C\n", "train", "2", ("A", "B", "C"), None),
    ("triplet", "a.tsv", "anchor\tpositive\r\nA\tB\r\n", "train", "2", ("A", "B"), None),
    (
        "triplet",
        "a",
        'positive\tanchor\tnegative\tx\nb, c\ta\t"n" too\t1\n',
        "train",
        "2",
        ("a", "b, c", '"n" too'),
        None,
    ),
    ("triplet", "a", '{"negative": "C", "anchor": "A", "positive": "B"}\n', "train", "1", ("A", "B", "C"), None),
]


@pytest.mark.parametrize("case", GOOD, ids=lambda case: f"{case[0]}-{case[4]}")
def test_a_layout_is_recognised(write: Callable, case: tuple) -> None:
    kind, name, content, split, ident, texts, label = case
    path = write(content, name)
    opened = open_as(path, kind, split)
    (row,) = opened.rows
    assert isinstance(row, Row)
    assert (opened.texts, row.id, row.texts) == (len(texts), ident, texts)
    assert row.label == label if label is not None else row.label != row.label
    assert [tuple(map(text_key, row.texts)) for row in read_texts(path)] == [tuple(map(text_key, texts))]


def test_texts_alone_are_as_written_without_labels_and_empty_ones(write: Callable) -> None:
    path = write("\tid\tsentence\tsentiment\n0\tA\t It's \t9\n1\tB\t\t1\n")
    assert list(read_texts(path, "single")) == [Row("A", ("It's",)), Skipped(3, "sentence: empty")]


def test_a_quoted_line_break_of_the_course_s_pairs_is_read_where_the_use_is_not_known(write: Callable) -> None:
    path = write('id\tsentence1\tsentence2\tis_duplicate\n1\t"a\nb"\tc\t1\n')
    assert [row.texts for row in read_texts(path)] == [("a\nb", "c")]


def test_an_sts_input_finds_its_gold_file(write: Callable) -> None:
    write("\n4\n", "STS.gs.x.txt")
    path = write("a\tb\nc\td\n", "STS.input.x.txt")
    assert list(open_as(path, "pair-score").rows) == [Skipped(1, "no gold score"), Row("2", ("c", "d"), 4.0)]
    assert [row.texts for row in read_texts(path)] == [("a", "b"), ("c", "d")], "also of pairs without a score"


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        ("single", "id\tsentence\n", "no column 'sentiment' (or label, class): rename the header's, 'id', 'sentence'"),
        ("triplet", "anchor,negative\na,b\n", "no column 'sent1' (or positive): rename the header's, 'anchor', 'nega"),
    ],
)
def test_another_file_is_refused_with_the_accepted_names(
    write: Callable, refusal: Callable, kind: str, content: str, words: str
) -> None:
    assert refusal(lambda: open_as(write(content), kind).rows).startswith(f"file.csv:1: {words}")


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_or_missing_file_is_named(write: Callable, refusal: Callable, kind: str) -> None:
    path = write("")
    assert refusal(lambda: open_as(path, kind).rows) == "file.csv: the file is empty"
    path.unlink()
    assert refusal(lambda: open_as(path, kind).rows).startswith("file.csv: cannot be read: No such file")


def test_a_carriage_return_inside_a_line_is_an_error(write: Callable, refusal: Callable) -> None:
    """Read as text, a file of old Macintosh line ends would be one row."""
    said = "a carriage return inside the line; end lines with \\n or \\r\\n"
    for content, line in (("sent0,sent1,hard_neg\rA,B,C\rA,B,C", 1), ("sent0,sent1,hard_neg\nA,B,C\rA,B,C\n", 2)):
        message = refusal(lambda text: open_as(write(text), "triplet").rows, content)
        assert message == f"file.csv:{line}: {said}"
