"""Guards: the README's example of a new task works as it stands there.

python -m pytest --import-mode=importlib tests/tasks/test_new_task.py
"""

import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minbert import UserError
from minbert.bert import BertModel
from minbert.tokenizer import Tokenizer
from tasks import registry
from tasks.evaluate import predictions
from tasks.model import MultitaskModel

README = Path(__file__).parent.parent.parent / "README.md"


@pytest.fixture
def reviews(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task of the README, registered."""
    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(\"\"\"Film reviews.*?)```", text, re.DOTALL)
    (name, module, attribute) = re.search(r'`"(\w+)": \("([\w.]+)", "(\w+)"\)`', text).groups()
    made = types.ModuleType(module)
    exec(code, made.__dict__)
    monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setitem(registry._PLACES, name, (module, attribute))
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
    assert set(predictions(model, reviews, examples, "fp32").tolist()) <= {0.0, 1.0}


def test_five_classes_are_refused(reviews: Any, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("\tid\tsentence\tsentiment\n0\tA\tthe cat\t4\n")
    with pytest.raises(UserError, match=r"x\.csv:2: sentiment: .4."):
        reviews.open(path, "dev", Tokenizer.load(tiny), 32)


@pytest.mark.realdata
@pytest.mark.skipif(not os.environ.get("DATA_DIR"), reason="reads $DATA_DIR")
def test_the_real_file_is_read(reviews: Any, tiny: Path) -> None:
    path = Path(os.environ["DATA_DIR"]) / "course" / "ids-cfimdb-dev.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    examples = reviews.open(path, "dev", Tokenizer.load(tiny), 64)
    assert len(examples) == len(lines) - 1
    assert set(examples.labels.tolist()) == {0.0, 1.0}
