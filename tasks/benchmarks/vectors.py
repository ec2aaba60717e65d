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
from minbert.encode import Encoder, batches_by_length
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
    encoder: Encoder, texts: Sequence[str], ways: Mapping[str, Way], *, batch_tokens: int = 0, note: str = ""
) -> dict[str, np.ndarray]:
    """For each way float32 [M, D], in the order of the texts. A text over the length limit is cut, and counted.

    `batch_tokens` is the size of a batch: 0 takes 2,048 on the CPU, where a batch's activations stay in the cache and
    a token costs a quarter less than at 8,192, and 32,768 elsewhere.
    """
    model, tokenizer = encoder.model, encoder.tokenizer
    batch_tokens = batch_tokens or (2048 if model.device.type == "cpu" else 32_768)
    inner, encoded = encoder.max_length - 2, tokenizer.encode(texts)
    cut = sum(len(ids) > inner for ids in encoded)
    if cut:
        print(f"{note}: {cut} of {len(texts)} texts are over {encoder.max_length} tokens and are cut", file=sys.stderr)
    rows = [[tokenizer.cls, *ids[:inner], tokenizer.sep] for ids in encoded]
    found = {name: np.empty((len(rows), model.config.hidden_size), dtype=np.float32) for name in ways}
    for batch in batches_by_length([len(row) for row in rows], batch_tokens):
        ragged = Ragged.from_lists([rows[place] for place in batch]).to(model.device)
        with autocast(encoder.precision, model.device):
            states = model.encode(model.embed(ragged), ragged)
            for name, function in ways.items():
                found[name][batch] = function(model, states, ragged).float().cpu().numpy()
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
            made = encode(one.encoder, distinct, {name: way(name) for name in one.poolers}, note=one.name)
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
