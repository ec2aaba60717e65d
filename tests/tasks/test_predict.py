"""Guards: a user's own sentences get what the run itself would predict for them, from a file and from Python.

python -m pytest --import-mode=importlib tests/tasks/test_predict.py
"""

import io
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from minbert import UserError, weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.optimizer import AdamW
from minbert.tokenizer import Tokenizer
from minbert.train import checkpoint
from tasks import evaluate, predict, registry
from tasks.model import MultitaskModel

SENTENCES = ["The cat sat on a mat.", "is a dog happy?", "Not very , SAD bird!", "who", "a bird's tree " * 40]
Capture = pytest.CaptureFixture[str]


def finished_run(
    run: Path, tiny: Path, pairs: str = "cross", tasks: str = "sst,quora,sts", pooler: str = "pooler", **more: Any
) -> Path:
    """The folder of a finished run: the kept checkpoint, of step 4, and a later one; `more` goes into its manifest."""
    model = MultitaskModel(BertModel.from_pretrained(tiny), registry.build(tasks, pairs), 0.3)
    settings = {"tasks": tasks, "pairs": pairs, "max_length": 24, "precision": "auto", "pooler": pooler}
    (run / "checkpoints").mkdir(parents=True)
    for step, shift in ((4, 0.0), (8, 0.5)):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += shift
        if step == 4:
            tensors = model.encoder.state_dict()
            weights.save(run / "encoder", tensors, BertConfig.read(tiny), Tokenizer.load(tiny), pooler)
        checkpoint.save(run / "checkpoints", step, model, AdamW(model.parameters(), lr=1e-3), {})
    manifest = {"all_settings": settings, "settings": {}, "precision": "fp32", "data": {}, **more}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "scores.json").write_text(json.dumps({"step": 4, "tasks": {}}))
    return run


@pytest.fixture
def make_run(tiny: Path, tmp_path: Path) -> Callable[..., Path]:
    """A function that makes the folder of a finished run."""

    def make(pairs: str = "cross", **more: Any) -> Path:
        return finished_run(tmp_path / f"run-{pairs}", tiny, pairs, **more)

    return make


def course_file(path: Path, name: str) -> list[tuple[str, ...]]:
    """SENTENCES, or all pairs of them, as a data file of the course; returns the rows' texts."""
    columns = ["sentence"] if name == "sst" else ["sentence1", "sentence2"]
    label = {"sst": "sentiment", "quora": "is_duplicate", "sts": "similarity"}[name]
    rows = [*product(SENTENCES, repeat=len(columns))]
    table = pd.DataFrame(rows, columns=columns)
    table.insert(0, "id", [f"i{number}" for number in range(len(rows))])
    table[label] = 1
    table.to_csv(path, sep="\t")
    return rows


def test_texts_are_preprocessed_as_trained(tiny: Path, tmp_path: Path) -> None:
    course_file(tmp_path / "course.csv", "sst")
    (tmp_path / "own.csv").write_text("sentence,label\nThe cat.,1\nA DOG isn't sad.,0\n")
    task = registry.build("sst", "cross")[0]
    for name, text in (("course.csv", "the cat."), ("own.csv", "The cat.")):
        rows = task.open(tmp_path / name, "train", Tokenizer.load(tiny), 24)
        data = {"train": {"sst": rows.cache.manifest_entry() | rows.cache.report}}
        run = finished_run(tmp_path / f"run of {name}", tiny, data=data)
        assert predict.load(run).examples(task, ["The cat."]).cache.text(0, 0) == text


@pytest.mark.parametrize(
    ("pairs", "pooler"), [("cross", "mean"), ("paper", "pooler"), ("bi", "max"), ("joint", "mean")]
)
def test_predictions_equal_the_runs_evaluation(
    pairs: str, pooler: str, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    run = make_run(pairs, pooler=pooler)
    tasks = registry.build("sst,quora,sts", pairs)
    best = MultitaskModel(BertModel(BertConfig.read(run / "encoder")), tasks, 0.3, pooler=pooler)
    checkpoint.load(run / "checkpoints", 4, best)
    # the run names the vector, also where its encoder's folder does not
    (run / "encoder" / "minbert.json").unlink()
    predictor = predict.load(run)
    for name, task in best.tasks.items():
        rows = course_file(tmp_path / f"{name}.csv", name)
        examples = task.open(tmp_path / f"{name}.csv", "dev", Tokenizer.load(run / "encoder"), 24)
        outputs = evaluate.outputs(best, task, examples, "fp32")
        inputs = [row[0] for row in rows] if task.num_texts == 1 else rows
        np.testing.assert_array_equal(predictor.predict(task.files.flag_prefix, inputs), task.predict(outputs))
        if task.classes:
            np.testing.assert_array_equal(predictor.predict_proba(name, inputs), task.probabilities(outputs))


FRAME = pd.DataFrame({"sentence": ["A film."], "label": [1]})
OTHER_INPUTS = [
    ("sst", FRAME, "the inputs are a DataFrame, not a list of sentences"),
    ("sst", {"A film.", "Another."}, "a set"),
    ("sst", None, "a NoneType"),
    ("sst", ["A film.", float("nan")], "input 1, counted from 0, is a float, not a sentence"),
    ("sst", [("a", "b")], "input 0, counted from 0, holds 2 texts, not 1"),
    ("sts", ("A film.", "A movie."), "input 0, counted from 0, is a str, not a pair of sentences"),
    ("sts", "A film.", "the inputs are a str, not a list of pairs of sentences"),
    ("sts", [("a", "b"), ("a",)], "input 1, counted from 0, holds 1 text, not 2"),
    ("sts", [("a", "b"), ("a", 7.0)], "input 1, counted from 0, holds a str and a float"),
]


def test_other_inputs_are_named(make_run: Callable[..., Path]) -> None:
    predictor = predict.load(make_run(tasks="sst,sts"))
    for name, inputs, words in OTHER_INPUTS:
        with pytest.raises(UserError) as caught:
            predictor.predict(name, inputs)
        message = str(caught.value)
        assert message.startswith(f"{name}: ") and words in message
    with pytest.raises(UserError, match="sts: predicts a score"):
        predictor.predict_proba("sts", [("a", "b")])
    with pytest.raises(UserError, match="task: 'para' is not one of sst, sts"):
        predictor.predict("para", [("a", "b")])


def test_sequences_of_texts_are_inputs(make_run: Callable[..., Path]) -> None:
    predictor = predict.load(make_run())
    texts = ["The cat sat.", "A sad dog!"]
    expected = predictor.predict_proba("sst", texts)
    for inputs in (tuple(texts), np.array(texts), pd.Series(texts, index=[7, 7]), iter(texts)):
        np.testing.assert_array_equal(predictor.predict_proba("sst", inputs), expected)
    assert predictor.predict("sst", texts[0]) == expected[0].argmax(), "a number for a single sentence"
    assert predictor.predict_proba("sst", texts[0]).shape == (5,)
    pairs = predictor.predict("sts", [tuple(texts)])
    np.testing.assert_array_equal(predictor.predict("sts", pd.DataFrame([texts]).to_numpy()), pairs)
    assert predictor.predict("sst", []).shape == (0,)
    assert predictor.predict_proba("sst", []).shape == (0, 5)


TABLES = [
    ("sst", "\tid\tsentence\tsentiment\n0\tX1\t The cat!\t4\n1\tX2\t who\t\n"),
    ("para", "id,question1,question2\nX1,The cat!,A dog.\nX2,who,A dog.\n"),
    ("sts", "id\tsentence1\tsentence2\tscore\nX1\tThe cat!\tA dog.\t99\nX2\twho\tA dog.\t-\n"),
    ("sst", '{"id": "X1\\n", "text": "The cat!"}\n{"id": " X\\t2\\n", "text": "who"}\n'),
]
COLUMNS = {
    "sst": ["id", "class", "name", "probability", "sentence"],
    "para": ["id", "is_paraphrase", "probability", "sentence1", "sentence2"],
    "sts": ["id", "similarity", "sentence1", "sentence2"],
}


@pytest.mark.parametrize(("name", "content"), TABLES)
def test_table_is_read_by_header(
    name: str, content: str, make_run: Callable[..., Path], tmp_path: Path, capsys: Capture
) -> None:
    run = make_run()
    source = tmp_path / "own"
    source.write_text(content)
    predict.main([str(run), "--task", name, str(source)])
    table = pd.read_csv(io.StringIO(capsys.readouterr().out), sep="\t")
    assert list(table) == COLUMNS[name]
    assert table["id"].str.replace(" ", "").tolist() == ["X1", "X2"]
    inputs: list[Any] = ["The cat!", "who"]
    if name == "sst":
        assert table["sentence"].tolist() == inputs
    else:
        inputs = [("The cat!", "A dog."), ("who", "A dog.")]
        assert [*zip(table["sentence1"], table["sentence2"])] == inputs
    predictor = predict.load(run)
    predicted = table[COLUMNS[name][1]].tolist()
    assert predicted == pytest.approx(predictor.predict(name, inputs).tolist(), abs=5e-5)
    if name != "sts":
        probabilities = predictor.predict_proba(name, inputs)
        # beside is_paraphrase the probability of a paraphrase, beside a class its own
        expected = probabilities[:, 1] if name == "para" else probabilities.max(1)
        assert table["probability"].tolist() == pytest.approx(expected.tolist(), abs=5e-5)


def test_ids_may_repeat(make_run: Callable[..., Path], tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "own.csv"
    source.write_text("id,text\nX1,The cat!\nX1,who\n")
    predict.main([str(make_run()), "--task", "sst", str(source)])
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["X1", "X1"]


def test_lines_are_sentences(
    make_run: Callable[..., Path], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    content = "\ufeffA \u00e9t\u00e9 cat, or not.\r\n\nwho\n"
    (tmp_path / "own.txt").write_text(content, newline="")
    predict.main([str(run), "--task", "sst", str(tmp_path / "own.txt")])
    printed = capsys.readouterr()
    rows = [line.split("\t") for line in printed.out.splitlines()[1:]]
    assert [(row[0], row[-1]) for row in rows] == [("1", "A \u00e9t\u00e9 cat, or not."), ("3", "who")]
    assert "own.txt: 1 of 3 rows have no text" in printed.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a cat\ta dog\nwho\ta dog\n")))
    predict.main([str(run), "--task", "sts"])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[2:] for row in rows] == [["a cat", "a dog"], ["who", "a dog"]]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"id,question1\n1,hello\n")))
    with pytest.raises(UserError, match=r"^standard input:1: no column 'sentence2'"):
        predict.main([str(run), "--task", "sts"])


def test_unfit_run_or_file_is_named(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run = make_run(tasks="sst,sts")

    def message(folder: Path, task: str = "sst", file: str = "-") -> str:
        with pytest.raises(UserError) as raised:
            predict.main([str(folder), "--task", task, file])
        return str(raised.value)

    assert "no such file" in message(run, file="nowhere.txt")
    (tmp_path / "chinese.txt").write_text("\u4e2d\u6587\n", encoding="utf-8")
    assert "--allow-unknown" in message(run, file=str(tmp_path / "chinese.txt"))
    predict.main([str(run), "--task", "sst", str(tmp_path / "chinese.txt"), "--allow-unknown"])
    assert message(run, "nli").startswith("--task: 'nli'")
    assert "manifest.json: no such file" in message(tmp_path)
    (run / "manifest.json").write_text('{"all_settings": {"order": "cbcl"}}')
    assert "holds no heads" in message(run)
    (run / "scores.json").unlink()
    assert "let it finish first" in message(run)
