"""Guards: a task of a user's own comes from a TOML file, with every mistake named; files of all formats give its rows.

python -m pytest --import-mode=importlib tests/tasks/test_own.py
"""

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from scipy.stats import spearmanr
from sklearn.metrics import f1_score

from minbert import UserError
from minbert.tokenizer import Tokenizer
from tasks import intervals, metrics, new_task, record, registry
from tasks.own import OwnTask

ROWS = [("the cat sat", "happy"), ("a sad dog", "angry"), ("a tree", "neutral"), ('"who", what; not', "happy")]
PAIRS = [("a cat", "the cat", 1.0), ("a dog", "the tree", 0.0), ("who sat", "what sat", 0.25)]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., OwnTask]:
    """A function that writes `reviews.toml` with some keys, and reads it."""

    def write(pairs: str = "cross", name: str = "reviews", **keys: Any) -> OwnTask:
        path = tmp_path / f"{name}.toml"
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        (task,) = registry.build(str(path), pairs)
        assert isinstance(task, OwnTask)
        return task

    return write


def table(
    path: Path, rows: list[tuple[Any, ...]] = ROWS, names: tuple[str, ...] = ("comment", "mood"), **kw: Any
) -> str:
    pd.DataFrame(rows, columns=list(names)).to_csv(path, index=False, **kw)
    return path.name


REVIEWS = {"kind": "classification", "text": "comment", "label": "mood"}


def write_as(form: str, path: Path) -> None:
    frame = pd.DataFrame(ROWS, columns=["comment", "mood"])
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    elif form == "tsv":
        frame.to_csv(path, index=False, sep="\t", quoting=csv.QUOTE_ALL)
    elif form == "semicolons.csv":
        frame.to_csv(path, index=False, sep=";")
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif form == "jsonl.gz":
        path.write_bytes(gzip.compress(frame.to_json(orient="records", lines=True).encode()))
    elif form == "json":
        path.write_text(json.dumps(frame.to_dict("records"), indent=2))
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "tsv", "semicolons.csv", "jsonl", "jsonl.gz", "json", "parquet"])
def test_every_format_gives_same_rows(
    form: str, make: Callable[..., OwnTask], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_as(form, tmp_path / f"reviews.{form}")
    task = make(train=f"reviews.{form}", dev=f"reviews.{form}", **REVIEWS)
    assert task.classes == ("angry", "happy", "neutral")
    said = capsys.readouterr().out
    assert "classification of comment" in said and "by mood: angry, happy, neutral" in said
    assert ("semicolons" in said) == (form == "semicolons.csv")
    rows = task.read(tmp_path / f"reviews.{form}", "train").rows
    assert [(row.texts[0], task.classes[int(row.label)]) for row in rows] == ROWS
    text = task.prediction_text(
        [row.id for row in rows], np.array([1.0, 1, 0, 2]), np.full((4, 3), 1 / 3), tmp_path / f"reviews.{form}", ""
    )
    if "json" in form:
        written = [json.loads(line) for line in text.splitlines()]
    else:
        written = list(csv.DictReader(io.StringIO(text)))
    assert [(row["comment"], row["mood"]) for row in written] == ROWS
    assert [row["prediction"] for row in written] == ["happy", "happy", "angry", "neutral"]
    assert [*written[0]][2:] == ["prediction", "p(angry)", "p(happy)", "p(neutral)"]
    assert float(written[0]["p(angry)"]) == pytest.approx(1 / 3, abs=1e-6)


def test_missing_parquet_engine_is_named(
    make: Callable[..., OwnTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reviews.parquet").write_bytes(b"PAR1 and more")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "fastparquet", None)
    with pytest.raises(UserError, match=r"reviews\.parquet: pandas needs pyarrow to read Parquet: pip install pyarrow"):
        make(train="reviews.parquet", **REVIEWS)


def test_tenth_is_dev_by_label(make: Callable[..., OwnTask], tmp_path: Path) -> None:
    rows = [(f"text {number}", "abc"[number % 10 // 4]) for number in range(200)]  # 80, 80 and 40
    task = make(train=table(tmp_path / "r.csv", rows), **REVIEWS)
    assert task.splits == ("train", "dev")
    train = task.read(tmp_path / "r.csv", "train")
    dev = task.read(tmp_path / "r.csv", "dev")
    assert Counter(row.label for row in dev.rows) == {0: 8, 1: 8, 2: 4}
    assert not {row.id for row in dev.rows} & {row.id for row in train.rows}
    assert len(dev.rows) + len(train.rows) == 200 == len(train.rows) + train.other_splits
    scores = [(f"a {number}", f"b {number}", number / 199) for number in range(200)]
    keys = {"kind": "similarity", "scale": [0, 1], "text1": "l", "text2": "r", "label": "s"}
    similarity = make(train=table(tmp_path / "s.csv", scores, ("l", "r", "s")), **keys)
    drawn = sorted(row.label for row in similarity.read(tmp_path / "s.csv", "dev").rows)
    assert np.abs(np.array(drawn) - np.linspace(0.025, 0.975, 20)).max() < 0.01, "of low and of high scores"


def test_column_split_is_honoured(make: Callable[..., OwnTask], tmp_path: Path, tiny: Path) -> None:
    rows = [(*row, split) for row, split in zip(ROWS, ["train", "test", "Train", "validation"], strict=True)]
    rows.insert(2, ("no label", "", "test"))
    rows.insert(2, ("no label", "", "train"))
    rows.insert(2, ("", "happy", "train"))
    task = make(
        train=table(tmp_path / "r.csv", rows, ("comment", "mood", "split")),
        **REVIEWS,
        labels=["happy", "angry", "neutral"],
    )
    assert task.splits == ("train", "dev", "test") and task.classes[0] == "happy"
    counts = {}
    for split in task.splits:
        cache = task.open(tmp_path / "r.csv", split, Tokenizer.load(tiny), 24).cache
        entry = cache.manifest_entry()
        assert entry["read"] == entry["kept"] + len(entry["skipped"]) + entry["left_out"] == 7
        counts[split] = (entry["kept"], entry["labelled"], [issue["why"] for issue in entry["skipped"]])
    skipped = ["comment: empty", "mood: empty"]
    assert counts == {"train": (2, 2, skipped), "dev": (1, 1, []), "test": (2, 1, [])}


def test_repeated_ids_of_splits_keep_apart(make: Callable[..., OwnTask], tmp_path: Path) -> None:
    rows = [(1, "a", "happy", "train"), (2, "b", "angry", "train"), (1, "c", "happy", "dev"), (2, "d", "angry", "dev")]
    task = make(train=table(tmp_path / "r.csv", rows, ("id", "comment", "mood", "split")), **REVIEWS)
    ids = [row.id for row in task.read(tmp_path / "r.csv", "dev").rows]
    text = task.prediction_text(ids, np.array([0.0, 1.0]), np.eye(2), tmp_path / "r.csv", "dev")
    written = list(csv.DictReader(io.StringIO(text)))
    assert [(row["comment"], row["prediction"]) for row in written] == [("c", "angry"), ("d", "happy")]


def test_labels_of_one_number_are_ordered(make: Callable[..., OwnTask], tmp_path: Path) -> None:
    records = [{"comment": "a", "mood": mood} for mood in ("2", "01", "1.0", "1")]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert make(train="r.jsonl", **REVIEWS).classes == ("01", "1", "1.0", "2")


def test_json_array_keeps_missing_keys(make: Callable[..., OwnTask], tmp_path: Path) -> None:
    records = [{"comment": "a", "mood": "x", "note": 1}, {"comment": "b", "mood": "y"}]
    (tmp_path / "r.json").write_text(json.dumps(records))
    task = make(train="r.json", dev="r.json", **REVIEWS)
    text = task.prediction_text(["1", "2"], np.array([0.0, 1.0]), np.eye(2), tmp_path / "r.json", "dev")
    written = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert [row.get("note") for row in written] == [1, None] and "note" not in written[1]
    assert record.prediction_file(task, "dev") == "reviews-dev-output.jsonl"


def test_numbers_are_labels_and_texts(make: Callable[..., OwnTask], tmp_path: Path) -> None:
    records = [{"comment": 12, "mood": 10}, {"comment": "b", "mood": 2.0}, {"comment": "c", "mood": True}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records[:2]))
    assert make(train="r.jsonl", **REVIEWS).classes == ("2", "10")
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records[1:]))
    assert make(train="r.jsonl", **REVIEWS).classes == ("2", "true")


GOOD = {**REVIEWS, "train": "r.csv"}
SIMILAR = {"kind": "similarity", "train": "p.csv", "scale": [0, 1]}
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({**GOOD, "tets": "r.csv"}, "reviews.toml: tets: no such key; did you mean .*; the keys are kind, train, dev"),
    ({**GOOD, "kind": "regression"}, "reviews.toml: kind: 'regression' is not one of classification, pair-classif"),
    ({"train": "r.csv"}, "reviews.toml: kind: missing; it is one of classification"),
    ({"kind": "classification"}, "reviews.toml: train: missing; it is the training file"),
    ({**GOOD, "dev": "no.csv"}, r"reviews.toml: dev: .*no.csv: no such file"),
    (
        {**GOOD, "text": "coment"},
        r"reviews.toml: text: no column 'coment'; the columns of .*r.csv are 'comment'",
    ),
    ({"kind": "classification", "train": "r.csv"}, "text: not named, and no column has a usual name; the columns of"),
    ({**GOOD, "label": "mod"}, "reviews.toml: label: no column 'mod'"),
    ({**GOOD, "id": "number"}, "reviews.toml: id: no column 'number'"),
    ({**GOOD, "text1": "comment"}, "reviews.toml: text1: a classification has text"),
    ({**GOOD, "labels": ["happy"]}, r"reviews.toml: labels: \['happy'\] is not a list of two or more different texts"),
    ({**GOOD, "labels": "happy"}, "reviews.toml: labels: 'happy' is not a list of two or more texts"),
    ({**GOOD, "scale": [0, 1]}, "reviews.toml: scale: only a similarity has one; a classification has labels"),
    ({**GOOD, "metric": "pearson"}, "reviews.toml: metric: 'pearson' is not one of accuracy, macro-f1"),
    ({**GOOD, "weight": 0}, "reviews.toml: weight: 0 is not a number above 0"),
    ({**GOOD, "weight": True}, "reviews.toml: weight: True is not a number above 0"),
    ({**SIMILAR, "scale": [1, 0]}, r"reviews.toml: scale: \[1, 0\] is not a list of the lowest and the highest score"),
    ({"kind": "similarity", "train": "p.csv"}, r"reviews.toml: scale: missing; .*, such as scale = \[0, 5\]"),
    ({**SIMILAR, "labels": ["a", "b"]}, "reviews.toml: labels: a similarity has a scale"),
    ({**SIMILAR, "metric": "accuracy"}, "reviews.toml: metric: 'accuracy' is not one of pearson, spearman"),
]


@pytest.mark.parametrize(("keys", "message"), MISTAKES)
def test_mistake_names_key(keys: dict[str, Any], message: str, make: Callable[..., OwnTask], tmp_path: Path) -> None:
    table(tmp_path / "r.csv")
    table(tmp_path / "p.csv", PAIRS, ("question1", "question2", "score"))
    with pytest.raises(UserError, match=message):
        make(**keys)


def test_mistake_in_rows_names_line(make: Callable[..., OwnTask], tmp_path: Path, tiny: Path) -> None:
    table(tmp_path / "r.csv", [*ROWS, ("a bird", "blue")])
    task = make(train="r.csv", labels=["angry", "happy", "neutral"], **REVIEWS)
    with pytest.raises(UserError, match=r"r\.csv:6: mood: 'blue' is not one of 'angry', 'happy', 'neutral'"):
        task.read(tmp_path / "r.csv", "train")
    table(tmp_path / "p.csv", [*PAIRS, ("a", "b", 5)], ("question1", "question2", "score"))
    with pytest.raises(UserError, match=r"p\.csv:5: score: '5\.0' is not between 0 and 1 \(scale\)"):
        make(**SIMILAR).read(tmp_path / "p.csv", "train")
    table(tmp_path / "r.csv", [(f"text {number}", f"label {number}") for number in range(60)])
    with pytest.raises(UserError, match=r"reviews\.toml: label: 60 different labels in 60 training rows: name another"):
        make(train="r.csv", **REVIEWS)
    table(tmp_path / "r.csv", [("a", "happy"), ("b", "happy")])
    with pytest.raises(UserError, match="label: the training rows have 'happy', not two or more"):
        make(train="r.csv", **REVIEWS)
    table(tmp_path / "r.csv", [])
    with pytest.raises(UserError, match=r"r\.csv: no row$"):
        make(train="r.csv", **REVIEWS)
    table(tmp_path / "r.csv")
    with pytest.raises(UserError, match=r"r\.csv: no usable dev row; it has too few rows to draw dev rows from"):
        make(train="r.csv", **REVIEWS).open(tmp_path / "r.csv", "dev", Tokenizer.load(tiny), 24)
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress((tmp_path / "r.csv").read_bytes())[:-12])
    with pytest.raises(UserError, match=r"r\.csv\.gz: is named \.gz, but is not a whole gzip archive"):
        make(train="r.csv.gz", **REVIEWS)
    for name in ("train", "dev_norm", "sst", "a.b"):
        with pytest.raises(UserError, match="names another task, or has spaces or signs; rename the file"):
            make(name=name, train="r.csv", **REVIEWS)


@pytest.mark.parametrize("pairs", ["cross", "bi", "joint"])
def test_losses_and_predictions_follow_formulas(pairs: str, make: Callable[..., OwnTask], tmp_path: Path) -> None:
    table(tmp_path / "p.csv", PAIRS, ("question1", "question2", "score"))
    task = make(pairs, **{**SIMILAR, "scale": [-1, 1]})
    width = {"cross": 8, "bi": 24, "joint": 25}[pairs]
    outputs = task.head(8, 0.0)(torch.randn(3, width))
    values = outputs.detach().double().numpy()
    assert values.shape == (3,) and (values > 0).all() and (values < 5).all()
    gold = np.array([-1, 0.5, 1])
    expected = (((values / 5 * 2 - 1) - gold) ** 2 * 2.5**2).sum()
    assert task.loss(outputs, torch.tensor(gold)).item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(task.predict(outputs.detach().numpy()), values / 5 * 2 - 1, rtol=1e-6)

    rows = [(a, b, "yes" if score else "no") for a, b, score in PAIRS]
    table(tmp_path / "c.csv", rows, ("question1", "question2", "label"))
    task = make(pairs, kind="pair-classification", train="c.csv")
    logits = task.head(8, 0.0)(torch.randn(3, width))
    assert logits.shape == (3, 2)
    labels = np.array([0, 1, 1])
    shares = softmax(logits.detach().double().numpy(), axis=1)
    loss = task.loss(logits, torch.tensor(labels)).item()
    assert loss == pytest.approx(-np.log(shares[[0, 1, 2], labels]).sum(), rel=1e-5)
    np.testing.assert_allclose(task.probabilities(logits.detach().numpy()), shares, rtol=1e-5)


def test_metrics_agree_with_scikit_learn() -> None:
    random = np.random.default_rng(3)
    gold = random.integers(0, 4, (5, 60)).astype(float)
    predicted = random.integers(1, 5, (5, 60)).astype(float)
    expected = [f1_score(a, b, average="macro") for a, b in zip(gold, predicted, strict=True)]
    np.testing.assert_allclose(metrics.macro_f1(predicted, gold), expected)
    np.testing.assert_allclose(intervals.scores("macro-F1", predicted, gold), expected)
    assert metrics.score("macro-F1", predicted[0], gold[0]) == pytest.approx(expected[0])
    assert metrics.score("macro-F1", np.zeros(0), np.zeros(0)) is None
    assert metrics.score("Spearman's rho", predicted[0], gold[0]) == pytest.approx(spearmanr(predicted[0], gold[0])[0])


NEW = [
    ("reviews.csv", ("n", "comment", "mood"), [(n, *row) for n, row in enumerate(ROWS)], ("classification", "mood")),
    (
        "quora.csv",
        ("question1", "question2", "is_duplicate"),
        [(*row[:2], int(row[2])) for row in PAIRS],
        ("pair-classification", "is_duplicate"),
    ),
    (
        "pairs.csv",
        ("left", "right", "points"),
        [(f"{a} and so on", f"{b} again", c) for a, b, c in PAIRS],
        ("similarity", "points"),
    ),
]


@pytest.mark.parametrize(("name", "columns", "rows", "expected"), NEW)
def test_new_task_is_written_and_read(
    name: str, columns: Any, rows: Any, expected: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / name, rows, columns)
    path = new_task.write_task(Path(name))
    (task,) = registry.build(str(path), "cross")
    assert isinstance(task, OwnTask)
    assert (task.definition.kind, task.definition.label) == expected
    assert len(task.read(Path(name), "train").rows) == len(rows)
    with pytest.raises(UserError, match="exists already"):
        new_task.write_task(Path(name))


def test_new_task_finds_dev_and_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mails").mkdir()
    for split in ("train", "valid", "test"):
        table(tmp_path / "mails" / f"{split}.csv")
    (task,) = registry.build(str(new_task.write_task(Path("mails/train.csv"))), "cross")
    assert task.name == "mails"
    assert {split: path.name for split, path in task.paths.items()} == {
        "train": "train.csv",
        "dev": "valid.csv",
        "test": "test.csv",
    }
    (tmp_path / "bare.csv").write_text("number\n1\n2\n")
    with pytest.raises(UserError, match="no column looks like texts: it has 'number'"):
        new_task.write_task(Path("bare.csv"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a fine film,good\na bad one,bad\na good one,good\n", "so it is no header"),
        (b"PK\x03\x04 more", "an Excel file"),
    ],
)
def test_new_task_names_unfit_files(
    content: bytes, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "films.csv").write_bytes(content)
    with pytest.raises(UserError, match=problem):
        new_task.write_task(tmp_path / "films.csv")
    assert not (tmp_path / "films.toml").exists()
