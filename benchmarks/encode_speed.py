"""Time of encoding sentences compared with sentence-transformers, from texts to vectors.

    python -m benchmarks.encode_speed --data DIR --length 32 --sentences 960
    python -m benchmarks.encode_speed --data DIR --device cuda

`Encoder.encode` and `SentenceTransformer.encode` get the same distinct sentences of NLI triplets, --sentences a call;
both tokenise them and sort them by length. Each is a process of its own, with the default settings of memory and
threads. Theirs has its default batch size, and the fastest of some others. The least cosine is that between a
sentence's vector and minbert's in fp32.
"""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from benchmarks.timing import Program, describe_machine, flags, measure, precisions_of, shuffled, timing_table
from benchmarks.train_speed import read_triplets
from minbert import BertModel, Encoder, weights
from minbert.fast import accelerate
from minbert.precision import DTYPES
from minbert.tokenizer import Tokenizer
from minbert.train import cli

SIZES = (32, 16, 64, 128, 256)
"""The batch sizes of their `encode`, the default first."""
Encode = Callable[..., np.ndarray]


def our_encode(folder: Path, length: int, precision: str, device: torch.device, fast: bool) -> Encode:
    """minbert's `encode` in a number format."""
    warnings.filterwarnings("ignore", message=".*sentences cut to")
    model = BertModel.from_pretrained(folder)
    if fast:
        accelerate(model)
    encoder = Encoder(model.to(device), Tokenizer.load(folder), precision=precision, max_length=length)
    return encoder.encode


def their_encode(folder: Path, length: int, precision: str, device: torch.device) -> Encode:
    """sentence-transformers' `encode` with weights in a number format, of a batch size and texts."""
    model = SentenceTransformer(str(folder), device=str(device)).to(DTYPES[precision])
    model.max_seq_length = length

    def encode(size: int, texts: list[str]) -> np.ndarray:
        return model.encode(texts, batch_size=size, show_progress_bar=False)

    return encode


def main() -> None:
    """Time the calls and print the table."""
    parser = flags(__doc__)
    parser.add_argument("--sentences", type=int, default=1920, help="sentences of a call (default: %(default)s)")
    options = parser.parse_args()
    device = torch.device(options.device)
    folder = weights.resolve(options.weights)
    cache = read_triplets(options.data, folder, options.length).cache
    texts = list(dict.fromkeys(cache.texts))
    calls = []
    for numbers in shuffled(len(texts), options.sentences, options.warmup + options.batches):
        calls.append([texts[number] for number in numbers])

    encoders: dict[str, Callable[[list[str]], tuple[float, np.ndarray]]] = {}
    for precision in precisions_of(device):
        settings = (folder, options.length, precision, device)
        encoders[f"minbert {precision}"] = Program(our_encode, *settings, True, as_command=False)
        encoders[f"minbert plain {precision}"] = Program(our_encode, *settings, False, as_command=False)
        theirs = Program(their_encode, *settings, as_command=False)
        by_size = {str(size): partial(theirs, size) for size in SIZES}
        # four runs of one call, of which the first only warms up
        trials = measure(by_size, calls[:1] * 4, 1)
        fastest = min(trials, key=lambda size: float(np.median(trials[size])))
        for size in dict.fromkeys([str(SIZES[0]), fastest]):
            encoders[f"sentence-transformers {precision}, batches of {size}"] = by_size[size]

    seconds = measure(encoders, calls, options.warmup)
    title = f"{options.sentences} sentences of at most {options.length} tokens"
    table = timing_table(title, seconds, next(iter(encoders)))
    _, exact = encoders["minbert fp32"](calls[0])
    cosines = []
    for encode in encoders.values():
        _, vectors = encode(calls[0])
        similarities = torch.cosine_similarity(torch.from_numpy(vectors), torch.from_numpy(exact))
        cosines.append(f"{similarities.min():.4f}")
    table.rows["least cosine"] = cosines
    cli.say(describe_machine("torch", "sentence-transformers"))
    cli.say(table.markdown())


if __name__ == "__main__":
    cli.run(main)
