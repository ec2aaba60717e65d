"""Guards: a user's own sentences get what the run itself would predict for them, line by line.

python -m pytest --import-mode=importlib tests/tasks/test_predict.py
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

from minbert import weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError
from minbert.optimizer import AdamW
from minbert.tokenizer import Tokenizer
from minbert.training import checkpoint
from tasks import TASKS, evaluate, predict, registry
from tasks.model import MultitaskModel

SENTENCES = ["The cat sat on a mat.", "is a dog happy?", "Not very , SAD bird!", "who", "a bird's tree " * 40]
Capture = pytest.CaptureFixture[str]


def finished_run(
    run: Path, tiny: Path, pairs: str = "cross", tasks: str = "sst,quora,sts", pooler: str = "pooler", **more: Any
) -> Path:
    """The folder of a finished run: the kept checkpoint, of step 4, and a later one; `more` goes into its manifest."""
    model = MultitaskModel(BertModel.from_pretrained(tiny), registry.build(tasks, pairs), 0.3)
    settings = {"tasks": tasks, "pairs": pairs, "max_length": 24, "precision": "auto", "columns": ""}
    config, tokenizer = BertConfig.read(tiny), Tokenizer.load(tiny)
    for step, shift in ((4, 0.0), (8, 0.5)):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += shift
        if step == 4:
            weights.save(run / "encoder", model.encoder.state_dict(), config, tokenizer, pooler)
        checkpoint.save(run / "checkpoints", step, model, AdamW(model.parameters(), lr=1e-3), {})
    (run / "manifest.json").write_text(json.dumps({"all_settings": settings, "precision": "fp32", **more}))
    (run / "scores.json").write_text(json.dumps({"step": 4}))
    return run


@pytest.fixture
def made(tiny: Path, tmp_path: Path) -> Callable[..., Path]:
    """A function that makes the folder of a finished run."""
    return lambda pairs="cross", **more: finished_run(tmp_path / f"run-{pairs}", tiny, pairs, **more)


def course_file(path: Path, name: str) -> list[tuple[str, ...]]:
    """SENTENCES, or all pairs of them, as a data file of the course; returns the rows' texts."""
    rows = [(one,) for one in SENTENCES] if name == "sst" else [(one, two) for one in SENTENCES for two in SENTENCES]
    label = {"sst": "sentiment", "quora": "is_duplicate", "sts": "similarity"}[name]
    columns = ["sentence"] if name == "sst" else ["sentence1", "sentence2"]
    lines = ["\t".join(["", "id", *columns, label])]
    lines += ["\t".join([str(n), f"i{n}", *texts, "1"]) for n, texts in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    return rows


def outputs_of(predictor: predict.Predictor, name: str, rows: list[tuple[str, ...]]) -> np.ndarray:
    task = predictor.model.tasks[name]
    return evaluate.outputs(predictor.model, task, predictor.examples(task, rows), predictor.precision)


@pytest.mark.parametrize(
    ("pairs", "pooler"), [("cross", "mean"), ("paper", "pooler"), ("bi", "max"), ("joint", "mean")]
)
def test_outputs_are_those_of_the_runs_own_evaluation(
    pairs: str, pooler: str, made: Callable[..., Path], tmp_path: Path
) -> None:
    run, tasks = made(pairs, pooler=pooler), registry.build("sst,quora,sts", pairs)
    best = MultitaskModel(BertModel(BertConfig.read(run / "encoder")), tasks, 0.3, pooler=pooler)
    checkpoint.load(run / "checkpoints", 4, best)
    for name in TASKS:
        rows = course_file(tmp_path / f"{name}.csv", name)
        task = best.tasks[name]
        examples = task.open(tmp_path / f"{name}.csv", "dev", Tokenizer.load(run / "encoder"), 24)
        outputs = evaluate.outputs(best, task, examples, "fp32")
        np.testing.assert_array_equal(outputs_of(predict.load(run), name, rows), outputs)
        table = list(predict.table(task, outputs, rows))
        assert [float(row[0]) for row in table] == pytest.approx(task.predict(outputs).tolist(), abs=5e-5)
        assert [row[-task.columns :] for row in table] == rows


def test_probabilities_are_those_of_the_predicted_class(made: Callable[..., Path]) -> None:
    run = made()
    for name in ("sst", "quora"):
        predictor, task = predict.load(run), TASKS[name]()
        rows = [(one,) if name == "sst" else (one, "a cat") for one in SENTENCES]
        outputs = outputs_of(predictor, name, rows).astype(np.float64)
        for row, output in zip(predict.table(task, outputs, rows), outputs, strict=True):
            if name == "sst":
                label = int(output.argmax())
                assert row[:2] == (str(label), task.classes[label])
                assert float(row[2]) == pytest.approx(softmax(output)[label], abs=5e-5)
            else:
                assert row[0] == ("1.0" if output > 0 else "0.0")
                assert float(row[1]) == pytest.approx(max(expit(output), expit(-output)), abs=5e-5)


def test_lines_become_inputs() -> None:
    lines = b"\xef\xbb\xbfone  two\tthree\r\n\n \xc3\xa9t\xc3\xa9\t b \n".splitlines(keepends=True)
    assert list(predict.lines_of(lines, "f", 2)) == [("one two", "three"), ("été", "b")]
    assert list(predict.lines_of([b"a\tb c\n"], "f", 1)) == [("a b c",)]
    separators = "a\u2028b\x0bc\n".encode()
    assert list(predict.lines_of(io.BytesIO(separators), "f", 1)) == [("a b c",)]
    with pytest.raises(UserError, match=r"^f:2: not UTF-8$"):
        list(predict.lines_of([b"a\n", b"\xe9\n"], "f", 1))


@pytest.mark.parametrize("line", [b"one sentence\n", b"a\tb\tc\n", b"a\t \n", b"\tb\n"])
def test_a_line_that_is_no_pair_is_said_with_its_number(line: bytes) -> None:
    with pytest.raises(UserError, match=r"^f:3: not two sentences with one TAB"):
        list(predict.lines_of([b"a\tb\n", b"\n", line], "f", 2))


@pytest.mark.parametrize("name", ["sst", "para", "sts"])
def test_the_command_prints_a_table(name: str, made: Callable[..., Path], tmp_path: Path, capsys: Capture) -> None:
    run, source = made(), tmp_path / "own.txt"
    lines = SENTENCES if name == "sst" else [f"{one}\tA dog." for one in SENTENCES]
    source.write_text("\n\n".join(lines) + "\n")
    predict.main([str(run), "--task", name, str(source)])
    printed = capsys.readouterr()
    header, *rows = [line.split("\t") for line in printed.out.splitlines()]
    assert len(rows) == len(SENTENCES) and all(len(row) == len(header) for row in rows)
    assert header[0] == {"sst": "class", "para": "is_paraphrase", "sts": "similarity"}[name]
    assert "note: " in printed.err and "4 blank lines left out" in printed.err


def test_what_is_cut_is_counted_over_all_chunks_and_said_once(
    made: Callable[..., Path], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "_CHUNK", 4)
    run = made("bi")
    (tmp_path / "own.txt").write_text("the cat\ta dog\n" * 3 + f"{SENTENCES[-1]}\tthe cat\n" * 7)
    predict.main([str(run), "--task", "sts", str(tmp_path / "own.txt")])
    said = f"note: {tmp_path / 'own.txt'}: 7 of 20 inputs are longer than 24 tokens and are truncated\n"
    assert capsys.readouterr().err == said


def test_mistakes_are_said_in_a_sentence(made: Callable[..., Path], tmp_path: Path, capsys: Capture) -> None:
    run = made(tasks="sst,sts")
    (tmp_path / "own.txt").write_text("a\n")

    def said(*arguments: str) -> str:
        with pytest.raises(UserError) as raised:
            predict.main([*arguments])
        return str(raised.value)

    own = str(tmp_path / "own.txt")
    assert "has no head for quora: it was trained on sst, sts" in said(str(run), "--task", "para", own)
    assert "no such file" in said(str(run), "--task", "sst", "nowhere.txt")
    assert said(str(run), "--task", "sst", str(tmp_path)) == f"{tmp_path}: is a folder, not a file"
    assert "not two sentences" in said(str(run), "--task", "sts", own)
    assert capsys.readouterr().out == "", "no header without a row"
    assert "not a run folder" in said(str(tmp_path), "--task", "sst", own)
    assert said(str(run), "--task", "nli", own) == "--task: 'nli' is not one of sst, para, sts, quora"
    (run / "scores.json").write_text(json.dumps({"step": 6}))
    assert "the checkpoint that was kept, of step 6, is not there" in said(str(run), "--task", "sst", own)
    (run / "scores.json").unlink()
    assert "let the run finish first" in said(str(run), "--task", "sst", own)
    (run / "manifest.json").write_text(json.dumps({"all_settings": {"order": "curriculum"}}))
    assert "holds no heads" in said(str(run), "--task", "sst", own)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("manifest.json", "[]", "not an object"),
        ("manifest.json", '{"all_settings": null}', "holds no heads"),
        ("scores.json", "[]", "not an object"),
        ("scores.json", "{}", "names no step"),
    ],
)
def test_a_damaged_run_is_a_users_mistake(name: str, content: str, said: str, tmp_path: Path) -> None:
    settings = {"tasks": "sst", "pairs": "cross", "max_length": 24}
    (tmp_path / "manifest.json").write_text(json.dumps({"all_settings": settings}))
    (tmp_path / "scores.json").write_text(json.dumps({"step": 4}))
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=said):
        predict.kept(tmp_path)
