"""A BERT encoder, its optimizer and its training loop, written from scratch in PyTorch."""

import os

# OpenMP's threads spin at every barrier, and keep a core from the thread they wait for if another program needs it too.
# A training step of 0.23 s on two cores takes 3.5 s beside one busy process with the default of 300,000, and 0.5 s with
# this one, which costs an idle machine 4%. The variable is read when torch is loaded, so torch comes after minbert.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")
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
