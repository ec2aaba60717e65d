"""How hard a triplet is for a frozen encoder: cosines, computed once and kept on disk (SelfCCL, section 4.3.1).

Axes: N triplets, M texts, D hidden.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from minbert.encoder import Encoder
from minbert.files import cached
from minbert.train import distributed
from minbert.train.run import hardware
from tasks.contrastive.curriculum import COSINES
from tasks.examples import Examples, distinct

SCORES_FILE = "difficulty.safetensors"
"""The file of a run with the scores that order its triplets."""
_BLOCK = 1 << 15  # triplets scored at a time


def scores_of_run(
    folder: Path, names: Sequence[str], count: int, device: torch.device, score: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The named scores of a run's `count` triplets, from its file, else from `score`: float64 [N] each.

    Of several ranks the first one reads or scores. A resumed run keeps its scores: another processor rounds otherwise,
    and in another order the run would repeat some triplets and leave out others.
    """
    values = torch.zeros(len(names), count, dtype=torch.float64, device=device)
    if distributed.rank() == 0:
        path = folder / SCORES_FILE
        scores: Mapping[str, np.ndarray] = load_file(path) if path.is_file() else {}
        # there is no file yet, or one of other data, with which the run is refused later
        if any(len(scores.get(name, ())) != count for name in names):
            scores = score()
        values.copy_(torch.from_numpy(np.stack([scores[name] for name in names])))
    distributed.broadcast(values)
    return dict(zip(names, values.cpu().numpy(), strict=True))


def similarities(encoder: Encoder, triplets: Examples, weights_sha256: str) -> dict[str, np.ndarray]:
    """`COSINES` of N triplets under the frozen encoder, dropout off: float32 [N] each.

    A block of triplets is scored at a time, so that memory does not grow with their number; each distinct text of a
    block is encoded once. A second call reads the cosines from the cache, which is keyed by everything that the bits
    depend on, among others the number of threads.
    """

    def build() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        values = np.empty((2, len(triplets)), dtype=np.float32)
        for begin in range(0, len(triplets), _BLOCK):
            block = range(begin, min(begin + _BLOCK, len(triplets)))
            sentences = []
            for row in block:
                sentences += [tuple(triplets.sentence(row, column)) for column in range(3)]
            texts, index = distinct(sentences)
            vectors = encoder.encode_ids(texts, show_progress_bar=sys.stderr.isatty())
            values[:, begin : begin + len(block)] = cosines(vectors, index)
        return dict(zip(COSINES, values, strict=True)), {}

    config = replace(encoder.model.config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    device = encoder.model.device
    key = (
        triplets.cache.key,
        weights_sha256,
        encoder.pooler,
        encoder.precision,
        triplets.max_length,
        config,
        device,
        torch.__version__,
        *hardware(device).values(),
    )
    arrays, _ = cached("cosines", key, build)
    return arrays


def cosines(vectors: np.ndarray, index: np.ndarray) -> np.ndarray:
    """`COSINES` of N triplets: float32 [2, N].

    `index` [3 N] holds the rows of anchors, positives and negatives in `vectors` [M, D].
    """
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    anchor, positive, negative = vectors[index.reshape(-1, 3).T]
    return np.stack([(anchor * positive).sum(1), (anchor * negative).sum(1)])
