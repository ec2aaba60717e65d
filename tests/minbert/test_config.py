"""Guards: a config.json of BERT is read and written as transformers does; one of another architecture is refused.

python -m pytest --import-mode=importlib tests/minbert/test_config.py
"""

from pathlib import Path
from typing import Any

import pytest

from minbert import BertConfig, UserError
from minbert.files import write_json

OTHERS = [("model_type", "roberta"), ("position_embedding_type", "relative_key"), ("num_attention_heads", 7)]


@pytest.mark.parametrize(("name", "value"), OTHERS)
def test_other_architecture_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    write_json(tmp_path / "config.json", BertConfig().to_transformers() | {name: value})
    with pytest.raises(UserError, match=name):
        BertConfig.read(tmp_path)


def test_round_trip_and_missing_file(tmp_path: Path) -> None:
    config = BertConfig(hidden_size=32, num_attention_heads=4, layer_norm_eps=1e-5, hidden_dropout_prob=0)
    write_json(tmp_path / "config.json", config.to_transformers())
    assert BertConfig.read(tmp_path) == config
    with pytest.raises(UserError, match=r"no config\.json"):
        BertConfig.read(tmp_path / "elsewhere")
