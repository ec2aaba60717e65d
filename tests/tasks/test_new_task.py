"""Guards: the file of a new task, written from the columns of a user's data file.

python -m pytest --import-mode=importlib tests/tasks/test_new_task.py
"""

from pathlib import Path

import pytest

from minbert import UserError
from tasks import new_task, registry
from tasks.own import OwnTask

FILES = [
    (
        "reviews.csv",
        "n,comment,mood\n0,the cat sat,happy\n1,a sad dog,angry\n2,a tree,neutral\n3,a bird,happy\n",
        ("classification", "mood"),
    ),
    (
        "quora.csv",
        "question1,question2,is_duplicate\na cat,the cat,1\na dog,the tree,0\n",
        ("pair-classification", "is_duplicate"),
    ),
    (
        "pairs.csv",
        "left,right,points\na cat and so on,the cat again,1.0\na dog and so on,the tree again,0.25\n",
        ("similarity", "points"),
    ),
    (
        "patients.csv",
        "id,text,label\n7,a cat sat,x\n7,a dog sat,y\n",
        ("classification", "label"),
    ),
    (
        "gaps.csv",
        "id,text,label\n7,a cat sat,x\n,a dog sat,y\n9,a bird sat,x\n",
        ("classification", "label"),
    ),
    (
        "numbered.csv",
        "n,left,right,points\n0,a cat and so on,the cat again,0.5\n1,a dog and so on,the tree again,0.25\n",
        ("similarity", "points"),
    ),
    (
        "annotated.jsonl",
        '{"gold_label": "yes", "labels": ["yes"], "sentence1": "a cat", "sentence2": "the cat", "label1": "yes"}\n'
        '{"gold_label": "no", "labels": ["no"], "sentence1": "a dog", "sentence2": "the tree", "label1": "maybe"}\n',
        ("pair-classification", "gold_label"),
    ),
]


@pytest.mark.parametrize(("name", "content", "expected"), FILES)
def test_task_is_written_and_read(
    name: str, content: str, expected: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    path = new_task.write_task(Path(name))
    (task,) = registry.build(str(path), "cross")
    assert isinstance(task, OwnTask)
    assert (task.definition.kind, task.definition.label) == expected
    assert len({row.id for row in task.read(Path(name), "train").rows}) > 1, "a column id that repeats is not read"
    assert ("# not read: 'labels', 'label1'" in path.read_text()) == (name == "annotated.jsonl")
    with pytest.raises(UserError, match="exists already"):
        new_task.write_task(Path(name))


NAMES = [("{}.csv", "mails"), ("{}set.csv", "mails"), ("a-{}.csv", "a"), ("snli_1.0_{}.csv", "snli_1-0")]


@pytest.mark.parametrize(("name", "task_name"), NAMES)
def test_dev_and_test_are_found(name: str, task_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mails").mkdir()
    for split in ("train", "valid", "test"):
        Path("mails", name.format(split)).write_text("text,label\na cat sat,x\na dog sat,y\n")
    (task,) = registry.build(str(new_task.write_task(Path("mails", name.format("train")))), "cross")
    assert task.name == task_name
    names = {split: path.name for split, path in task.paths.items()}
    assert names == {"train": name.format("train"), "dev": name.format("valid"), "test": name.format("test")}


def test_labels_may_be_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = ("a complaint about late trains", "a question about the price of tickets")
    rows = [f"we waited for train {number},{kinds[number % 2]}\n" for number in range(4)]
    Path("mails.csv").write_text("mail,reason\n" + "".join(rows))
    (task,) = registry.build(str(new_task.write_task(Path("mails.csv"))), "cross")
    assert isinstance(task, OwnTask) and task.definition.labels == kinds


def test_labels_are_not_those_of_test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mails.csv").write_text("text,label,split\na cat sat,0,train\na dog sat,1,train\na bird sat,-1,test\n")
    (task,) = registry.build(str(new_task.write_task(Path("mails.csv"))), "cross")
    assert isinstance(task, OwnTask) and task.definition.labels == ("0", "1")


def test_name_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the word train, which is no part of another word."""
    monkeypatch.chdir(tmp_path)
    names = {"constraints.csv": "constraints", "mails_train.csv": "mails", "news-training.csv": "news"}
    names["übung.csv"] = "bung"  # a name that begins with - would be read as a flag
    for file, name in names.items():
        Path(file).write_text("text,label\na cat sat,x\na dog sat,y\n")
        assert new_task.write_task(Path(file)) == Path(f"{name}.toml")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a fine film,good\na bad one,bad\na good one,good\n", "so it is no header"),
        (b"PK\x03\x04 more", "an Excel file"),
        (b"number\n1\n2\n", "no column looks like texts: it has 'number'"),
        (
            b"left;right;points\n" + b"".join(b"a cat and so on;the cat again;0,%d\n" % n for n in range(10, 60)),
            "column 'points' has 50 different values in 50 rows",
        ),
    ],
)
def test_unfit_file_is_named(content: bytes, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("films.csv").write_bytes(content)
    with pytest.raises(UserError, match=problem):
        new_task.write_task(Path("films.csv"))
    assert not Path("films.toml").exists()
