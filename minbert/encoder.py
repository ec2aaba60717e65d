"""Sentence vectors from an encoder, in input order.

vectors = minbert.Encoder.load("runs/cbcl/encoder").encode(["A sentence.", "Another one."])
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from minbert import pooling, weights
from minbert.attention import in_length_order
from minbert.bert import BertModel
from minbert.errors import UserError, reason, short_repr
from minbert.fast import accelerate, packed_weights
from minbert.precision import autocast, choose, default_device
from minbert.ragged import Ragged
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

    def encode(ordered: Ragged) -> Tensor:
        return pool(model, model.encode(model.embed(ordered), ordered), ordered, pooler)

    return in_length_order(encode, ragged)


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
        positions = model.config.max_position_embeddings
        if max_length is None:
            max_length = positions
        if max_length < 3:
            raise UserError(f"max_length: {max_length} leaves no room for a text between [CLS] and [SEP]")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.pooler = pooling.check(pooler)
        self.precision = choose(precision, model.device)
        self.max_length = min(max_length, positions)

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"Encoder({config.num_hidden_layers} layers, {config.hidden_size} dimensions, pooler {self.pooler!r}, "
            f"max_length {self.max_length}, {self.precision} on {self.model.device})"
        )

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

        `pooler` and the longest input are those that the folder names, `device` is CUDA if available. Vectors are not
        scaled to length 1, even if sentence-transformers does so with this folder: `encode(normalize_embeddings=True)`
        does. Raises `UserError` if the weights or the vocabulary are missing, invalid or do not fit the config, or the
        device is not available.
        """
        if pooler is not None:
            pooling.check(pooler)  # before the weights are read
        folder = weights.resolve(str(dir_or_name))
        model = accelerate(BertModel.from_pretrained(folder))
        tokenizer = Tokenizer.load(folder)
        tokenizer.check_fits(model.config.vocab_size, str(folder))
        try:
            model.to(device or default_device())
        except (AssertionError, RuntimeError) as error:  # the type depends on torch's build
            raise UserError(f"device {short_repr(str(device))}: {reason(error)}") from error
        if pooler is None:
            pooler = weights.saved_pooler(folder) or "cls"
        return cls(model, tokenizer, pooler, precision=precision, max_length=weights.saved_length(folder))

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        normalize_embeddings: bool = False,
    ) -> np.ndarray:
        """Vectors of N sentences: float32 [N, D], or [D] for a single string. The names are sentence-transformers'.

        `batch_size` is the largest number of sentences in a batch; else batches are filled to a number of tokens.
        `normalize_embeddings` scales vectors to length 1.
        Sentences longer than `max_length` are truncated, with a warning. Raises `TypeError` if `sentences` is neither a
        string nor a sequence of strings, such as a list or a column of a table.
        """
        texts = _list_of_strings([sentences] if isinstance(sentences, str) else sentences)
        rows, truncated = self.rows(texts)
        if truncated:
            warnings.warn(
                f"{truncated} of {len(rows)} sentences are longer than {self.max_length} tokens and are truncated",
                stacklevel=2,
            )
        result = self.encode_ids(rows, batch_size=batch_size, show_progress_bar=show_progress_bar)
        if normalize_embeddings:
            norms = np.linalg.norm(result, axis=1, keepdims=True)
            # a zero vector stays zero
            result /= np.maximum(norms, 1e-12)
        return result[0] if isinstance(sentences, str) else result

    @staticmethod
    def similarity(a: np.ndarray | Tensor, b: np.ndarray | Tensor) -> Tensor:
        """Cosine similarity of every vector of `a` [N, D] and of `b` [M, D]: [N, M]; [D] counts as [1, D]."""
        return _unit_rows(a) @ _unit_rows(b).T

    def rows(self, sentences: Sequence[str]) -> tuple[list[list[int]], int]:
        """Token ids of [CLS] sentence [SEP], truncated to `max_length`, and the number of truncated sentences."""
        room = self.max_length - 2  # without [CLS] and [SEP]
        rows = []
        truncated = 0
        for ids in self.tokenizer.encode(sentences):
            rows.append([self.tokenizer.cls, *ids[:room], self.tokenizer.sep])
            truncated += len(ids) > room
        return rows, truncated

    @torch.inference_mode()
    def encode_ids(
        self, rows: Sequence[Sequence[int]], *, batch_size: int | None = None, show_progress_bar: bool = False
    ) -> np.ndarray:
        """Vectors of N lists of token ids that include the special tokens: float32 [N, D]."""
        result = np.empty((len(rows), self.model.config.hidden_size), dtype=np.float32)
        tokens = sum(len(row) for row in rows)
        bar = tqdm(total=len(rows), desc="encoding", unit="sentence", disable=not show_progress_bar)
        with bar, packed_weights(self.model, self.precision, tokens):
            for batch, ragged in self.batches(rows, batch_size=batch_size):
                with autocast(self.precision, self.model.device):
                    out = vectors(self.model, ragged, self.pooler)
                result[batch] = out.float().cpu().numpy()
                bar.update(len(batch))
        return result

    def batches(
        self, rows: Sequence[Sequence[int]], *, batch_size: int | None = None
    ) -> Iterator[tuple[np.ndarray, Ragged]]:
        """Batches by `batches_by_length`: the indices of the rows, and the rows as a `Ragged`.

        A batch has at most 2,048 tokens on the CPU and 32,768 elsewhere. On the CPU, the activations of 2,048 tokens
        stay in the processor's cache, and a token takes a quarter less time than with 8,192.
        """
        tokens = 2048 if self.model.device.type == "cpu" else 32_768
        for batch in batches_by_length([len(row) for row in rows], tokens, batch_size):
            ragged = Ragged.from_lists([rows[i] for i in batch])
            yield batch, ragged.to(self.model.device)


def _unit_rows(vectors: np.ndarray | Tensor) -> Tensor:
    """The rows scaled to length 1, in fp32: [N, D]; [D] counts as [1, D]."""
    return F.normalize(torch.atleast_2d(torch.as_tensor(vectors)).float(), dim=1)


def _list_of_strings(sentences: Iterable[str]) -> list[str]:
    """The sentences as a list. Raises `TypeError` if they are not strings: a pair would be read as one text."""
    if hasattr(sentences, "columns"):
        raise TypeError("sentences: a table; give one of its columns, such as frame['text']")
    texts = list(sentences)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"sentences: number {index}, counted from 0, is a {type(text).__name__}, not a string")
    return texts


def batches_by_length(lengths: Sequence[int], batch_tokens: int, batch_size: int | None = None) -> list[np.ndarray]:
    """Indices of rows in batches of at most `batch_tokens` tokens and `batch_size` rows.

    A row with more tokens is a batch of its own. The longest rows are in the first batch. Inside a batch the shortest
    row comes first, the order that the encoder sorts into.
    """
    # longest first: if memory is too small, the first batch shows it
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches = []
    start = 0
    tokens = 0
    for end, row in enumerate(order):
        full = tokens + lengths[row] > batch_tokens or end - start == batch_size
        if full and end > start:
            batches.append(order[start:end][::-1])
            start = end
            tokens = 0
        tokens += lengths[row]
    if start < len(order):
        batches.append(order[start:][::-1])
    return batches
