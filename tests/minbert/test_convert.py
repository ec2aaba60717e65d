"""Guards: a checkpoint of the course becomes an encoder folder; nothing in it runs, and what is refused is named.

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

from minbert import BertModel, UserError, convert
from minbert.convert import convert_checkpoint
from minbert.weights import saved_pooler
from tests.minbert.conftest import Harmful, same


@pytest.fixture
def course(tiny: Path, tmp_path: Path) -> Path:
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
    torch.save(content, path)
    return path


def test_course_checkpoint_becomes_an_encoder_without_its_heads(course: Path, tiny: Path, tmp_path: Path) -> None:
    convert.run(["convert", str(course), "--like", str(tiny), "--to", str(tmp_path / "new")])
    assert same(tmp_path / "new", tiny) and saved_pooler(tmp_path / "new") == "pooler", "the course's heads read it"
    with pytest.raises(UserError, match="exists already"):
        convert_checkpoint(course, str(tiny), tmp_path / "new")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a zip"])
def test_a_damaged_checkpoint_is_refused_in_a_sentence(content: bytes, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.pt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged\.pt: not a checkpoint that can be read: .+$") as caught:
        convert_checkpoint(path, str(tiny), tmp_path / "new")
    assert "\n" not in str(caught.value) and not (tmp_path / "new").exists()


def test_an_unknown_type_is_refused_by_name_and_nothing_runs(course: Path, tiny: Path, tmp_path: Path) -> None:
    Harmful.path = str(tmp_path / "created")
    torch.save({"model": {}, "x": Harmful()}, course)
    with pytest.raises(UserError, match=r"\.pt: .*: it holds the type \w*\.?open, which is refused"):
        convert_checkpoint(course, str(tiny), tmp_path / "new")
    assert not (tmp_path / "created").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([1, 2], "holds no dict of tensors"),
        ({"model": {}}, "missing 'embeddings.word_embeddings.weight'"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    content: Any, why: str, tiny: Path, course: Path, tmp_path: Path
) -> None:
    torch.save(content, course)
    with pytest.raises(UserError, match=why):
        convert_checkpoint(course, str(tiny), tmp_path / "new")
    assert not (tmp_path / "new").exists()
