"""Guards: the new task and the new loss of docs/exercises.md work as their solutions stand there.

python -m pytest --import-mode=importlib tests/tasks/test_exercises.py
"""

import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minbert.bert import BertModel
from minbert.tokenizer import Tokenizer
from tasks import predict, registry
from tasks.contrastive import losses
from tasks.model import MultitaskModel
from tests.tasks.test_predict import finished_run

PAGE = Path(__file__).parent.parent.parent / "docs" / "exercises.md"


@pytest.fixture
def reviews(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task of the page, registered."""
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(\"\"\"Film reviews.*?)```", text, re.DOTALL)
    new_module = types.ModuleType("tasks.cfimdb")
    exec(code, new_module.__dict__)
    monkeypatch.setitem(registry.TASKS, new_module.Reviews.name, new_module.Reviews)
    (task,) = registry.build(new_module.Reviews.name, "cross")
    return task


def test_new_task_trains(reviews: Any, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids-cfimdb-dev.csv"
    path.write_text('\tid\tsentence\tsentiment\n0\tA\t the cat <br />is "happy"\t1\n1\tB\t a sad dog\t0\n')
    examples = reviews.open(path, "dev", Tokenizer.load(tiny), 32)
    assert examples.labels.tolist() == [1, 0]
    model = MultitaskModel(BertModel.from_pretrained(tiny), [reviews], 0.0)
    outputs = model(reviews.name, reviews.encode(examples, np.arange(2)))
    assert outputs.shape == (2, 2)
    reviews.loss(outputs, torch.tensor(np.array(examples.labels))).backward()
    assert reviews.prediction_text(["a1", "b2"], np.array([1.0, 0.0])) == "id\tPredicted_Sentiment\na1\t1\nb2\t0\n"


def test_new_head_predicts_users_sentences(
    reviews: Any, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished_run(tmp_path / "run", tiny, tasks=reviews.name)
    (tmp_path / "own.txt").write_text("The cat sat.\nA sad dog!\n")
    predict.main([str(run), "--task", reviews.files.flag_prefix, str(tmp_path / "own.txt")])
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["id", "is_positive", "probability", "sentence"]
    classes = predict.load(run).predict(reviews.name, ["The cat sat.", "A sad dog!"])
    assert [float(row[1]) for row in rows] == classes.tolist()


def test_new_loss_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (solution,) = re.findall(r"```python\n(def align_uniform.*?)```", text, re.DOTALL)
    (check,) = re.findall(r"<<'END'\n(import torch\n.*?)END", text, re.DOTALL)
    names = dict(losses.__dict__)
    exec(solution, names)
    monkeypatch.setattr(losses, "align_uniform", names["align_uniform"], raising=False)
    exec(check, {})
