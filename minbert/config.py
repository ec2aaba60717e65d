"""The architecture of a BERT encoder, as in transformers' `config.json`."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import read_json

_FIXED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size"),
)


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

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}")

    @classmethod
    def read(cls, folder: Path) -> "BertConfig":
        """Read a folder's `config.json`. Raises `UserError` if it is missing, invalid, or of another architecture."""
        path = folder / "config.json"
        if not path.is_file():
            raise UserError(f"{folder}: no config.json, so this is not a folder of BERT weights")
        raw = read_json(path)
        if not isinstance(raw, dict):
            raise UserError(f"{path}: holds a {type(raw).__name__}, not the names and values of a config")
        for name, expected in _FIXED.items():
            if raw.get(name, expected) != expected:
                raise UserError(f"{path}: {name} is {raw[name]!r}; this encoder is {expected!r}")
        known: dict[str, Any] = {field.name: type(field.default) for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, kind in known.items():
            if name in raw:
                if isinstance(raw[name], bool) or not isinstance(raw[name], int | float):
                    raise UserError(f"{path}: {name} must be a number, not {raw[name]!r}")
                values[name] = kind(raw[name])
        return cls(**values)

    def to_transformers(self) -> dict[str, Any]:
        """The content of a `config.json` that transformers loads as a BertModel."""
        return {"architectures": ["BertModel"], **_FIXED, "pad_token_id": 0, **asdict(self)}
