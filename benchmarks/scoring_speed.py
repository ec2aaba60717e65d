"""`Encoder.encode` beside `SentenceTransformer.encode`: texts in, vectors out, tokenisation on both sides."""

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from minbert import BertModel, Encoder
from minbert.precision import autocast
from minbert.tokenizer import Tokenizer

CPU = torch.device("cpu")
DEFAULT, SIZES = 32, (16, 64, 128, 256)
Texts = Sequence[str]
Encode = Callable[[Texts], np.ndarray]


def ours(folder: Path, length: int, precision: str) -> Encode:
    """Our `encode` in a number format."""
    tokenizer, model = Tokenizer.load(folder), BertModel.from_pretrained(folder)
    encoder = Encoder(model, tokenizer, "mean", precision=precision, max_length=length)

    def encode(texts: Texts) -> np.ndarray:
        with warnings.catch_warnings(action="ignore"):  # it counts the sentences that are cut
            return encoder.encode(texts)

    return encode


def theirs(model: SentenceTransformer, precision: str, size: int) -> Encode:
    """Their `encode` in a number format with a batch size."""

    def encode(texts: Texts) -> np.ndarray:
        with autocast(precision, CPU):
            vectors: np.ndarray = model.encode(list(texts), batch_size=size, show_progress_bar=False)
        return vectors

    return encode


def tuned(model: SentenceTransformer, precision: str, texts: Texts) -> int:
    """The batch size with which they encode `texts` fastest, the second time."""

    def seconds(size: int) -> float:
        encode = theirs(model, precision, size)
        encode(texts)
        begun = time.perf_counter()
        encode(texts)
        return time.perf_counter() - begun

    return min((DEFAULT, *SIZES), key=seconds)


def contestants(folder: Path, length: int, texts: Texts) -> dict[str, Encode]:
    """Every row of the table; `texts` are what the batch size is tuned on."""
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = length
    found = {}
    for precision in ("bf16", "fp32"):
        best = tuned(model, precision, texts)
        found[f"minbert {precision}"] = ours(folder, length, precision)
        found[f"sentence-transformers {precision}, batches of {DEFAULT} (default)"] = theirs(model, precision, DEFAULT)
        if best != DEFAULT:
            found[f"sentence-transformers {precision}, batches of {best} (fastest)"] = theirs(model, precision, best)
    return found
