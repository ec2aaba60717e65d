"""Guards: a file's layout is recognised for the kind asked for, `--columns` is obeyed, a stranger's file is refused.

python -m pytest --import-mode=importlib tests/tasks/readers/test_layouts.py
"""

from collections.abc import Callable

import pytest

from minbert import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers import open_as
from tasks.readers.layouts import KINDS, LAYOUTS, Opened, parse_columns

ONE, PAIR = ("It is warm.",), ("It is warm.", "It isn't cold.")
TWO = "It is warm.\tIt isn't cold."
COURSE = ("it is warm .", "it isn 't cold .")
HEAD = "\tid\tsentence1\tsentence2"
SICK = f"pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n5\t{TWO}\t2.5\tCONTRADICTION\n"
MRPC = f"\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\t{TWO}\n"
BARS = "x-1||It is warm.||It isn't cold.||"

# kind, file name, content, split, format, id, texts, label (None: none)
GOOD = [
    ("lines", "a.txt", "It is warm.\n", "train", "lines", "1", ONE, None),
    ("single", "a", "\tid\tsentence\tsentiment\n0\tQ\tIt is warm.\t4\n", "train", "course", "q", ("it is warm.",), 4),
    ("single", "a", "0\t\tid\tsentence\n0\t0\tQ\tIt is warm.\n", "test", "course", "q", ("it is warm.",), None),
    ("single", "a", "It is warm. \t1\n", "train", "text and class", "1", ONE, 1),
    ("single", "a", "LOC:city It is warm.\n", "train", "TREC", "1", ONE, 4),
    ("single", "a.tsv", "sentence\tlabel\nIt is warm.\t0\n", "train", "table", "2", ONE, 0),
    ("single", "a.jsonl", '{"text": "It is warm.", "label": 2}\n', "train", "table", "1", ONE, 2),
    ("single", "a.csv", "review,id\nIt is warm.,K\n", "test", "table", "k", ONE, None),
    ("pair-class", "a", f"{HEAD}\tis_duplicate\n0\tQ\t{TWO}\t1.0\n", "train", "course", "q", COURSE, 1),
    ("pair-class", "a.txt", MRPC, "train", "MRPC", "2", PAIR, 1),
    ("pair-class", "a.txt", f"{TWO}\t0\n", "train", "pairs", "1", PAIR, 0),
    ("pair-class", "a", f"id\tquestion1\tquestion2\tis_duplicate\n3\t{TWO}\t1\n", "train", "table", "3", PAIR, 1),
    ("pair-class", "a", "sentence1,sentence2,label\nIt is warm.,It isn't cold.,1\n", "train", "table", "2", PAIR, 1),
    ("pair-class", "a", f"\ufeff1\t\ufeff{TWO}\t1\r\n", "train", "numbered pairs", "1", PAIR, 1),
    ("pair-class", "a", f"{BARS}0\n", "train", "two bars", "1", PAIR, 0),
    ("pair-score", "a", f"{HEAD}\tsimilarity\n0\tQ\t{TWO}\t2.5\n", "dev", "course", "q", COURSE, 2.5),
    ("pair-score", "a", f"{HEAD}\n0\tQ\t{TWO}\n", "test", "course", "q", COURSE, None),
    ("pair-score", "a.csv", f"main\tx\t2012\t01\t2.500\t{TWO}\n", "train", "STS-B", "1", PAIR, 2.5),
    ("pair-score", "a.txt", SICK, "train", "SICK", "5", PAIR, 2.5),
    ("pair-score", "a.txt", f"{BARS}3\n", "train", "two bars", "1", PAIR, 3),
    ("pair-score", "a", f"index\tsentence1\tsentence2\tscore\n0\t{TWO}\t2.5\n", "train", "table", "2", PAIR, 2.5),
    ("pair-score", "a.csv", "1,It is warm.,It isn't cold.,4\n", "train", "numbered pairs", "1", PAIR, 4),
    ("pair-score", "a.txt", f"{TWO}\t3\n", "train", "pairs", "1", PAIR, 3),
    ("nli", "a.txt", SICK, "train", "SICK", "5", PAIR, 2),
    ("nli", "a.tsv", f"premise\thypothesis\tlabel\n{TWO}\tentailment\n", "train", "table", "2", PAIR, 0),
    ("triplet", "a.csv", "sent0,sent1,hard_neg\nA,B,C\n", "train", "table", "2", ("A", "B", "C"), None),
    ("triplet", "a.tsv", "anchor\tpositive\nA\tB\n", "train", "table", "2", ("A", "B"), None),
]


def only(opened: Opened) -> Row:
    (row,) = opened.rows
    assert isinstance(row, Row) and opened.texts == len(row.texts)
    return row


@pytest.mark.parametrize("case", GOOD, ids=lambda case: f"{case[0]}-{case[4]}-{case[5]}")
def test_a_format_is_recognised(write: Callable, case: tuple) -> None:
    kind, name, content, split, expected, ident, texts, label = case
    opened = open_as(write(content, name), kind, split)
    row = only(opened)
    assert (opened.layout, row.id, row.texts) == (expected, ident, texts)
    assert row.label == label if label is not None else row.label != row.label


def test_every_layout_has_a_case() -> None:
    tried = {(case[0], case[4]) for case in GOOD} | {("pair-score", "STS input"), ("nli", "SentEval's NLI")}
    assert {(kind, one.name) for kind, layouts in LAYOUTS.items() for one in layouts} <= tried


def test_an_sts_input_finds_its_gold_file(write: Callable) -> None:
    write("\n4\n", "STS.gs.x.txt")
    opened = open_as(write("a\tb\nc\td\n", "STS.input.x.txt"), "pair-score")
    assert opened.layout == "STS input"
    assert list(opened.rows) == [Skipped(1, "no gold score"), Row("2", ("c", "d"), 4.0)]


def test_the_number_of_classes_is_held(write: Callable, refusal: Callable) -> None:
    path = write("fine\t1\ngreat\t2\n")
    assert [row.label for row in open_as(path, "single", classes=3).rows] == [1.0, 2.0]
    assert refusal(lambda: open_as(path, "single", classes=2).rows) == "file.csv:2: label: '2' is neither 0 nor 1"
    film = write("\tid\tsentence\tsentiment\n0\ta\tdull\t3\n")
    assert refusal(lambda: open_as(film, "single", classes=2).rows).startswith("file.csv:2: sentiment: '3'")


def test_columns_by_name(write: Callable) -> None:
    path = write("key,premise,gold,hypothesis\nX,It is warm.,entailment,It isn't cold.\n")
    spec = "sentence1=premise, sentence2 = hypothesis,label=gold,id=key"
    opened = open_as(path, "nli", columns=spec)
    assert opened.layout == "columns" and only(opened) == Row("x", PAIR, 0.0)
    assert only(open_as(path, "lines", columns="sentence=premise")).texts == ONE
    assert only(open_as(path, "triplet", columns="anchor=premise,positive=hypothesis")).texts == PAIR
    tabs = write('label\ttext\n1\t"It is" warm.\n')
    assert only(open_as(tabs, "single", columns="sentence=text")) == Row("2", ('"It is" warm.',), 1.0), "label is found"
    lines = write('{"q": "It is warm.", "y": 3}\n', "file.jsonl")
    assert only(open_as(lines, "single", columns="sentence=q,label=y")) == Row("1", ONE, 3.0)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sentence1", "'sentence1' is not of the form target=name"),
        ("", "'' is not of the form"),
        ("sentence1=a,", "'' is not of the form"),
        ("=a", "'=a' is not of the form"),
        ("premise=a", "'premise' is not one of sentence1, sentence2, label, id"),
        ("label=a,label=b", "'label' is named twice"),
    ],
)
def test_a_bad_spec_is_refused(spec: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_columns(spec, "pair-score")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sentence1=a,sentence2=x,label=c", "no column 'x' for --columns sentence2=x; the file has 'a', 'b', 'c'"),
        ("sentence1=a,sentence2=b", "no column 'label'; name one with --columns label=...; the file has 'a', 'b', 'c'"),
    ],
)
def test_a_column_that_is_not_there(write: Callable, refusal: Callable, spec: str, words: str) -> None:
    for content in ("a,b,c\n1,2,3\n", '{"a": "1", "b": "2", "c": 3}\n'):
        assert refusal(open_as, write(content), "pair-score", "train", spec) == f"file.csv:1: {words}"
    if "x" not in spec:
        assert only(open_as(write("a,b,c\n1,2,3\n"), "pair-score", "test", spec)).texts == ("1", "2")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("single", "Just a sentence.\n"),
        ("single", "id\tsentence1\tsentence2\n"),
        ("pair-class", "text_1\ttext_2\n"),
        ("pair-class", "One\tTwo\n"),
        ("pair-score", "id,sentence1,sentence2\n1,a,b\n"),
        ("pair-score", '{"sentence1": "a"}\n'),
    ],
)
def test_a_file_of_no_format_is_refused_with_the_accepted_ones(
    write: Callable, refusal: Callable, kind: str, content: str
) -> None:
    message = refusal(lambda: open_as(write(content), kind).rows)
    assert message.startswith(f"file.csv:1: {content.splitlines()[0]!r} names no ")
    for one in LAYOUTS[kind]:
        assert one.form in message
    assert "--columns" in message


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_or_missing_file_is_named(write: Callable, refusal: Callable, kind: str) -> None:
    path = write("")
    assert refusal(lambda: open_as(path, kind).rows) == "file.csv: the file is empty"
    path.unlink()
    assert refusal(lambda: open_as(path, kind).rows).startswith("file.csv: cannot be read: No such file")


def test_a_bad_row_behind_a_good_header_is_named_by_its_line(write: Callable, refusal: Callable) -> None:
    path = write("sentence1,sentence2,score\na,b,1\nc,d,nine\n")
    assert refusal(lambda: open_as(path, "pair-score").rows) == "file.csv:3: score: 'nine' is not between 0 and 5"
