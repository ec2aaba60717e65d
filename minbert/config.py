"""The architecture of a BERT encoder, as in transformers' `config.json`."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from minbert.errors import UserError, short_repr
from minbert.files import read_json

# What this encoder computes; a config.json with another value is of another architecture.
_FIXED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}


@dataclass(frozen=True)
class BertConfig:
    """Sizes and dropout rates of a BERT encoder; the defaults are those of bert-base-uncased."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02

    @classmethod
    def read(cls, folder: Path) -> "BertConfig":
        """Read a folder's `config.json`. Raises `UserError` if it is missing, invalid, or of another architecture."""
        path = folder / "config.json"
        return cls.of(read_json(path), str(path))

    @classmethod
    def of(cls, content: dict[str, Any], source: str) -> "BertConfig":
        """The config of the content of a `config.json`. Raises `UserError`, beginning with `source`, as `read` does."""
        for name, expected in _FIXED.items():
            if content.get(name, expected) != expected:
                raise UserError(f"{source}: {name} is {short_repr(content[name])}; this encoder is {expected!r}")
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in content.items() if name in names})

    def to_transformers(self) -> dict[str, Any]:
        """The content of a `config.json` that transformers loads as a BertModel."""
        return {"architectures": ["BertModel"], **_FIXED, "pad_token_id": 0, **asdict(self)}
