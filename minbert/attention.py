"""The Transformer layer of BERT (Devlin et al. 2019, section 3) over ragged batches, and its attention.

Attention stays within each sentence. There are a reference and two faster paths, which agree without dropout.

Axes: T tokens in the batch, B sentences, D hidden, H heads, d = D / H. In a group of n sentences of equal length:
L tokens and Q queries per sentence (Q = L, or 1 if only the [CLS] rows are needed).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.ragged import Ragged


class SelfAttention(nn.Module):
    """Multi-head self-attention without its output projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, ragged: Ragged, rows: Tensor | None = None) -> Tensor:
        """Attention within each sentence: [T, D] to [T, D].

        With `rows` [B], the index of one token per sentence, only these tokens are queries: [T, D] to [B, D].
        """
        asking = x if rows is None else x.index_select(0, rows)
        projected = self.query(asking), self.key(x), self.value(x)
        q, k, v = (y.unflatten(1, (self.heads, -1)) for y in projected)  # [T or B, H, d], [T, H, d], [T, H, d]
        return attend(q, k, v, ragged, self.dropout if self.training else 0.0).flatten(1)  # [T or B, D]


class Layer(nn.Module):
    """Self-attention, then a feed-forward network, each followed by a residual connection and layer normalisation."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        wide, narrow = config.intermediate_size, config.hidden_size
        self.self_attention = SelfAttention(config)
        self.attention_dense = nn.Linear(narrow, narrow)
        self.attention_layer_norm = nn.LayerNorm(narrow, eps=config.layer_norm_eps)
        self.interm_dense = nn.Linear(narrow, wide)
        self.out_dense = nn.Linear(wide, narrow)
        self.out_layer_norm = nn.LayerNorm(narrow, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, ragged: Ragged, rows: Tensor | None = None) -> Tensor:
        """[T, D] to [T, D], or to [B, D] with `rows` [B], the index of one token per sentence."""
        kept = x if rows is None else x.index_select(0, rows)
        x = self.attention_layer_norm(self.add(kept, self.attention_dense(self.self_attention(x, ragged, rows))))
        return self.out_layer_norm(self.add(x, self.feed_forward(x)))

    def add(self, x: Tensor, change: Tensor) -> Tensor:
        """x + dropout(change)."""
        return x + self.dropout(change)

    def feed_forward(self, x: Tensor) -> Tensor:
        """W2 gelu(W1 x + b1) + b2."""
        return self.out_dense(F.gelu(self.interm_dense(x)))


def attend(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """Attention of every query over the tokens of its own sentence, by the fastest path available.

    `query` is [T, H, d], or [B, H, d] for one query per sentence; `key` and `value` are [T, H, d].
    It is fastest if the sentences are sorted by length (`Ragged.by_length`). Returns the shape of `query`.
    """
    if path(query, dropout) == "variable-length":
        return variable_length(query, key, value, ragged)
    return grouped(query, key, value, ragged, partial(F.scaled_dot_product_attention, dropout_p=dropout))


def path(query: Tensor, dropout: float) -> str:
    """Name of the path that `attend` takes. The variable-length kernel needs CUDA, half precision and no dropout."""
    if query.is_cuda and query.dtype != torch.float32 and dropout == 0.0:
        return "variable-length"
    return "grouped"


def reference(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged) -> Tensor:
    """softmax(q k' / sqrt(d)) v, one sentence at a time (Vaswani et al. 2017, equation 1), to test the other paths."""
    queries = query.split([1] * len(ragged) if len(query) == len(ragged) else list(ragged.lengths))
    outputs = []
    for q, k, v in zip(queries, key.split(ragged.lengths), value.split(ragged.lengths), strict=True):
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
    return torch.cat(outputs)


def grouped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ragged: Ragged,
    kernel: Callable[[Tensor, Tensor, Tensor], Tensor] = F.scaled_dot_product_attention,
) -> Tensor:
    """One call of `kernel` for each group of consecutive sentences of equal length.

    `kernel` takes queries [n, H, Q, d], keys and values [n, H, L, d] and returns [n, H, Q, d].
    """
    sizes = [n * length for n, length in ragged.groups]
    query_sizes = [n for n, _ in ragged.groups] if len(query) == len(ragged) else sizes
    parts = zip(ragged.groups, query.split(query_sizes), key.split(sizes), value.split(sizes), strict=True)
    outputs = []
    for (n, _), *qkv in parts:
        q, k, v = (x.unflatten(0, (n, -1)).transpose(1, 2) for x in qkv)  # [n, H, Q or L, d]
        outputs.append(kernel(q, k, v).transpose(1, 2).flatten(0, 1))  # [n * Q, H, d]
    return torch.cat(outputs)


def variable_length(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged) -> Tensor:
    """All sentences in one call of torch's variable-length kernel (CUDA, half precision)."""
    from torch.nn.attention.varlen import varlen_attn

    kernel = cast(Callable[..., Tensor], varlen_attn)  # without the tuple that it returns only on request
    longest = max(ragged.lengths)
    if len(query) == len(ragged) and len(query) != len(key):
        ends = torch.arange(len(ragged) + 1, dtype=torch.int32, device=query.device)
        return kernel(query, key, value, ends, ragged.cu_seqlens, 1, longest)
    return kernel(query, key, value, ragged.cu_seqlens, ragged.cu_seqlens, longest, longest)
