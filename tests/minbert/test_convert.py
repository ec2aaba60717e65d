"""Guards: the convert command turns pickles into safe folders, runs no code from them, and names what it refuses.

python -m pytest --import-mode=importlib tests/minbert/test_convert.py
"""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertModel as Theirs

from minbert import BertModel, Encoder, UserError, convert
from minbert.convert import convert_checkpoint, convert_weights
from minbert.training import cli

Copy = Callable[..., Path]


def same(folder: Path, other: Path) -> bool:
    wanted = BertModel.from_pretrained(other).state_dict()
    return all(torch.equal(x, wanted[name]) for name, x in BertModel.from_pretrained(folder).state_dict().items())


@pytest.fixture
def pickled(tiny: Path, tiny_copy: Copy) -> Path:
    """The tiny folder as old releases are: a pickle with pre-training heads and a tied weight."""
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(tiny / "model.safetensors").items()}
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["bert.embeddings.position_ids"] = torch.arange(64)[None]
    folder = tiny_copy("model.safetensors", name="pickled")
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder


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


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("form", [True, False], ids=["zip", "older form"])
def test_folder_is_converted_to_another(pickled: Path, tiny: Path, tmp_path: Path, form: bool) -> None:
    path = pickled / "pytorch_model.bin"
    torch.save(torch.load(path, weights_only=True), path, _use_new_zipfile_serialization=form)
    convert_weights(str(pickled), tmp_path / "new")
    assert same(tmp_path / "new", tiny)
    assert not (pickled / "model.safetensors").exists()
    assert Encoder.load(tmp_path / "new").encode(["the cat"]).shape == (1, 32)


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "pickles"])
def test_weights_in_several_parts_are_converted_to_one(tiny: Path, tiny_copy: Copy, safe: bool) -> None:
    """As transformers 5 writes parts, and as its older releases wrote pickled ones."""
    folder, tensors = tiny_copy("model.safetensors"), load_file(tiny / "model.safetensors")
    if safe:
        Theirs.from_pretrained(tiny).save_pretrained(folder, max_shard_size="20KB")
    else:
        names, parts = list(tensors), {}
        for part, some in (("pytorch_model-1-of-2.bin", names[::2]), ("pytorch_model-2-of-2.bin", names[1::2])):
            torch.save({name: tensors[name] for name in some}, folder / part)
            parts |= dict.fromkeys(some, part)
        index = {"metadata": {"total_size": 0}, "weight_map": parts}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert len([path for path in folder.iterdir() if "-of-" in path.name]) > 1
    with pytest.raises(UserError, match="convert them once with"):
        BertModel.from_pretrained(folder)
    convert.run(["convert", str(folder)])
    assert same(folder, tiny)


@pytest.mark.parametrize("content", ["harmful", b"", b"text, no pickle", b"PK\x03\x04 half a zip"])
def test_a_pickle_of_weights_that_is_damaged_or_harmful_is_refused(pickled: Path, content: str | bytes) -> None:
    path = pickled / "pytorch_model.bin"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        Harmful.path = str(pickled / "created")
        torch.save({"bert.pooler.dense.bias": Harmful()}, path)
    with pytest.raises(UserError) as caught:
        convert.run(["convert", str(pickled)])
    said = str(caught.value)
    assert said.startswith(f"{path}: not a checkpoint that can be read") and "\n" not in said
    assert ("holds the type" in said) == (content == "harmful")
    assert not (pickled / "created").exists() and not (pickled / "model.safetensors").exists()


def test_the_command_that_the_refusal_names_works(pickled: Path, tiny: Path) -> None:
    """Once in a subprocess, as a user types it."""
    with pytest.raises(UserError) as caught:
        BertModel.from_pretrained(pickled)
    command = str(caught.value).split("`")[1].split()
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert same(pickled, tiny)


def test_course_checkpoint_becomes_an_encoder_without_its_heads(course: Path, tiny: Path, tmp_path: Path) -> None:
    convert.run(["convert", str(course), "--like", str(tiny), "--to", str(tmp_path / "new")])
    assert same(tmp_path / "new", tiny)
    with pytest.raises(UserError, match="exists already"):
        convert_checkpoint(course, str(tiny), tmp_path / "new")


class Harmful:
    """Unpickling it would create a file."""

    path = ""

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


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
        ({"bert.pooler.dense.bias": 3}, "'bert.pooler.dense.bias' is a int, not a tensor"),
        ({"model": {(1, 2): 3}}, "holds no dict of tensors"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    content: Any, why: str, tiny: Path, course: Path, tmp_path: Path
) -> None:
    torch.save(content, course)
    with pytest.raises(UserError, match=why):
        convert_checkpoint(course, str(tiny), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("form", [True, False], ids=["zip", "older form"])
def test_a_damaged_checkpoint_is_refused_in_a_sentence(form: bool, tiny: Path, tmp_path: Path) -> None:
    """Cut anywhere, or with bytes changed; where the damage hits no structure, its tensors fit no encoder."""
    whole, damaged = tmp_path / "whole.pt", tmp_path / "damaged.pt"
    torch.save({"model": {"a.b": torch.arange(6.0)}, "step": 3}, whole, _use_new_zipfile_serialization=form)
    content, draw = whole.read_bytes(), random.Random(0)
    refused = 0
    for number in range(80):
        cut = content[: draw.randrange(len(content))]
        place = draw.randrange(len(content) - 1)
        changed = content[:place] + draw.randbytes(1 + number % 3) + content[place + 1 + number % 3 :]
        damaged.write_bytes(cut if number % 2 else changed)
        try:
            convert_checkpoint(damaged, str(tiny), tmp_path / "new")
        except UserError as error:
            refused += "not a checkpoint that can be read" in str(error)
            assert str(error).startswith(f"{damaged}: ") and "\n" not in str(error)
    assert refused > 40
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("arguments", [["convert", "nowhere"], ["convert", "."], ["convert"], ["turn", "x"]])
def test_mistakes_end_with_code_2_and_one_sentence(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.run(lambda: convert.run(arguments))
    assert caught.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: ")
