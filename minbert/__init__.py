"""A BERT encoder, its optimizer and its training loop, written from scratch in PyTorch."""

import os

# Read when huggingface_hub is loaded.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.encoder import Encoder
from minbert.errors import UserError
from minbert.optimizer import AdamW
from minbert.ragged import Ragged

__version__ = "0.1.0"
__all__ = ["AdamW", "BertConfig", "BertModel", "Encoder", "Ragged", "UserError"]
