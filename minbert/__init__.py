"""A BERT encoder, its optimizer and its training loop, written from scratch in PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minbert.bert import BertModel
    from minbert.config import BertConfig
    from minbert.encode import Encoder
    from minbert.errors import UserError
    from minbert.optimizer import AdamW
    from minbert.ragged import Ragged

__version__ = "0.1.0"
__all__ = ["AdamW", "BertConfig", "BertModel", "Encoder", "Ragged", "UserError"]

_HOMES = {
    "AdamW": "optimizer",
    "BertConfig": "config",
    "BertModel": "bert",
    "Encoder": "encode",
    "Ragged": "ragged",
    "UserError": "errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `--help` does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'minbert' has no attribute '{name}'")
    return getattr(importlib.import_module(f"minbert.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
