"""Guards: the file of a new task, written from the columns of a user's data file.

python -m pytest --import-mode=importlib tests/tasks/test_new_task.py
"""

from pathlib import Path

import pytest

from minbert import UserError
from tasks import new_task, registry
from tasks.own import OwnTask

CLASS = "classification"
PAIR_CLASS = "pair-classification"
LONG = "cat and so on"
# file, kind, label, content
FILES = [
    ("reviews.csv", CLASS, "mood", "n,comment,mood\n0,the cat sat,happy\n1,a sad dog,angry\n3,a bird,happy\n"),
    ("quora.csv", PAIR_CLASS, "is_duplicate", "question1,question2,is_duplicate\na cat,the cat,1\na dog,the tree,0\n"),
    ("pairs.csv", "similarity", "points", f"left,right,points\na {LONG},a cat {LONG},1.0\nb {LONG},c {LONG},0.25\n"),
    ("patients.csv", CLASS, "label", "id,text,label\n7,a cat sat,x\n7,a dog sat,y\n"),
    ("gaps.csv", CLASS, "label", "id,text,label\n7,a cat sat,x\n,a dog sat,y\n9,a bird sat,x\n"),
    ("numbered.csv", "similarity", "points", f"n,a,b,points\n0,a {LONG},b {LONG},0.5\n1,c {LONG},d {LONG},0.25\n"),
    (
        "annotated.jsonl",
        PAIR_CLASS,
        "gold_label",
        '{"gold_label": "yes", "labels": ["yes"], "sentence1": "a cat", "sentence2": "the cat", "label1": "yes"}\n'
        '{"gold_label": "no", "labels": ["no"], "sentence1": "a dog", "sentence2": "the tree", "label1": "maybe"}\n',
    ),
]


def written_task(name: str | Path, content: str) -> OwnTask:
    """The task that is written of a data file in the current folder."""
    Path(name).write_text(content)
    (task,) = registry.build(str(new_task.write_task(Path(name))), "cross")
    assert isinstance(task, OwnTask)
    return task


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "kind", "label", "content"), FILES)
def test_task_is_written_and_read(name: str, kind: str, label: str, content: str) -> None:
    task = written_task(name, content)
    assert (task.definition.kind, task.definition.label) == (kind, label)
    assert len({row.id for row in task.read(Path(name), "train").rows}) > 1, "a column id that repeats is not read"
    (path,) = Path().glob("*.toml")
    assert ("# not read: 'labels', 'label1'" in path.read_text()) == (name == "annotated.jsonl")
    with pytest.raises(UserError, match="exists already"):
        new_task.write_task(Path(name))


NAMES = [("{}.csv", "mails"), ("{}set.csv", "mails"), ("a-{}.csv", "a"), ("snli_1.0_{}.csv", "snli_1-0")]


@pytest.mark.parametrize(("name", "task_name"), NAMES)
def test_dev_and_test_are_found(name: str, task_name: str) -> None:
    rows = "text,label\na cat sat,x\na dog sat,y\n"
    Path("mails").mkdir()
    for split in ("valid", "test"):
        Path("mails", name.format(split)).write_text(rows)
    task = written_task(Path("mails", name.format("train")), rows)
    assert task.name == task_name
    names = {split: path.name for split, path in task.paths.items()}
    assert names == {"train": name.format("train"), "dev": name.format("valid"), "test": name.format("test")}


def test_name_is_that_of_the_file() -> None:
    """Without the word train, which is no part of another word."""
    names = {"constraints.csv": "constraints", "mails_train.csv": "mails", "news-training.csv": "news"}
    names |= {"übung 1.csv": "übung-1", "影评.csv": "影评"}
    names["+ratings.csv"] = "ratings"  # a name that begins with - would be read as a flag
    for file, name in names.items():
        assert written_task(file, "text,label\na cat sat,x\na dog sat,y\n").name == name


def test_labels_are_of_training_rows() -> None:
    """They may be as long as texts."""
    rows = "mail,reason,split\n"
    for number in range(4):
        rows += f"we waited for train {number},{{{number % 2}}},train\n"
    kinds = ("a complaint about late trains", "a question about the price of tickets")
    assert written_task("long.csv", rows.format(*kinds)).definition.labels == kinds
    hidden = rows.format(0, 1) + "we asked for train 4,-1,test\n"
    assert written_task("hidden.csv", hidden).definition.labels == ("0", "1")


MANY_SCORES = "".join(f"a cat and so on;the cat again;0,{number}\n" for number in range(10, 60))
COMMA_SCORES = "a cat and so on;the cat again;0,5\na dog and so on;the dog again;1,0\n" * 9


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a fine film,good\na bad one,bad\na good one,good\n", "so it is no header"),
        ("PK\x03\x04 more", "an Excel file"),
        ("number\n1\n2\n", "no column looks like texts: it has 'number'"),
        (f"left;right;points\n{MANY_SCORES}", "column 'points' has 50 different values in 50 rows"),
        (f"left;right;points\n{COMMA_SCORES}", "column 'points' has '0,5'; scores have a point before decimals"),
    ],
)
def test_unfit_file_is_named(content: str, problem: str) -> None:
    Path("films.csv").write_text(content)
    with pytest.raises(UserError, match=problem):
        new_task.write_task(Path("films.csv"))
    assert not Path("films.toml").exists()
