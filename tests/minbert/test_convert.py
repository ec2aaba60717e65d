"""Guards: a checkpoint of the course's code becomes an encoder folder; no other pickle is opened, and none runs code.

python -m pytest --import-mode=importlib tests/minbert/test_convert.py
"""

import argparse
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from minbert import BertModel, UserError, convert, modules
from minbert.convert import convert_checkpoint
from tests.minbert.conftest import Harmful, same


@pytest.fixture(params=[b"numpy._core", b"numpy.core"], ids=["NumPy 2", "NumPy 1"])
def course(request: pytest.FixtureRequest, tiny: Path, tmp_path: Path) -> Path:
    """What the course's save_model writes: weights, optimizer, options, config and the states of three generators."""
    model = BertModel.from_pretrained(tiny)
    state = {f"bert.{name}": tensor for name, tensor in model.state_dict().items()}
    state |= {"bert.position_ids": torch.arange(64)[None], "sentiment_classifier.weight": torch.zeros(5, 32)}
    path = tmp_path / "full-model-10-1e-05-multitask.pt"
    content = {
        "model": state,
        "optim": {"state": {0: {"step": 3, "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-5}]},
        "args": argparse.Namespace(lr=1e-5, epochs=10, use_gpu=False, sst_train="data/x.csv"),
        "model_config": SimpleNamespace(hidden_dropout_prob=0.3, num_labels={0: 1, 2: 3}, fine_tune_mode="full-model"),
        "system_rng": random.getstate(),
        "numpy_rng": np.random.get_state(),
        "torch_rng": torch.random.get_rng_state(),
        "best": np.float64(0.5),
    }
    if request.param == b"numpy._core":
        torch.save(content, path)
    else:
        # the older form holds the names of types as plain lines
        torch.save(content, path, _use_new_zipfile_serialization=False)
        path.write_bytes(path.read_bytes().replace(b"numpy._core", request.param))
    return path


def test_course_checkpoint_becomes_an_encoder(course: Path, tiny: Path, tmp_path: Path) -> None:
    convert.run([str(course), "--like", str(tiny), "--to", str(tmp_path / "new")])
    assert same(tmp_path / "new", tiny)
    assert modules.read_pipeline(tmp_path / "new").pooler == "pooler", "the course's heads read it"
    with pytest.raises(UserError, match="exists already"):
        convert_checkpoint(course, str(tiny), tmp_path / "new")


REFUSED = [
    (b"PK\x03\x04 half a zip", "not a checkpoint that can be read: ."),
    ({"model": {}, "x": Harmful()}, r"it holds the type \w*\.?open, which is refused"),
    ({"model": {}}, "missing 'embeddings.word_embeddings.weight'"),
    (torch.zeros(3), "holds no tensors by name"),
    ({"model": {1: 2}}, "holds no tensors by name"),
]


@pytest.mark.parametrize(("content", "why"), REFUSED)
def test_other_files_are_refused(content: Any, why: str, tiny: Path, tmp_path: Path) -> None:
    Harmful.path = str(tmp_path / "created")
    source = tmp_path / "model.pt"
    if isinstance(content, bytes):
        source.write_bytes(content)
    else:
        torch.save(content, source)
    with pytest.raises(UserError, match=rf"model\.pt: .*{why}") as caught:
        convert_checkpoint(source, str(tiny), tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]
