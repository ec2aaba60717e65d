"""How hard a triplet is for the encoder that training starts from: cosines, computed once and kept on disk."""

import hashlib
import sys
from dataclasses import dataclass

import numpy as np
import torch

from minbert.encode import Encoder
from minbert.files import new_folder
from minbert.token_cache import default_folder
from tasks.examples import Triplet


@dataclass(frozen=True)
class Similarities:
    """cos(anchor, positive) and cos(anchor, hard negative) of each triplet: float32 [N] each."""

    positive: np.ndarray
    negative: np.ndarray


def similarities(encoder: Encoder, triplets: Triplet, weights_sha256: str) -> Similarities:
    """Cosines under the frozen encoder, dropout off; a second call reads them from the cache."""
    model, how = encoder.model, (encoder.pooler, encoder.precision, triplets.max_length)
    parts = map(str, (triplets.cache.sha256, weights_sha256, encoder.tokenizer.fingerprint, model.config, model.device))
    folder = (
        default_folder()
        / "scores"
        / hashlib.sha256(" ".join([*parts, *map(str, how), torch.__version__]).encode()).hexdigest()[:32]
    )
    if not (folder / "cosines.npy").is_file():
        with new_folder(folder) as beside:
            np.save(beside / "cosines.npy", _cosines(encoder, triplets))
    positive, negative = np.load(folder / "cosines.npy")
    return Similarities(positive, negative)


def _cosines(encoder: Encoder, triplets: Triplet) -> np.ndarray:
    rows = [triplets.sentence(row, column) for column in range(3) for row in range(len(triplets))]
    vectors = encoder.encode_ids(rows, progress=sys.stderr.isatty())
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    anchor, positive, negative = np.split(vectors, 3)
    return np.stack([(anchor * positive).sum(1), (anchor * negative).sum(1)])
