"""Sentences to vectors, in input order.

vectors = minbert.Encoder.load("runs/cbcl/encoder").encode(["A sentence.", "Another one."])
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minbert import pooling, weights
from minbert.bert import BertModel
from minbert.precision import autocast, choose
from minbert.ragged import Ragged, inverse
from minbert.tokenizer import Tokenizer


def vectors(model: BertModel, ragged: Ragged, pooler: str) -> Tensor:
    """One vector for each sentence of a batch: [B, D], in the batch's order."""
    if pooler == "pooler":
        return model.pooled(ragged)
    if ragged.by_length is not None:
        ragged, _, order = ragged.by_length
        return vectors(model, ragged, pooler).index_select(0, inverse(order))
    return pooling.POOLERS[pooler](model.encode(model.embed(ragged), ragged), ragged)


class Encoder:
    """An encoder, its tokenizer and its pooler."""

    def __init__(
        self,
        model: BertModel,
        tokenizer: Tokenizer,
        pooler: str = "mean",
        *,
        precision: str = "auto",
        max_length: int | None = None,
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.pooler = pooling.check(pooler)
        self.precision = choose(precision, model.device)
        self.max_length = min(max_length or 10**9, model.config.max_position_embeddings)

    @classmethod
    def load(
        cls, dir_or_name: str | Path, *, pooler: str | None = None, device: str = "cpu", precision: str = "auto"
    ) -> "Encoder":
        """From a folder, `minilm` or a hub name; the pooler is the one the folder names, unless given.

        Raises `UserError` where weights or vocabulary cannot be had or do not fit.
        """
        folder = weights.resolve(str(dir_or_name))
        model = BertModel.from_pretrained(folder).to(device)
        tokenizer = Tokenizer.load(folder)
        tokenizer.check_fits(model.config.vocab_size, str(folder))
        return cls(model, tokenizer, pooler or weights.saved_pooler(folder), precision=precision)

    def encode(
        self, sentences: Sequence[str], *, batch_tokens: int | None = None, progress: bool = False
    ) -> np.ndarray:
        """Vectors of N sentences: float32 [N, D]. Longer sentences are cut, and a warning counts them."""
        inner = self.max_length - 2
        encoded = self.tokenizer.encode(sentences)
        cut = sum(len(ids) > inner for ids in encoded)
        if cut:
            note = f"{cut} of {len(encoded)} sentences are longer than {self.max_length} tokens and are cut"
            warnings.warn(note, stacklevel=2)
        rows = [[self.tokenizer.cls, *ids[:inner], self.tokenizer.sep] for ids in encoded]
        return self.encode_ids(rows, batch_tokens=batch_tokens, progress=progress)

    @torch.inference_mode()
    def encode_ids(
        self, rows: Sequence[Sequence[int]], *, batch_tokens: int | None = None, progress: bool = False
    ) -> np.ndarray:
        """Vectors of lists of ids that hold their special tokens already: float32 [N, D].

        A batch has at most `batch_tokens` tokens; by default as many as keep a CPU's caches, or a GPU, busy.
        """
        result = np.empty((len(rows), self.model.config.hidden_size), dtype=np.float32)
        bar = _bar(len(rows), progress)
        size = batch_tokens or (2048 if self.model.device.type == "cpu" else 32_768)
        for batch in batches_by_length([len(row) for row in rows], size):
            ragged = Ragged.from_lists([rows[i] for i in batch]).to(self.model.device)
            with autocast(self.precision, self.model.device):
                out = vectors(self.model, ragged, self.pooler)
            result[batch] = out.float().cpu().numpy()
            bar.update(len(batch))
        bar.close()
        return result


def batches_by_length(lengths: Sequence[int], batch_tokens: int) -> list[np.ndarray]:
    """Indices sorted by length, longest first, cut into batches of at most `batch_tokens` tokens (one row at least)."""
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches, start, total = [], 0, 0
    for place, index in enumerate(order):
        if place > start and total + lengths[index] > batch_tokens:
            batches.append(order[start:place])
            start, total = place, 0
        total += lengths[index]
    if len(order) > start:
        batches.append(order[start:])
    return batches


def _bar(total: int, shown: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, disable=not shown, unit=" sentences", leave=False)
