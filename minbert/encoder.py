"""Sentence vectors from an encoder, in input order.

vectors = minbert.Encoder.load("runs/cbcl/encoder").encode(["A sentence.", "Another one."])
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from minbert import modules, pooling, weights
from minbert.attention import in_length_order
from minbert.bert import BertModel
from minbert.errors import UserError, format_list, one_of, reason, short_repr
from minbert.fast import accelerate, packed_weights
from minbert.files import expand_user
from minbert.modules import Pipeline
from minbert.precision import autocast, choose, default_device
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer

Vectors = str | Sequence[Any] | np.ndarray | Tensor
"""Vectors, or the texts to encode."""
_TOKENS_MULTIPLE = 128  # to which the number of tokens of a large batch on the CPU is rounded up
_WORTH_ROUNDING = 1024  # tokens from which a batch is large


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
    """An encoder, its tokenizer, its pooler, and what its folder says of the vectors after pooling."""

    def __init__(
        self,
        model: BertModel,
        tokenizer: Tokenizer,
        pooler: str = "mean",
        *,
        precision: str = "auto",
        max_length: int | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        """`max_length` is in tokens, including [CLS] and [SEP]. The number of the model's positions is its default
        and its maximum. `pipeline` holds prompts and the layers over the pooled vector. Raises `UserError` if
        `max_length` is below 3, for an unknown pooler or precision, and for a pooling layer that the weights lack.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.pooler = one_of(pooler, pooling.NAMES, "pooler")
        if self.pooler == "pooler":
            model.pooling_layer()  # here, and not at the first sentence
        self.pipeline = pipeline or Pipeline()
        self._requested_precision = precision
        self.precision = choose(precision, model.device)
        self.pipeline.layers.to(model.device)
        if max_length is None:
            max_length = model.config.max_position_embeddings
        self.max_length = max_length

    def __repr__(self) -> str:
        config = self.model.config
        layers = "".join(f", {type(layer).__name__}" for layer in self.pipeline.layers)
        return (
            f"Encoder({config.num_hidden_layers} layers, {self.get_sentence_embedding_dimension()} dimensions, "
            f"pooler {self.pooler!r}{layers}, max_length {self.max_length}, {self.precision} on {self.device})"
        )

    @classmethod
    def load(
        cls,
        dir_or_name: str | Path,
        *,
        pooler: str | None = None,
        device: str | torch.device | None = None,
        precision: str = "auto",
        max_length: int | None = None,
    ) -> "Encoder":
        """Load from an encoder's folder, a run's folder, `minilm` or a hub name.

        `pooler`, longest input, prompts, and layers over the pooled vector such as its scaling to length 1 are those
        that the folder names, as in sentence-transformers. A folder that names no pooler has the mean; training that
        starts from such a folder has BERT's pooling layer (`minbert.train.start.load_initial_encoder`). `device` is
        CUDA if available. Raises `UserError` if weights or vocabulary are missing, invalid or do not fit the config,
        if the folder asks for what is not supported, or if the device is not available.
        """
        folder = weights.resolve(str(dir_or_name))
        model = accelerate(BertModel.from_pretrained(folder))
        tokenizer = Tokenizer.load(folder)
        pipeline = modules.read_pipeline(folder)
        if max_length is None:
            max_length = pipeline.max_length
        try:
            model.to(device or default_device())
        except (AssertionError, RuntimeError) as error:  # the type depends on torch's build
            raise UserError(f"device {short_repr(str(device))}: {reason(error)}") from error
        return cls(
            model,
            tokenizer,
            pooler or pipeline.pooler or "mean",
            precision=precision,
            max_length=max_length,
            pipeline=pipeline,
        )

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.device

    def to(self, device: str | torch.device) -> "Encoder":
        """Move the encoder to a device; returns it. The precision `auto` is chosen anew."""
        self.model.to(device)
        self.pipeline.layers.to(device)
        self.precision = choose(self._requested_precision, self.device)
        return self

    @property
    def max_length(self) -> int:
        """The longest input in tokens, with [CLS] and [SEP]; at least 3, at most the model's number of positions."""
        return self._max_length

    @max_length.setter
    def max_length(self, tokens: int) -> None:
        if tokens < 3:
            raise UserError(f"max_length: {tokens} leaves no room for a text between [CLS] and [SEP]")
        self._max_length = min(tokens, self.model.config.max_position_embeddings)

    @property
    def max_seq_length(self) -> int:
        """`max_length` by the name that sentence-transformers has for it."""
        return self.max_length

    @max_seq_length.setter
    def max_seq_length(self, tokens: int) -> None:
        self.max_length = tokens

    def get_sentence_embedding_dimension(self) -> int:
        """The number of dimensions of a vector that `encode` returns."""
        empty = np.empty((0, self.model.config.hidden_size), dtype=np.float32)
        return self.finish(empty).shape[1]

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load`, transformers and sentence-transformers open.

        An encoder in `folder` is replaced. Raises `UserError` if the folder holds anything else.
        """
        folder = expand_user(folder)
        if folder.is_dir():
            others = sorted(path.name for path in folder.iterdir() if not weights.OWN_FILES.fullmatch(path.name))
            if others:
                raise UserError(f"{folder}: {format_list(others)} would be deleted: choose another folder")
        pipeline = replace(self.pipeline, max_length=self.max_length)
        state = self.model.state_dict()
        weights.save(folder, state, self.model.config, self.tokenizer, self.pooler, pipeline)

    @overload
    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        normalize_embeddings: bool | None = ...,
        convert_to_tensor: Literal[False] = ...,
        prompt: str | None = ...,
        prompt_name: str | None = ...,
        truncate_dim: int | None = ...,
    ) -> np.ndarray: ...

    @overload
    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        normalize_embeddings: bool | None = ...,
        convert_to_tensor: Literal[True],
        prompt: str | None = ...,
        prompt_name: str | None = ...,
        truncate_dim: int | None = ...,
    ) -> Tensor: ...

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        normalize_embeddings: bool | None = None,
        convert_to_tensor: bool = False,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
    ) -> np.ndarray | Tensor:
        """Vectors of N sentences: a float32 array [N, D], or [D] for a single string.

        The names are sentence-transformers'; not here are `convert_to_numpy`, `precision`, `output_value`, `device`,
        `pool` and `chunk_size`.

        `batch_size` is the largest number of sentences in a batch, which in any case has about 4,096 tokens at most
        on the CPU and 32,768 elsewhere, or one sentence.
        `normalize_embeddings` scales vectors to length 1, or does not, whatever the folder says.
        `convert_to_tensor` returns a tensor on the encoder's device, not a NumPy array.
        `prompt` is a text to put before every sentence, `prompt_name` one that the folder names.
        `truncate_dim` keeps the first dimensions only.

        Sentences longer than `max_length` are truncated, with a warning. Raises `TypeError` if `sentences` is neither a
        string nor an ordered iterable of strings, such as a list or a column of a table, and `UserError` for an unknown
        prompt.
        """
        texts = _list_of_strings([sentences] if isinstance(sentences, str) else sentences)
        rows, truncated = self.rows(texts, self.prompt(prompt, prompt_name))
        if truncated:
            warnings.warn(f"{truncated} of {len(rows)} sentences cut to {self.max_length} tokens", stacklevel=2)
        pooled = self.encode_ids(rows, batch_size=batch_size, show_progress_bar=show_progress_bar)
        result = self.finish(pooled, normalize_embeddings, truncate_dim)
        if isinstance(sentences, str):
            result = result[0]
        return torch.from_numpy(result).to(self.device) if convert_to_tensor else result

    def prompt(self, prompt: str | None = None, name: str | None = None) -> str:
        """The text before every sentence: `prompt`, else the folder's prompt of this name, else its default prompt.

        Raises `UserError` for an unknown name, and if the pooling leaves the prompt's tokens out.
        """
        prompts = self.pipeline.prompts
        name = name or self.pipeline.default_prompt_name
        if prompt is None and name is not None:
            prompt = prompts[one_of(name, prompts, "prompt_name")]
        if prompt and not self.pipeline.pools_prompt:
            raise UserError("this encoder's pooling leaves the tokens of a prompt out, which is not supported")
        return prompt or ""

    @torch.inference_mode()
    def finish(
        self, pooled: np.ndarray, normalize_embeddings: bool | None = None, truncate_dim: int | None = None
    ) -> np.ndarray:
        """Apply the folder's layers to pooled vectors [N, D], truncate them, and scale them to length 1 if asked."""
        x = torch.from_numpy(pooled).to(self.device)
        layers: nn.Module = self.pipeline.layers
        if normalize_embeddings is False and self.pipeline.normalizes:
            layers = self.pipeline.layers[:-1]
        with autocast("fp32", self.device):
            x = layers(x)[:, : truncate_dim or self.pipeline.truncate_dim]
        if normalize_embeddings:
            x = F.normalize(x, dim=1)
        return x.cpu().numpy()

    def similarity(self, a: Vectors, b: Vectors) -> Tensor:
        """Cosine similarity of every vector of `a` [N, D] and of `b` [M, D]: [N, M]; [D] counts as [1, D].

        Texts are encoded first. It is the cosine whatever function of similarity the folder names.
        """
        rows = self._unit_rows(a)
        return rows @ self._unit_rows(b).to(rows.device).T

    def _unit_rows(self, vectors: Vectors) -> Tensor:
        """The rows scaled to length 1, in fp32: [N, D]; [D] counts as [1, D]."""
        if isinstance(vectors, list | tuple) and vectors and not isinstance(vectors[0], str):
            vectors = torch.stack([torch.as_tensor(row, dtype=torch.float32) for row in vectors])
        are_texts = isinstance(vectors, np.ndarray) and vectors.dtype.kind in "UO"
        if are_texts or not isinstance(vectors, np.ndarray | Tensor):
            vectors = self.encode(vectors)
        return F.normalize(torch.atleast_2d(torch.as_tensor(vectors)).float(), dim=1)

    def rows(self, sentences: Sequence[str], prompt: str) -> tuple[list[list[int]], int]:
        """Token ids of [CLS] prompt sentence [SEP], truncated to `max_length`, and the number of truncated sentences.

        `prompt` stands before every sentence, without a space between them; the method `prompt` returns the folder's.
        """
        if prompt:
            sentences = [prompt + sentence for sentence in sentences]
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
        """Pooled vectors of N lists of token ids that include the special tokens: float32 [N, D].

        Dropout is off, whatever the model's mode, which stays as it is; in training mode, call it from one thread at a
        time, as the mode is the model's. The layers over the pooled vector are left out.
        """
        result = np.empty((len(rows), self.model.config.hidden_size), dtype=np.float32)
        tokens = sum(len(row) for row in rows)
        bar = tqdm(total=len(rows), desc="encoding", unit="sentence", disable=not show_progress_bar)
        was_training = self.model.training
        self.model.eval()
        try:
            with bar, packed_weights(self.model, self.precision, tokens):
                for batch, ragged in self.batches(rows, batch_size=batch_size):
                    with autocast(self.precision, self.model.device):
                        out = vectors(self.model, ragged, self.pooler)
                    # without the sentence that rounds the number of tokens up
                    result[batch] = out[: len(batch)].float().cpu().numpy()
                    bar.update(len(batch))
        finally:
            self.model.train(was_training)
        return result

    def batches(
        self, rows: Sequence[Sequence[int]], *, batch_size: int | None = None
    ) -> Iterator[tuple[np.ndarray, Ragged]]:
        """Batches by `batches_by_length`: the indices of the rows, and the rows as a `Ragged`.

        A batch has about 4,096 tokens at most on the CPU and 32,768 elsewhere, or one row. With 2,048 an encoding in
        bf16 takes a tenth more time on a Xeon with AMX. Elsewhere, where attention may pad, a batch also has at most
        65,536 tokens with padding.

        On the CPU, the `Ragged` of a large batch may hold one more sentence than the batch, at its end.
        """
        on_cpu = self.model.device.type == "cpu"
        multiple = min(_TOKENS_MULTIPLE, self.model.config.max_position_embeddings)
        lengths = [len(row) for row in rows]
        if on_cpu:
            batches = batches_by_length(lengths, 4096, batch_size)
        else:
            batches = batches_by_length(lengths, 32_768, batch_size, padded_tokens=65_536)
        for batch in batches:
            sentences = [rows[i] for i in batch]
            tokens = sum(len(sentence) for sentence in sentences)
            missing = -tokens % multiple
            # One more sentence rounds the number of tokens up, as oneDNN compiles kernels for every new number. The
            # first calls take 0.81 of their time, later ones 0.96 (Xeon with AMX).
            if on_cpu and missing and tokens >= _WORTH_ROUNDING:
                sentences.append([0] * missing)
            yield batch, Ragged.from_lists(sentences).to(self.model.device)


def _list_of_strings(sentences: Iterable[str]) -> list[str]:
    """The sentences as a list. Raises `TypeError` if they are not strings: a pair would be read as one text."""
    # a table and a dict iterate over the names of their columns, a set in no order
    if hasattr(sentences, "columns") or isinstance(sentences, Mapping | Set):
        raise TypeError(f"sentences: a {type(sentences).__name__}; give a list, or a column such as frame['text']")
    texts = list(sentences)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"sentences: number {index}, counted from 0, is a {type(text).__name__}, not a string")
    return texts


def batches_by_length(
    lengths: Sequence[int], batch_tokens: int, batch_size: int | None = None, padded_tokens: int | None = None
) -> list[np.ndarray]:
    """Indices of rows in batches of at most `batch_tokens` tokens (`padded_tokens` with padding) and `batch_size` rows.

    A row with more tokens is a batch of its own. The longest rows are in the first batch. Inside a batch the shortest
    row comes first, the order that the encoder sorts into.
    """
    # longest first: if memory is too small, the first batch shows it
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches = []
    start = 0
    tokens = 0
    for end, row in enumerate(order):
        padded = (end - start + 1) * lengths[order[start]]
        full = tokens + lengths[row] > batch_tokens or end - start == batch_size
        full = full or (padded_tokens is not None and padded > padded_tokens)
        if full and end > start:
            batches.append(order[start:end][::-1])
            start = end
            tokens = 0
        tokens += lengths[row]
    if start < len(order):
        batches.append(order[start:][::-1])
    return batches
