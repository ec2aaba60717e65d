"""Guards: damaged or hostile files of an encoder's folder end in one sentence, and nothing in them runs.

python -m pytest --import-mode=importlib tests/minbert/test_hostile.py
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from minbert import BertConfig, BertModel, Encoder, UserError, weights
from minbert.tokenizer import Tokenizer

REGEX = {"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated", "invert": False}
SPOILT = [
    ("tokenizer.json", {"pre_tokenizer": REGEX}, "tokenizer.json"),
    ("tokenizer_config.json", {"strip_accents": "no"}, "tokenizer_config.json"),
    ("minbert.json", {"pooler": ["mean"]}, "minbert.json"),
    ("config.json", {"num_hidden_layers": 10_000_000}, "config.json"),
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


def spoil(folder: Path, name: str, change: dict[str, Any]) -> None:
    """Change some values of a JSON file. `vocab.txt` would hide `tokenizer.json`."""
    if name == "tokenizer.json":
        (folder / "vocab.txt").unlink(missing_ok=True)
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | change))


def refused(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        Encoder.load(folder)
    message = str(caught.value)
    assert message.startswith(str(folder)) and "\n" not in message and len(message) < len(str(folder)) + 1_500
    return message


@pytest.mark.parametrize(("name", "change", "words"), SPOILT, ids=[name for name, *_ in SPOILT])
def test_a_spoilt_file_is_refused(folder: Path, name: str, change: dict[str, Any], words: str) -> None:
    spoil(folder, name, change)
    assert words in refused(folder)


@pytest.mark.parametrize(("piece", "number"), [("tree", 10**9), ("tree", 0), ("tree", 5_000), ("[UNK]", None)])
def test_ids_that_the_embedding_does_not_have_are_refused(folder: Path, piece: str, number: int | None) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    if number is None:
        del content["model"]["vocab"][piece]
    else:
        content["model"]["vocab"][piece] = number
    spoil(folder, "tokenizer.json", content)
    assert "tokenizer.json" in refused(folder)
