"""Guards: a task of a user's own comes from a TOML file, with every mistake named; files of all formats give its rows.

python -m pytest --import-mode=importlib tests/tasks/test_own.py
"""

import csv
import gzip
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax

from minbert import UserError
from minbert.tokenizer import Tokenizer
from tasks import new_task, record, registry
from tasks.own import OwnTask

ROWS = [("the cat sat", "happy"), ("a sad dog", "angry"), ("a tree", "neutral"), ('"who", what; not', "happy")]
PAIRS = [("a cat", "the cat", 1.0), ("a dog", "the tree", 0.0), ("who sat", "what sat", 0.25)]
REVIEWS = {"kind": "classification", "train": "r.csv", "text": "comment", "label": "mood"}
SIMILAR = {"kind": "similarity", "train": "p.csv", "scale": [0, 1]}
Make = Callable[..., OwnTask]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A function that writes `reviews.toml` with some keys, and reads it."""

    def write(pairs: str = "cross", name: str = "reviews", **keys: Any) -> OwnTask:
        path = tmp_path / f"{name}.toml"
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        (task,) = registry.build(str(path), pairs)
        assert isinstance(task, OwnTask)
        return task

    return write


def write_table(path: Path, rows: Sequence[tuple[Any, ...]], *names: str) -> None:
    pd.DataFrame(rows, columns=list(names or ("comment", "mood"))).to_csv(path, index=False)


def write_json(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


FORMS: dict[str, Callable[[pd.DataFrame], str]] = {
    "csv": lambda frame: frame.to_csv(index=False),
    "index.csv": lambda frame: frame.to_csv(),  # a column without a name
    "csv.gz": lambda frame: frame.to_csv(index=False),
    "tsv": lambda frame: frame.to_csv(index=False, sep="\t", quoting=csv.QUOTE_ALL),
    "semicolons.csv": lambda frame: frame.to_csv(index=False, sep=";"),
    "jsonl": lambda frame: frame.to_json(orient="records", lines=True),
    "ndjson": lambda frame: frame.to_json(orient="records", lines=True),
    "json": lambda frame: json.dumps(frame.to_dict("records"), indent=2),
    "parquet": lambda frame: "",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_same_rows(
    form: str, make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame(ROWS, columns=["comment", "mood"])
    path = tmp_path / f"reviews.{form}"
    content = FORMS[form](frame).encode()
    path.write_bytes(gzip.compress(content) if form.endswith(".gz") else content)
    if form == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    task = make(**{**REVIEWS, "train": path.name, "dev": path.name})
    assert task.classes == ("angry", "happy", "neutral")
    printed = capsys.readouterr().out
    assert "classification of comment" in printed and "by mood: angry, happy, neutral" in printed
    assert ("semicolons" in printed) == (form == "semicolons.csv")
    rows = task.read(path, "train").rows
    if "json" not in form and form != "parquet":
        assert [row.id for row in rows] == ["2", "3", "4", "5"], "the lines"
    assert [(row.texts[0], task.classes[int(row.label)]) for row in rows] == ROWS
    text = task.prediction_text([row.id for row in rows], np.array([1.0, 1, 0, 2]), np.full((4, 3), 1 / 3), path)
    if "json" in form:
        written = [json.loads(line) for line in text.splitlines()]
    else:
        written = [*csv.DictReader(io.StringIO(text))]
    assert [(row["comment"], row["mood"]) for row in written] == ROWS
    assert [row["prediction"] for row in written] == ["happy", "happy", "angry", "neutral"]
    assert [*written[0]][-4:] == ["prediction", "p(angry)", "p(happy)", "p(neutral)"]
    assert float(written[0]["p(angry)"]) == pytest.approx(1 / 3, abs=1e-6)


def test_parquet_has_columns_and_missing_values(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "r.parquet"
    frame = pd.DataFrame({"comment": ["a", "b"], "mood": ["x", "y"], "note": ["c", None], "stars": [2, np.nan]})
    frame.to_parquet(path)
    task = make(**{**REVIEWS, "train": path.name})
    text = task.input_table(task.read_inputs(path).rows, 100 * np.eye(2), path)
    assert text.splitlines()[1:] == ["a,x,c,2.0,x,1.0,0.0", "b,y,,,y,0.0,1.0"]
    frame.assign(comment=["a cat sat", "a dog sat"], day=pd.Timestamp("2026-01-01")).to_parquet(path)
    # a date is no value of JSON
    write_json(tmp_path / "r.jsonl", [{"comment": "a", "mood": "x"}, {"comment": "b", "mood": "y"}])
    as_json = make(**{**REVIEWS, "train": "r.jsonl"})
    assert "2026-01-01" in as_json.prediction_text(["1", "2"], np.array([0.0, 1.0]), np.eye(2), path, "dev")
    monkeypatch.chdir(tmp_path)
    assert "'day'" in new_task.write_task(path).read_text()
    frame.drop(columns="comment").to_parquet(path)
    with pytest.raises(UserError, match="no column 'comment': it has 'mood', 'note', 'stars'"):
        task.read_inputs(path)


def test_missing_parquet_engine_is_named(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reviews.parquet").write_bytes(b"PAR1 and more")
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"reviews\.parquet: pandas needs pyarrow to read Parquet: pip install pyarrow"):
        make(**{**REVIEWS, "train": "reviews.parquet"})


def test_tenth_is_dev_by_label(make: Make, tmp_path: Path) -> None:
    rows = [(f"text {number}", "abc"[number % 10 // 4]) for number in range(200)]  # 80, 80 and 40
    write_table(tmp_path / "r.csv", rows)
    task = make(**REVIEWS)
    assert task.splits == ("train", "dev")
    train = task.read(tmp_path / "r.csv", "train")
    dev = task.read(tmp_path / "r.csv", "dev")
    assert Counter(row.label for row in dev.rows) == {0: 8, 1: 8, 2: 4}
    assert not {row.id for row in dev.rows} & {row.id for row in train.rows}
    assert len(train.rows) + len(dev.rows) == 200
    assert train.other_splits == len(dev.rows)


def test_skipped_rows_are_listed_once(make: Make, tmp_path: Path) -> None:
    """With the training rows, where dev rows are drawn from the same file."""
    rows = [(f"text {number}", "ab"[number % 2]) for number in range(20)]
    write_table(tmp_path / "r.csv", [*rows, ("none", "")])
    task = make(**REVIEWS)
    train = task.read(tmp_path / "r.csv", "train")
    dev = task.read(tmp_path / "r.csv", "dev")
    assert [issue.line for issue in train.skipped] == [22] and not dev.skipped
    assert len(train.rows) + train.other_splits + 1 == 21
    assert len(dev.rows) + dev.other_splits == 21


def test_column_like_split_is_noted(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path / "r.csv", [("a", "x", "train"), ("b", "y", "dev")], "comment", "mood", "Split")
    make(**REVIEWS)
    assert "r.csv: column 'Split' is not read" in capsys.readouterr().err


def test_column_split_is_honoured(make: Make, tmp_path: Path, tiny: Path) -> None:
    rows = [(*row, split) for row, split in zip(ROWS, ["train", "test", "Train", "validation"], strict=True)]
    rows += [("", "happy", "train"), ("no label", "", "train"), ("no label", "", "test")]
    write_table(tmp_path / "r.csv", rows, "comment", "mood", "split")
    task = make(**REVIEWS, labels=["happy", "angry", "neutral"])
    assert task.splits == ("train", "dev", "test") and task.classes[0] == "happy"
    counts = {}
    for split in task.splits:
        cache = task.open(tmp_path / "r.csv", split, Tokenizer.load(tiny), 24).cache
        entry = cache.manifest_entry()
        assert entry["read"] == entry["kept"] + len(entry["skipped"]) + entry["left_out"] == 7
        counts[split] = (entry["kept"], entry["labelled"], [issue["why"] for issue in entry["skipped"]])
    skipped = ["comment: empty", "mood: empty"]
    assert counts == {"train": (2, 2, skipped), "dev": (1, 1, []), "test": (2, 1, [])}


def test_repeated_ids_of_splits_keep_apart(make: Make, tmp_path: Path) -> None:
    """Also where a row is skipped that has the id of another."""
    rows = [(1, "a", "happy", "train"), (2, "b", "angry", "train"), (1, "c", "happy", "dev"), (2, "d", "angry", "dev")]
    for skipped in ([(1, " ", "happy", "dev")], []):
        write_table(tmp_path / "r.csv", [*skipped, *rows], "id", "comment", "mood", "split")
        task = make(**REVIEWS)
        ids = [row.id for row in task.read(tmp_path / "r.csv", "dev").rows]
        text = task.prediction_text(ids, np.array([0.0, 1.0]), np.eye(2), tmp_path / "r.csv", "dev")
        written = list(csv.DictReader(io.StringIO(text)))
        assert [(row["comment"], row["prediction"]) for row in written] == [("c", "angry"), ("d", "happy")]
    inputs = task.read_inputs(tmp_path / "r.csv").rows
    text = task.input_table(inputs, np.eye(2)[[0, 1, 1, 0]], tmp_path / "r.csv")
    written = list(csv.DictReader(io.StringIO(text)))
    assert [row["prediction"] for row in written] == ["angry", "happy", "happy", "angry"]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["2", "01", "1.0", "1"], ("01", "1", "1.0", "2")),  # equal numbers are different labels
        ([10, 2.0], ("2", "10")),
        ([2.0, True], ("2", "true")),
        ([False, True], ("false", "true")),
    ],
)
def test_numbers_are_labels(labels: list[Any], classes: tuple[str, ...], make: Make, tmp_path: Path) -> None:
    write_json(tmp_path / "r.jsonl", [{"comment": 12, "mood": label} for label in labels])
    assert make(**{**REVIEWS, "train": "r.jsonl"}).classes == classes
    task = make(**{**REVIEWS, "train": "r.jsonl", "labels": labels[::-1]})
    assert [row.label for row in task.read(tmp_path / "r.jsonl").rows] == [*range(len(labels))][::-1]


def test_json_array_keeps_missing_keys(make: Make, tmp_path: Path) -> None:
    cut = "\ud83d"  # half of a surrogate pair
    records = [{"comment": "a", "mood": "x", "note": cut}, {"comment": "b", "mood": "y"}]
    (tmp_path / "r.json").write_text(json.dumps(records))
    task = make(**{**REVIEWS, "train": "r.json", "dev": "r.json"})
    (tmp_path / "more.json").write_text(json.dumps([*records, {"comment": "c"}]))
    (issue,) = task.read(tmp_path / "more.json", "train").skipped
    assert issue.reason == "mood: empty"
    text = task.prediction_text(["1", "2"], np.array([0.0, 1.0]), np.eye(2), tmp_path / "r.json", "dev")
    first, second = [json.loads(line) for line in text.splitlines()]
    assert first["note"] == cut and "note" not in second
    assert record.prediction_file(task, "dev") == "reviews-dev-output.jsonl"


def test_json_lines_keep_late_keys(make: Make, tmp_path: Path) -> None:
    """A row without the key `split`, which a later one has, is of no split."""
    records = [{"comment": "a", "mood": "x"}, {"comment": "b", "mood": "y", "split": "test"}]
    write_json(tmp_path / "r.jsonl", records)
    with pytest.raises(UserError, match="no row to train on: the column 'split' has '', 'test', not train"):
        make(**{**REVIEWS, "train": "r.jsonl"})


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({**REVIEWS, "tets": "r.csv"}, "tets: a classification has no such key; did you mean .*; it has kind, train, dev"),
    ({**SIMILAR, "labels": ["a", "b"]}, "labels: a similarity has no such key"),
    ({**REVIEWS, "kind": "regression"}, "kind: 'regression' is not one of classification, pair-classif"),
    ({"train": "r.csv"}, "kind: missing; it is one of classification"),
    ({"kind": "classification"}, "train: missing; it is the training file"),
    ({**REVIEWS, "dev": "no.csv"}, r"dev: .*no.csv: no such file"),
    ({**REVIEWS, "text": "coment"}, r"text: no column 'coment'; the columns of .*r.csv are 'comment'"),
    ({**REVIEWS, "id": "number"}, "id: no column 'number'"),
    ({**REVIEWS, "labels": ["happy"]}, r"labels: \['happy'\] is not a list of two or more different texts"),
    ({**REVIEWS, "labels": [1, 1.0]}, r"labels: \[1, 1\.0\] is not a list of two or more different texts"),
    ({**REVIEWS, "metric": "pearson"}, "metric: 'pearson' is not one of accuracy, macro-f1"),
    ({**REVIEWS, "weight": 0}, "weight: 0 is not a number above 0"),
    ({"kind": "classification", "train": "index.csv"}, "text: not named, and no column has a usual name; the columns"),
    ({**SIMILAR, "scale": [1, 0]}, "scale: it is a list of the lowest and the highest score"),
    ({"kind": "similarity", "train": "p.csv"}, r"scale: .*, such as scale = \[0, 5\]"),
]


@pytest.mark.parametrize(("keys", "message"), MISTAKES)
def test_mistake_names_key(keys: dict[str, Any], message: str, make: Make, tmp_path: Path) -> None:
    write_table(tmp_path / "r.csv", ROWS)
    write_table(tmp_path / "p.csv", PAIRS, "question1", "question2", "score")
    (tmp_path / "index.csv").write_text(",comment,mood\n0,a,happy\n1,b,angry\n")
    with pytest.raises(UserError, match=f"reviews.toml: {message}"):
        make(**keys)


ROW_MISTAKES: list[tuple[dict[str, Any], list[tuple[Any, ...]], str]] = [
    (
        {**REVIEWS, "labels": ["angry", "happy", "neutral"]},
        [*ROWS, ("a bird", "blue")],
        r"r\.csv:6: mood: 'blue' is not one of 'angry', 'happy', 'neutral'",
    ),
    (SIMILAR, [*PAIRS, ("a", "b", 5)], r"p\.csv:5: score: '5\.0' is not a number from 0 to 1"),
    (REVIEWS, [(f"text {n}", f"label {n}") for n in range(60)], "label: 60 different labels in 60 training rows: name"),
    (REVIEWS, [("a", "happy"), ("b", "happy")], "label: the training rows have 'happy', not two or more"),
    (REVIEWS, [], r"r\.csv: no row to train on"),
    (REVIEWS, ROWS, r"r\.csv: no usable row: too few to draw dev rows from"),
]


@pytest.mark.parametrize(("keys", "rows", "message"), ROW_MISTAKES)
def test_mistake_in_rows_is_named(
    keys: dict[str, Any], rows: list[tuple[Any, ...]], message: str, make: Make, tmp_path: Path, tiny: Path
) -> None:
    path = tmp_path / keys["train"]
    columns = ("comment", "mood") if keys["kind"] == "classification" else ("question1", "question2", "score")
    write_table(path, rows, *columns)
    with pytest.raises(UserError, match=message):
        make(**keys).open(path, "dev", Tokenizer.load(tiny), 24)


@pytest.mark.parametrize("name", ["score", "training", "dev_norm", "sst", "a.b"])
def test_name_of_file_is_free(name: str, make: Make, tmp_path: Path) -> None:
    write_table(tmp_path / "r.csv", ROWS)
    with pytest.raises(UserError, match="names another task, or has spaces or signs; choose another name"):
        make(name=name, **REVIEWS)


def test_damaged_archive_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(b"comment,mood\na,b\n")[:-12])
    with pytest.raises(UserError, match=r"r\.csv\.gz: is named \.gz, but is not a whole gzip archive"):
        make(**{**REVIEWS, "train": "r.csv.gz"})


def test_rows_to_predict_need_no_label(make: Make, tmp_path: Path) -> None:
    """Test rows may have placeholders; an unknown label of a user's file is noted."""
    write_table(tmp_path / "r.csv", ROWS)
    write_table(tmp_path / "t.csv", [("a bird", "-1"), ("a cat", "happy")])
    write_table(tmp_path / "u.csv", [("a bird", "Happy"), ("a cat", "happy")])
    task = make(**REVIEWS, test="t.csv")
    inputs = task.read_inputs(tmp_path / "u.csv").rows
    for unknown, happy in (task.read(tmp_path / "t.csv", "test").rows, inputs):
        assert np.isnan(unknown.label)
        assert task.classes[int(happy.label)] == "happy" and not happy.note
    assert inputs[0].note == "mood: 'Happy' is no label of the task; predicted, not scored"


def test_text_may_begin_with_a_bracket(make: Make, tmp_path: Path) -> None:
    write_table(tmp_path / "r.csv", ROWS)
    path = tmp_path / "lines.txt"
    path.write_text("[laughs] That was fun\n")
    assert make(**REVIEWS).read_inputs(path).rows[0].texts == ("[laughs] That was fun",)


def test_titles_are_different(make: Make, tmp_path: Path) -> None:
    write_table(tmp_path / "r.csv", ROWS)
    make(**REVIEWS, title="sentiment")
    with pytest.raises(UserError, match="two tasks have the title 'sentiment'"):
        registry.build(f"sst,{tmp_path / 'reviews.toml'}", "cross")


@pytest.mark.parametrize("pairs", ["cross", "bi", "joint"])
def test_losses_and_predictions_follow_formulas(pairs: str, make: Make, tmp_path: Path) -> None:
    write_table(tmp_path / "p.csv", PAIRS, "question1", "question2", "score")
    task = make(pairs, **{**SIMILAR, "scale": [-1, 1]})
    width = {"cross": 8, "bi": 24, "joint": 25}[pairs]
    outputs = task.head(task.feature_width(8), 0.0)(torch.randn(3, width))
    values = outputs.detach().double().numpy()
    assert values.shape == (3,)
    assert (values > 0).all() and (values < 5).all()
    gold = np.array([-1, 0.5, 1])
    expected = (((values / 5 * 2 - 1) - gold) ** 2 * 2.5**2).sum()
    assert task.loss(outputs, torch.tensor(gold)).item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(task.predict(outputs.detach().numpy()), values / 5 * 2 - 1, rtol=1e-6)

    rows = [(a, b, "yes" if score else "no") for a, b, score in PAIRS]
    write_table(tmp_path / "c.csv", rows, "question1", "question2", "label")
    task = make(pairs, kind="pair-classification", train="c.csv")
    logits = task.head(task.feature_width(8), 0.0)(torch.randn(3, width))
    assert logits.shape == (3, 2)
    labels = np.array([0, 1, 1])
    shares = softmax(logits.detach().double().numpy(), axis=1)
    loss = task.loss(logits, torch.tensor(labels)).item()
    assert loss == pytest.approx(-np.log(shares[[0, 1, 2], labels]).sum(), rel=1e-5)
    np.testing.assert_allclose(task.probabilities(logits.detach().numpy()), shares, rtol=1e-5)
