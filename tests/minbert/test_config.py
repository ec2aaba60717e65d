"""Guards: a config.json is read and written as transformers does. `test_folders.py` has what is refused.

python -m pytest --import-mode=importlib tests/minbert/test_config.py
"""

from dataclasses import asdict
from pathlib import Path

import transformers

from minbert import BertConfig
from minbert.files import write_json


def test_round_trip(tmp_path: Path) -> None:
    defaults = transformers.BertConfig()  # bert-base-uncased's
    assert asdict(BertConfig()) == {name: getattr(defaults, name) for name in asdict(BertConfig())}
    config = BertConfig(hidden_size=32, num_attention_heads=4, layer_norm_eps=1e-5, hidden_dropout_prob=0)
    write_json(tmp_path / "config.json", config.to_transformers())
    theirs = transformers.BertConfig.from_pretrained(tmp_path)
    assert BertConfig.read(tmp_path) == config == BertConfig.of(theirs.to_dict(), "theirs")
