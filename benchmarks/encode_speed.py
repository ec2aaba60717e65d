"""Time of encoding sentences compared with sentence-transformers, interleaved in one process.

    DATA_DIR=... python -m benchmarks.encode_speed --length 32 --sentences 960

`Encoder.encode` and `SentenceTransformer.encode` get the same distinct sentences, --sentences a call, from texts to
vectors; both include tokenisation and sorting by length. bf16 is autocast on both sides. Theirs is shown with its
default batch size and, where another is faster, with the fastest.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from benchmarks import harness
from minbert import BertModel, Encoder, weights
from minbert.precision import autocast
from minbert.tokenizer import Tokenizer
from minbert.training import cli

DEFAULT, SIZES = 32, (16, 64, 128, 256)  # batch sizes tried for their `encode`
Encode = Callable[[list[str]], np.ndarray]


def our_encode(folder: Path, length: int, precision: str, device: torch.device = harness.CPU) -> Encode:
    """Our `encode` with the given precision."""
    model, tokenizer = BertModel.from_pretrained(folder).to(device), Tokenizer.load(folder)
    return Encoder(model, tokenizer, "mean", precision=precision, max_length=length).encode


def their_encode(model: SentenceTransformer, precision: str, size: int) -> Encode:
    """Their `encode` with the given precision and batch size."""

    def encode(texts: list[str]) -> np.ndarray:
        with autocast(precision, model.device):
            vectors: np.ndarray = model.encode(texts, batch_size=size, show_progress_bar=False)
        return vectors

    return encode


def contestants(folder: Path, length: int, texts: list[str], device: torch.device) -> dict[str, Encode]:
    """Both libraries in both precisions; theirs with its default batch size and with the fastest one on `texts`."""
    model = SentenceTransformer(str(folder), device=str(device))
    model.max_seq_length = length
    encoders: dict[str, Encode] = {}
    for precision in ("bf16", "fp32"):
        theirs = {size: their_encode(model, precision, size) for size in (DEFAULT, *SIZES)}
        seconds = harness.measure(theirs, [texts] * 2, 1, device)  # the second call is timed
        best, name = min(seconds, key=lambda size: float(seconds[size])), f"sentence-transformers {precision}, batches"
        encoders[f"minbert {precision}"] = our_encode(folder, length, precision, device)
        encoders[f"{name} of {DEFAULT} (default)"] = theirs[DEFAULT]
        if best != DEFAULT:
            encoders[f"{name} of {best} (fastest)"] = theirs[best]
    return encoders


def compare(folder: Path, length: int, options: argparse.Namespace) -> None:
    """Time calls and print the table."""
    cache = harness.triplets(options.data, options.weights, length).cache
    texts = list(dict.fromkeys(text for row in cache.rows() for text in row.texts))
    batches = harness.shuffled(len(texts), options.sentences, options.warmup + options.batches)
    calls = [[texts[index] for index in batch] for batch in batches]
    encoders = contestants(folder, length, calls[0], options.device)
    seconds = harness.measure(encoders, calls, options.warmup, options.device)
    title = f"{options.batches} calls with {options.sentences} sentences of at most {length} tokens"
    print(harness.table(title, seconds, "call"))


def main() -> None:
    """Read the sentences of the triplets, then time calls at each length."""
    parser = harness.parser(__doc__, "NLI triplets (default: $DATA_DIR, else data/sample)", 20, 10)
    parser.add_argument("--length", type=int, nargs="+", default=[32], help="longest sentence in tokens (default: 32)")
    parser.add_argument("--sentences", type=int, default=1920, help="sentences of a call (default: %(default)s)")
    options = harness.parse(parser)
    warnings.filterwarnings("ignore", message=".*truncated")
    logging.disable_progress_bar()
    folder = weights.resolve(options.weights)
    harness.print_machine("torch", "sentence-transformers", "transformers")
    for length in options.length:
        compare(folder, length, options)


if __name__ == "__main__":
    cli.run(main)
