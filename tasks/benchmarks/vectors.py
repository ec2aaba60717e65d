"""Vectors of many texts by several poolers at once: each distinct text goes through an encoder one time.

Axes: M distinct texts, B sentences of a batch, T its tokens, D hidden.
"""

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from minbert import pooling
from minbert.bert import BertModel
from minbert.cpu import packed_weights
from minbert.encode import Encoder
from minbert.precision import autocast
from minbert.ragged import Ragged
from tasks.benchmarks.options import Loaded, System
from tasks.contrastive.validation import unit

K = TypeVar("K", bound=Hashable)
Way = Callable[[BertModel, Sequence[Tensor], Ragged], Tensor]
"""Hidden states (the embedding layer's and every layer's, [T, D]) to one vector a sentence: [B, D]."""


def way(pooler: str) -> Way:
    """The pooler of that name as a function of a model and its hidden states."""
    if pooler == "pooler":
        return lambda model, states, ragged: model.pool(states[-1].index_select(0, ragged.starts))
    return lambda model, states, ragged: pooling.POOLERS[pooler](states, ragged)


@torch.inference_mode()
def encode(
    encoder: Encoder, texts: Sequence[str], ways: Mapping[K, Way], *, name: str, batch_tokens: int | None = None
) -> dict[K, np.ndarray]:
    """For each way float32 [M, D], in the order of the texts. A text over the length limit is cut.

    The number of cut texts is printed to standard error under `name`; `batch_tokens` is that of `Encoder.batches`.
    """
    model = encoder.model
    rows, cut = encoder.rows(texts)
    if cut:
        print(
            f"{name}: {cut} of {len(texts)} texts are over {encoder.max_length} tokens and are truncated",
            file=sys.stderr,
        )
    found = {one: np.empty((len(rows), model.config.hidden_size), dtype=np.float32) for one in ways}
    with packed_weights(model, encoder.precision, sum(map(len, rows))):
        for batch, ragged in encoder.batches(rows, batch_tokens):
            with autocast(encoder.precision, model.device):
                states = model.encode(model.embed(ragged), ragged)
                for one, function in ways.items():
                    found[one][batch] = function(model, states, ragged).float().cpu().numpy()
    return found


@dataclass(frozen=True)
class Bank:
    """The vectors of distinct texts, float32 [M, D], by system or by whatever else they were encoded for."""

    places: dict[str, int]
    vectors: Mapping[Hashable, np.ndarray]

    @classmethod
    def encoded(cls, encoder: Encoder, texts: Iterable[str], ways: Mapping[Hashable, Way], *, name: str) -> "Bank":
        """Encode every distinct text once; the vectors have the keys of `ways`. `name` is that of `encode`."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return cls(places, encode(encoder, list(places), ways, name=name))

    @classmethod
    def of(cls, loaded: Sequence[Loaded], texts: Iterable[str]) -> "Bank":
        """Encode every distinct text once with each encoder; the vectors are by system."""
        texts, places, vectors = list(texts), dict[str, int](), dict[Hashable, np.ndarray]()
        for one in loaded:
            ways: dict[Hashable, Way] = {System(one.name, pooler): way(pooler) for pooler in one.poolers}
            made = cls.encoded(one.encoder, texts, ways, name=one.name)
            places, vectors = made.places, vectors | dict(made.vectors)
        return cls(places, vectors)

    def of_texts(self, key: Hashable, texts: Sequence[str]) -> np.ndarray:
        """Vectors of some texts of the bank: float32 [len(texts), D]."""
        return self.vectors[key][[self.places[text] for text in texts]]

    def cosines(self, key: Hashable, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Cosine of each pair in float64, 0 where a vector is zero: [pairs]."""
        first, second = (unit(self.of_texts(key, [pair[side] for pair in pairs])) for side in (0, 1))
        return (first * second).sum(1)
