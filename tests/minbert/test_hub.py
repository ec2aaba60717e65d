"""Guards: weights of other forms are opened by transformers once; without the Hub, one sentence says what to do.

`test_folders.py` has the forms.

python -m pytest --import-mode=importlib tests/minbert/test_hub.py
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import transformers

from minbert import Encoder, UserError, hub, weights
from minbert.tokenizer import Tokenizer
from tests.minbert.conftest import same

# In a process of its own, as huggingface_hub reads its settings when it is imported.
LOAD = """
from minbert import Encoder
encoder = Encoder.load("some/name")
print(encoder.pooler, encoder.tokenizer.size)
"""


def test_unreachable_name_has_a_remedy() -> None:
    with pytest.raises(UserError, match=r"^--weights another/name: .*`--weights minilm`"):
        weights.resolve("another/name", "--weights")


def test_what_the_hub_gave_was_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A model that transformers cannot open, such as for a package that is missing, has not failed to download."""

    def open_model(source: str, options: dict[str, Any]) -> NoReturn:
        raise ImportError("You need to install fugashi")

    monkeypatch.setattr(hub, "_reach_hub", lambda source: None)
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: tmp_path)
    monkeypatch.setattr(hub, "_read_model", open_model)
    with pytest.raises(UserError, match=r"^another/name: transformers cannot open it: .*fugashi"):
        hub.open_with_transformers("another/name", "another/name")


@pytest.mark.slow
def test_cached_name_opens_without_hub(tiny: Path, tmp_path: Path) -> None:
    cached = tmp_path / "hub" / "models--some--name"
    snapshot = cached / "snapshots" / "0123abcd"
    shutil.copytree(tiny, snapshot)
    (snapshot / "1_Pooling").mkdir()
    (snapshot / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]
    (snapshot / "modules.json").write_text(json.dumps(modules))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123abcd")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "MINBERT_CACHE": str(tmp_path / "minbert")}
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert not done.returncode, done.stderr
    assert done.stdout.strip() == f"max {Tokenizer.load(tiny).size}"


def test_folder_is_opened_once_until_changed(tiny: Path, tiny_copy: Callable[..., Path]) -> None:
    folder = tiny_copy()
    before = sorted(folder.iterdir())
    transformers.logging.set_verbosity_warning()
    saved = weights.resolve(str(folder))
    assert transformers.logging.get_verbosity() == transformers.logging.WARNING, "the user's own"
    assert same(saved, tiny)
    written = (saved / "model.safetensors").stat().st_mtime_ns
    assert weights.resolve(str(folder)) == saved
    assert (saved / "model.safetensors").stat().st_mtime_ns == written
    assert sorted(folder.iterdir()) == before, "nothing is written into somebody's folder"
    # whatever others write beside the weights
    for name in (".git/index", "eval/scores.csv"):
        (folder / name).parent.mkdir()
        (folder / name).touch()
        assert weights.resolve(str(folder)) == saved
    # a cleaner has deleted the copy's files
    for path in saved.rglob("*"):
        if path.is_file():
            path.unlink()
    assert weights.resolve(str(folder)) == saved and same(saved, tiny)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": 20}))
    assert Encoder.load(folder).max_length == 20
