"""Guards: damaged or hostile files of an encoder's folder end in one sentence, and nothing in them runs.

python -m pytest --import-mode=importlib tests/minbert/test_hostile.py
"""

import json
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from minbert import BertConfig, BertModel, Encoder, UserError, weights
from minbert.tokenizer import Tokenizer

Copy = Callable[..., Path]
DEEP = "[" * 100_000


REGEX = {"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated", "invert": False}
SPOILT = [
    ("tokenizer.json", {"normalizer": [1]}),
    ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": ["a"]}}),
    ("tokenizer.json", {"pre_tokenizer": REGEX}),
    ("tokenizer.json", DEEP),
    ("tokenizer_config.json", {"strip_accents": "no"}),
    ("minbert.json", {"pooler": ["mean"]}),
    ("1_Pooling/config.json", "mean"),
    ("config.json", {"num_hidden_layers": 10_000_000}),
    ("config.json", {"hidden_size": 9_999_996}),
    ("config.json", {"hidden_size": 32.7}),
    ("config.json", {"layer_norm_eps": float("nan")}),
    ("config.json", "[" + "9" * 5_000 + "]"),
]


@pytest.fixture(scope="module")
def saved(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder as we save it, with every file that is read."""
    path = tmp_path_factory.mktemp("saved") / "encoder"
    state, config = BertModel.from_pretrained(tiny).state_dict(), BertConfig.read(tiny)
    weights.save(path, state, config, Tokenizer.load(tiny), "max")
    return path


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "encoder"))


def spoil(folder: Path, name: str, change: Any) -> None:
    """Change some values of a JSON file, or replace the file. `vocab.txt` and `minbert.json` hide the files after."""
    hiding = {"tokenizer.json": "vocab.txt", "1_Pooling/config.json": "minbert.json"}
    if name in hiding:
        (folder / hiding[name]).unlink(missing_ok=True)
    if isinstance(change, dict):
        change = json.loads((folder / name).read_text()) | change
    (folder / name).write_text(change if isinstance(change, str) else json.dumps(change))


@contextmanager
def bounded(seconds: float = 20, memory: int = 2 << 30) -> Iterator[None]:
    """Neither hangs nor takes much memory."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - start < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < memory >> 10


def refused(folder: Path) -> str:
    with bounded(), pytest.raises(UserError) as caught:
        Encoder.load(folder)
    message = str(caught.value)
    assert message.startswith(str(folder)) and "\n" not in message and len(message) < len(str(folder)) + 1_500
    return message


@pytest.mark.parametrize(("name", "change"), SPOILT, ids=[f"{name}-{str(what)[:40]}" for name, what in SPOILT])
def test_a_spoilt_file_is_refused_by_name(folder: Path, name: str, change: Any) -> None:
    spoil(folder, name, change)
    message = refused(folder)
    assert name in message or "the weights do not fit the encoder" in message


@pytest.mark.parametrize(("piece", "number"), [("tree", 10**9), ("tree", 0), ("tree", 5_000), ("[UNK]", None)])
def test_ids_that_the_embedding_does_not_have_are_refused(folder: Path, piece: str, number: int | None) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    if number is None:
        del content["model"]["vocab"][piece]
    else:
        content["model"]["vocab"][piece] = number
    spoil(folder, "tokenizer.json", content)
    assert "tokenizer.json" in refused(folder)


def test_a_message_lists_ten_keys_at_most_and_cuts_long_ones(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), **{f"{n}" + "x" * 10_000: torch.zeros(1) for n in range(50)}}, path)
    message = refused(folder)
    assert message.count("unknown") == 10 and "and 40 more" in message
