"""Sentence vectors from an encoder, in input order.

vectors = minbert.Encoder.load("runs/cbcl/encoder").encode(["A sentence.", "Another one."])
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from minbert import pooling, weights
from minbert.bert import BertModel
from minbert.cpu import packed_weights
from minbert.errors import UserError
from minbert.precision import autocast, choose, default_device
from minbert.ragged import Ragged, inverse
from minbert.tokenizer import Tokenizer


def pool(model: BertModel, states: Sequence[Tensor], ragged: Ragged, pooler: str) -> Tensor:
    """One vector per sentence from hidden states: [B, D]. `pooler` is one of `minbert.pooling.NAMES`."""
    if pooler == "pooler":
        return model.pool(pooling.cls(states, ragged))
    return pooling.POOLERS[pooler](states, ragged)


def vectors(model: BertModel, ragged: Ragged, pooler: str) -> Tensor:
    """One vector per sentence: [B, D], in the order of `ragged`."""
    if pooler == "pooler":
        return model.pooled(ragged)
    if ragged.by_length is not None:
        ragged, _, order = ragged.by_length
        return vectors(model, ragged, pooler).index_select(0, inverse(order))
    return pool(model, model.encode(model.embed(ragged), ragged), ragged, pooler)


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
        """`max_length` is in tokens, including [CLS] and [SEP]. The number of the model's positions is its default
        and its maximum. Raises `UserError` if it is below 3, and for an unknown pooler or precision.
        """
        if max_length is not None and max_length < 3:
            raise UserError(f"max_length: {max_length} leaves no room for a text between [CLS] and [SEP]")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.pooler = pooling.check(pooler)
        self.precision = choose(precision, model.device)
        self.max_length = min(max_length or 10**9, model.config.max_position_embeddings)

    def __repr__(self) -> str:
        config, count = self.model.config, sum(parameter.numel() for parameter in self.model.parameters())
        size = f"{config.num_hidden_layers} layers, {config.hidden_size} dimensions, {count:,} parameters"
        use = f"pooler {self.pooler}, at most {self.max_length} tokens, {self.precision} on {self.model.device}"
        return f"Encoder({size}; {use})"

    @classmethod
    def load(
        cls,
        dir_or_name: str | Path,
        *,
        pooler: str | None = None,
        device: str | torch.device | None = None,
        precision: str = "auto",
    ) -> "Encoder":
        """Load from an encoder's folder, a run's folder, `minilm` or a hub name.

        `pooler` defaults to the one the folder was saved with, `device` to CUDA if available. Raises `UserError` if
        the weights or the vocabulary are missing, invalid or do not fit the config.
        """
        if pooler is not None:
            pooling.check(pooler)
        folder = weights.resolve(str(dir_or_name))
        model = BertModel.from_pretrained(folder).to(device or default_device())
        tokenizer = Tokenizer.load(folder)
        tokenizer.check_fits(model.config.vocab_size, str(folder))
        return cls(model, tokenizer, pooler or weights.saved_pooler(folder) or "cls", precision=precision)

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        normalize: bool = False,
        batch_tokens: int | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """Vectors of N sentences: float32 [N, D], or [D] for a single string. `normalize` scales them to length 1.

        Sentences longer than `max_length` are truncated, with a warning. Raises `TypeError` for an input that is not
        a string.
        """
        listed = [sentences] if isinstance(sentences, str) else list(sentences)
        for place, one in enumerate(listed):
            if not isinstance(one, str):
                raise TypeError(f"sentences: number {place}, counted from 0, is a {type(one).__name__}, not a string")
        rows, cut = self.rows(listed)
        if cut:
            note = f"{cut} of {len(rows)} sentences are longer than {self.max_length} tokens and are truncated"
            warnings.warn(note, stacklevel=2)
        result = self.encode_ids(rows, batch_tokens=batch_tokens, progress=progress)
        if normalize:
            result /= np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12)
        return result[0] if isinstance(sentences, str) else result

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> np.ndarray | float:
        """Cosine similarity of every sentence of `a` to every sentence of `b`: float32 [N, M].

        If `a` or `b` is a single string, its axis is dropped: [M], [N], or a float for two strings.
        """
        cosines = self.encode(a, normalize=True) @ self.encode(b, normalize=True).T
        return float(cosines) if cosines.ndim == 0 else cosines

    def rows(self, sentences: Sequence[str]) -> tuple[list[list[int]], int]:
        """Token ids of [CLS] sentence [SEP], truncated to `max_length`, and the number of truncated sentences."""
        inner, encoded = self.max_length - 2, self.tokenizer.encode(sentences)
        cut = sum(len(ids) > inner for ids in encoded)
        return [[self.tokenizer.cls, *ids[:inner], self.tokenizer.sep] for ids in encoded], cut

    @torch.inference_mode()
    def encode_ids(
        self, rows: Sequence[Sequence[int]], *, batch_tokens: int | None = None, progress: bool = False
    ) -> np.ndarray:
        """Vectors of N lists of token ids that include the special tokens: float32 [N, D].

        `batch_tokens` is the batch size in tokens, as in `batches`.
        """
        result = np.empty((len(rows), self.model.config.hidden_size), dtype=np.float32)
        batches = self.batches(rows, batch_tokens)
        with packed_weights(self.model, self.precision, sum(map(len, rows))):
            for batch, ragged in _with_bar(batches, len(rows)) if progress and sys.stderr.isatty() else batches:
                with autocast(self.precision, self.model.device):
                    out = vectors(self.model, ragged, self.pooler)
                result[batch] = out.float().cpu().numpy()
        return result

    def batches(
        self, rows: Sequence[Sequence[int]], batch_tokens: int | None = None
    ) -> Iterator[tuple[np.ndarray, Ragged]]:
        """Batches by `batches_by_length`: the indices of the rows, and the rows as a `Ragged`.

        `batch_tokens` defaults to 2,048 on the CPU and 32,768 elsewhere. On the CPU, the activations of 2,048 tokens
        stay in the processor's cache, and a token takes a quarter less time than with 8,192.
        """
        size = batch_tokens or (2048 if self.model.device.type == "cpu" else 32_768)
        for batch in batches_by_length([len(row) for row in rows], size):
            yield batch, Ragged.from_lists([rows[i] for i in batch]).to(self.model.device)


def batches_by_length(lengths: Sequence[int], batch_tokens: int) -> list[np.ndarray]:
    """Indices of rows in batches of at most `batch_tokens` tokens. A longer row is a batch of its own.

    The longest rows are in the first batch. Inside a batch the shortest row comes first, the order that the encoder
    sorts into.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches, start, total = [], 0, 0
    for place, index in enumerate(order):
        if place > start and total + lengths[index] > batch_tokens:
            batches.append(order[start:place][::-1])
            start, total = place, 0
        total += lengths[index]
    if len(order) > start:
        batches.append(order[start:][::-1])
    return batches


def _with_bar(batches: Iterator[tuple[np.ndarray, Ragged]], total: int) -> Iterator[tuple[np.ndarray, Ragged]]:
    """The same batches; a bar on standard error counts their sentences."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, refresh_per_second=2) as bar:
        task = bar.add_task("encoding", total=total)
        for batch in batches:
            yield batch
            bar.advance(task, len(batch[0]))
