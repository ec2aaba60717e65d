"""Time of encoding sentences compared with sentence-transformers, interleaved, and what the vectors are worth.

    DATA_DIR=... python -m benchmarks.encode_speed --length 32 --sentences 960
    DATA_DIR=... python -m benchmarks.encode_speed --peers peers/bin/python       also ONNX and OpenVINO

`Encoder.encode` and `SentenceTransformer.encode` get the same distinct sentences, --sentences a call, from texts to
vectors; both include tokenisation and sorting by length. bf16, where the device has it, is autocast on both sides.
Theirs is shown with its default batch size and, where another is faster, with the fastest. --peers is the Python of
an environment for `benchmarks/peer.py`, whose docstring says how to make it. Beside the times stand Spearman's rho on
STS-B test and the least cosine between a sentence's vector and that of minbert in fp32.
"""

import argparse
import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from benchmarks import harness
from benchmarks.peer import BACKENDS
from minbert import BertModel, Encoder, UserError, weights
from minbert.fast import accelerate
from minbert.precision import autocast, supports_bf16
from minbert.tokenizer import Tokenizer
from minbert.train import cli
from tasks.benchmarks import sets
from tasks.benchmarks.sets import ScoredSet
from tasks.contrastive.evaluation import unit
from tasks.metrics import spearman

DEFAULT, SIZES = 32, (16, 64, 128, 256)  # batch sizes tried for their `encode`
Encode = Callable[[list[str]], np.ndarray]


def their_encode(model: SentenceTransformer, precision: str, size: int) -> Encode:
    """Their `encode` with the given precision and batch size."""

    def encode(texts: list[str]) -> np.ndarray:
        with autocast(precision, model.device):
            vectors: np.ndarray = model.encode(texts, batch_size=size, show_progress_bar=False)
        return vectors

    return encode


class Peer:
    """`benchmarks/peer.py` in a process of its own; a call returns the seconds that it took there."""

    def __init__(self, python: Path, backend: str, folder: Path, length: int) -> None:
        script = Path(__file__).with_name("peer.py")
        words = [str(python), str(script), backend, str(folder), str(length), str(torch.get_num_threads())]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.process = subprocess.Popen(words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True, env=environment)
        self._answer(backend)

    def __call__(self, texts: list[str], out: str | None = None) -> float:
        """Encode, and write the vectors to `out` if it is given."""
        assert self.process.stdin is not None
        print(json.dumps({"texts": texts, "out": out}), file=self.process.stdin, flush=True)
        return float(self._answer("a call")["seconds"])

    def vectors(self, texts: list[str]) -> np.ndarray:
        """The vectors: float32 [texts, D]."""
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            self(texts, file.name)
            vectors: np.ndarray = np.load(file.name)
        return vectors

    def _answer(self, what: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise UserError(f"--peers: {what} failed (benchmarks/peer.py, run by hand, says why)")
        answer: dict[str, Any] = json.loads(line)
        return answer


def quality(encode: Encode, texts: list[str], exact: np.ndarray, pairs: ScoredSet | None) -> dict[str, str]:
    """Cells of a table: Spearman's rho on the pairs if there are any, and the least cosine to the vectors `exact`."""
    cosines = (unit(encode(texts)) * unit(exact)).sum(1)
    cells = {"least cosine": f"{cosines.min():.4f}"}
    if pairs is not None:
        first, second = (unit(encode([pair[side] for pair in pairs.pairs])) for side in (0, 1))
        rho = spearman((first * second).sum(1), pairs.gold)
        cells = {"STS-B rho": f"{100 * rho:.2f}" if rho is not None else ""} | cells
    return cells


def contestants(folder: Path, length: int, texts: list[str], device: torch.device) -> dict[str, Encode]:
    """Both libraries in fp32, and in bf16 if the device has it; theirs with its default and its fastest batch size."""
    model, tokenizer = SentenceTransformer(str(folder), device=str(device)), Tokenizer.load(folder)
    model.max_seq_length = length
    encoders: dict[str, Encode] = {}
    for precision in ("bf16", "fp32") if supports_bf16(device) else ("fp32",):
        theirs = {size: their_encode(model, precision, size) for size in (DEFAULT, *SIZES)}
        seconds = harness.measure(theirs, [texts] * 6, 1, device)
        best = min(seconds, key=lambda size: float(seconds[size].median()))
        name = f"sentence-transformers {precision}, batches"
        ours = accelerate(BertModel.from_pretrained(folder)).to(device)
        encoders[f"minbert {precision}"] = Encoder(ours, tokenizer, precision=precision, max_length=length).encode
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
    peers = {
        f"sentence-transformers {backend}": Peer(options.peers, backend, folder, length)
        for backend in (BACKENDS if options.peers else ())
    }
    seconds = harness.measure({**encoders, **peers}, calls, options.warmup, options.device)
    exact = encoders["minbert fp32"](calls[0])
    pairs = sets.read(options.data, ["STS-B"])[0] if (options.data / "senteval").is_dir() else None
    every = encoders | {name: peer.vectors for name, peer in peers.items()}
    worth = {name: quality(encode, calls[0], exact, pairs) for name, encode in every.items()}
    title = f"{options.batches} calls with {options.sentences} sentences of at most {length} tokens"
    print(harness.table(title, seconds, "call", worth))


def main() -> None:
    """Read the sentences of the triplets, then time calls at each length."""
    parser = harness.parser(__doc__, "NLI triplets (default: $DATA_DIR, else data/sample)", 20, 10)
    parser.add_argument("--length", type=int, nargs="+", default=[32], help="longest sentence in tokens (default: 32)")
    parser.add_argument("--sentences", type=int, default=1920, help="sentences of a call (default: %(default)s)")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="also ONNX and OpenVINO, by this Python")
    options = harness.parse(parser)
    warnings.filterwarnings("ignore", message=".*truncated")
    logging.disable_progress_bar()
    folder = weights.resolve(options.weights)
    harness.print_machine("torch", "sentence-transformers", "transformers")
    for length in options.length:
        compare(folder, length, options)


if __name__ == "__main__":
    cli.run(main)
