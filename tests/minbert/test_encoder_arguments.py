"""Guards: what `Encoder` is given in Python: a run's folder, lists that hold no strings, and lengths without room.

python -m pytest --import-mode=importlib tests/minbert/test_encoder_arguments.py
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from minbert import BertModel, Encoder, UserError


def test_a_runs_folder_stands_for_its_encoder(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "run" / "encoder")
    expected = Encoder.load(tiny).encode(["the cat"])
    np.testing.assert_array_equal(Encoder.load(tmp_path / "run").encode(["the cat"]), expected)
    assert BertModel.from_pretrained(tmp_path / "run").config == BertModel.from_pretrained(tiny).config


@pytest.mark.parametrize(("given", "why"), [(["the cat", None], "number 1, .* is a NoneType"), ([3.5], "is a float")])
def test_what_is_no_string_is_named_by_its_place(tiny: Path, given: list, why: str) -> None:
    with pytest.raises(TypeError, match=rf"^sentences: .*{why}"):
        Encoder.load(tiny).encode(given)


@pytest.mark.parametrize("length", [-5, 0, 2])
def test_a_length_without_room_for_a_text_is_refused(tiny: Path, length: int) -> None:
    whole = Encoder.load(tiny)
    with pytest.raises(UserError, match=f"^max_length: {length} leaves no room"):
        Encoder(whole.model, whole.tokenizer, max_length=length)
