"""Vectors of many texts by several poolers at once: each distinct text goes through an encoder one time.

Axes: M distinct texts, B sentences of a batch, T its tokens, D hidden.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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

Way = Callable[[BertModel, Sequence[Tensor], Ragged], Tensor]
"""Hidden states (the embedding layer's and every layer's, [T, D]) to one vector a sentence: [B, D]."""


def way(pooler: str) -> Way:
    """The pooler of that name as a function of a model and its hidden states."""
    if pooler == "pooler":
        return lambda model, states, ragged: model.pool(states[-1].index_select(0, ragged.starts))
    return lambda model, states, ragged: pooling.POOLERS[pooler](states, ragged)


@torch.inference_mode()
def encode(
    encoder: Encoder, texts: Sequence[str], ways: Mapping[str, Way], *, name: str, batch_tokens: int | None = None
) -> dict[str, np.ndarray]:
    """For each way float32 [M, D], in the order of the texts. A text over the length limit is cut, and counted.

    `name` says on standard error whose texts were cut; `batch_tokens` is that of `Encoder.batches`.
    """
    model = encoder.model
    rows, cut = encoder.rows(texts)
    if cut:
        print(f"{name}: {cut} of {len(texts)} texts are over {encoder.max_length} tokens and are cut", file=sys.stderr)
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
    """The distinct texts of a suite, and each system's vectors of them: float32 [M, D]."""

    places: dict[str, int]
    vectors: dict[System, np.ndarray]

    @classmethod
    def of(cls, loaded: Sequence[Loaded], texts: Iterable[str]) -> "Bank":
        """Encode every distinct text once with each encoder."""
        distinct = list(dict.fromkeys(texts))
        vectors: dict[System, np.ndarray] = {}
        for one in loaded:
            made = encode(one.encoder, distinct, {name: way(name) for name in one.poolers}, name=one.name)
            vectors |= {System(one.name, name): array for name, array in made.items()}
        return cls({text: place for place, text in enumerate(distinct)}, vectors)

    def of_texts(self, system: System, texts: Sequence[str]) -> np.ndarray:
        """Vectors of some texts of the bank: float32 [len(texts), D]."""
        return self.vectors[system][[self.places[text] for text in texts]]

    def cosines(self, system: System, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Cosine of each pair: float64 [pairs]."""
        sides = [self.of_texts(system, [pair[side] for pair in pairs]) for side in (0, 1)]
        return cosines(*sides)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine of row i of one and row i of the other, in float64: 0 where a vector is zero."""
    return (unit(first) * unit(second)).sum(1)
