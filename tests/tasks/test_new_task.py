"""Guards: the new task of docs/exercises.md works as its solution stands there.

python -m pytest --import-mode=importlib tests/tasks/test_new_task.py
"""

import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from minbert.bert import BertModel
from minbert.tokenizer import Tokenizer
from tasks import predict, predictions, record, registry
from tasks.model import MultitaskModel
from tests.tasks.test_predict import finished_run
from tests.tasks.test_predictions import SAMPLE, write_all

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "exercises.md"


@pytest.fixture
def reviews(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task of the page, registered."""
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(\"\"\"Film reviews.*?)```", text, re.DOTALL)
    (name, module, attribute) = re.search(r'`"(\w+)": "([\w.]+):(\w+)"`', text).groups()
    new_module = types.ModuleType(module)
    exec(code, new_module.__dict__)
    monkeypatch.setitem(registry.TASKS, name, getattr(new_module, attribute))
    (task,) = registry.build(name, "cross")
    return task


def test_it_trains_and_predicts(reviews: Any, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids-cfimdb-dev.csv"
    path.write_text('\tid\tsentence\tsentiment\n0\tA\t the cat <br />is "happy"\t1\n1\tB\t a sad dog\t0\n')
    examples = reviews.open(path, "dev", Tokenizer.load(tiny), 32)
    assert examples.labels.tolist() == [1, 0]
    assert examples.cache.text(0) == 'the cat <br />is "happy"'
    model = MultitaskModel(BertModel.from_pretrained(tiny), [reviews], 0.0)
    outputs = model(reviews.name, reviews.encode(examples, np.arange(2)))
    assert outputs.shape == (2, 2)
    reviews.loss(outputs, torch.tensor(np.array(examples.labels))).backward()
    assert reviews.predict(outputs.detach().numpy()).tolist() == outputs.argmax(1).tolist()


def test_head_predicts_a_users_sentences(
    reviews: Any, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished_run(tmp_path / "run", tiny, tasks=reviews.name)
    (tmp_path / "own.txt").write_text("The cat sat.\nA sad dog!\n")
    predict.main([str(run), "--task", reviews.files.flag_prefix, str(tmp_path / "own.txt")])
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["id", "is_positive", "probability", "sentence"]
    classes = predict.load(run).predict(reviews.name, ["The cat sat.", "A sad dog!"])
    assert [float(row[1]) for row in rows] == classes.tolist()


def test_prediction_files_have_one_separator(reviews: Any, tmp_path: Path) -> None:
    record.write_predictions(tmp_path / "p.csv", reviews, ["a1", "b2"], np.array([1.0, 0.0]))
    frame = pd.read_csv(tmp_path / "p.csv", sep="\t")
    assert list(frame.columns) == ["id", "Predicted_Sentiment"]
    assert frame.to_numpy().tolist() == [["a1", 1], ["b2", 0]]


def test_leaderboard_files_stay_the_same(reviews: Any, tmp_path: Path) -> None:
    files = predictions.check(write_all(tmp_path / "predictions"), SAMPLE)
    assert reviews.name in registry.TASKS
    assert {path.name.split("-")[0] for path in files} == {"sst", "para", "sts"} and len(files) == 6
