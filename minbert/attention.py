"""The Transformer layer of BERT (Devlin et al. 2019, section 3) over ragged batches, and its attention.

Attention stays within each sentence. `reference` is the formula; `grouped` and `padded` compute it by torch's
`scaled_dot_product_attention`. `minbert.fast` has faster ones for the CPU and for CUDA.

Axes: T tokens in the batch, B sentences, D hidden, H heads, d = D / H. In a group of n sentences of equal length:
L tokens and Q queries per sentence (Q = L, or 1 if only the [CLS] rows are needed). In a padded batch, L is the length
of the longest sentence.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.ragged import Ragged, SortedBatch, inverse


class SelfAttention(nn.Module):
    """Multi-head self-attention without its output projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, ragged: Ragged, query_index: Tensor | None = None) -> Tensor:
        """Attention within each sentence: [T, D] to [T, D].

        With `query_index` [B], the index of one token per sentence, only these tokens are queries: [T, D] to [B, D].
        """
        queries = x
        if query_index is not None:
            queries = x.index_select(0, query_index)
        q = self.query(queries).unflatten(1, (self.heads, -1))  # [T or B, H, d]
        k = self.key(x).unflatten(1, (self.heads, -1))  # [T, H, d]
        v = self.value(x).unflatten(1, (self.heads, -1))  # [T, H, d]
        return self.attend(q, k, v, ragged).flatten(1)  # [T or B, D]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ragged: Ragged) -> Tensor:
        """The function `attend` with dropout in training: a method, as `minbert.fast` has another one."""
        dropout = self.dropout if self.training else 0.0
        return attend(q, k, v, ragged, dropout)


class Layer(nn.Module):
    """Self-attention, then a feed-forward network, each followed by a residual connection and layer normalisation."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.self_attention = SelfAttention(config)
        self.attention_dense = nn.Linear(width, width)
        self.attention_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.interm_dense = nn.Linear(width, config.intermediate_size)
        self.out_dense = nn.Linear(config.intermediate_size, width)
        self.out_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, ragged: Ragged, query_index: Tensor | None = None) -> Tensor:
        """[T, D] to [T, D], or to [B, D] with `query_index` [B], the index of one token per sentence."""
        residual = x
        if query_index is not None:
            residual = x.index_select(0, query_index)
        attended = self.attention_dense(self.self_attention(x, ragged, query_index))
        x = self.attention_layer_norm(residual + self.dropout(attended))
        intermediate = F.gelu(self.interm_dense(x))
        return self.out_layer_norm(x + self.dropout(self.out_dense(intermediate)))


def reference(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged) -> Tensor:
    """softmax(q k' / sqrt(d)) v, one sentence at a time (Vaswani et al. 2017, equation 1).

    `query` is [T, H, d], or [B, H, d] for one query per sentence; `key` and `value` are [T, H, d]. Returns the shape of
    `query`, as every attention function here does.
    """
    # one query for each sentence, or one for each token: the same if every sentence has one token
    one_query = len(query) == len(ragged)
    queries = query.split(1) if one_query else query.split(ragged.lengths)
    outputs = []
    for q, k, v in zip(queries, key.split(ragged.lengths), value.split(ragged.lengths), strict=True):
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
    return torch.cat(outputs)


def attend(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """Attention of every query over the tokens of its own sentence, with dropout of the probabilities."""
    if works_by_groups(query.device):
        return grouped(query, key, value, ragged, dropout)
    return padded(query, key, value, ragged, dropout)


def works_by_groups(device: torch.device) -> bool:
    """Whether attention takes one call for each group of sentences of equal length; else one for the whole batch.

    A GPU would wait for the start of each small call; a CPU would compute the padding.
    """
    return device.type == "cpu"


def grouped(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """One call for each group of consecutive sentences of equal length: the fewest if they are sorted by length."""
    sizes = rows_of_groups(key, ragged)
    queries = query.split(rows_of_groups(query, ragged))
    parts = zip(ragged.groups, queries, key.split(sizes), value.split(sizes), strict=True)
    outputs = []
    for (n, _), q, k, v in parts:
        q = _by_sentence(q, n)  # [n, H, Q, d]
        k = _by_sentence(k, n)  # [n, H, L, d]
        v = _by_sentence(v, n)
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)  # [n, H, Q, d]
        outputs.append(out.transpose(1, 2).flatten(0, 1))  # [n * Q, H, d]
    return torch.cat(outputs)


def rows_of_groups(x: Tensor, ragged: Ragged) -> list[int]:
    """How many rows of `x`, which has one for each token or one for each sentence, belong to each group."""
    # where every sentence has one token, both are the same
    if len(x) == len(ragged):
        return [n for n, _ in ragged.groups]
    return [n * length for n, length in ragged.groups]


def _by_sentence(x: Tensor, n: int) -> Tensor:
    """[n * L, H, d] to [n, H, L, d]."""
    return x.unflatten(0, (n, -1)).transpose(1, 2)


def padded(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """All sentences in one call, padded to the longest."""
    tokens, cells, real = ragged.padding
    mask = real[:, None, None]  # [B, 1, 1, L]
    attention = partial(F.scaled_dot_product_attention, attn_mask=mask, dropout_p=dropout)
    one_query = len(query) == len(ragged)
    # stacked, so that one lookup pads them all
    stacked = torch.stack([key, value] if one_query else [key, value, query], dim=1)  # [T, 2 or 3, H, d]
    stacked = stacked.index_select(0, tokens).unflatten(0, (len(ragged), -1))  # [B, L, 2 or 3, H, d]
    k, v, *q = stacked.permute(2, 0, 3, 1, 4)  # [B, H, L, d]
    if one_query:
        return attention(query.unsqueeze(2), k, v).squeeze(2)  # [B, H, d]
    output = attention(q[0], k, v).transpose(1, 2).flatten(0, 1)  # [B * L, H, d]
    return output.index_select(0, cells)


def sorted_by_length(ragged: Ragged) -> SortedBatch | None:
    """`Ragged.by_length` where attention works by groups; None elsewhere, where any order is as fast."""
    if not works_by_groups(ragged.ids.device):
        return None
    return ragged.by_length


def in_length_order(encode: Callable[[Ragged], Tensor], ragged: Ragged) -> Tensor:
    """`encode(ragged)`, computed on the batch sorted by length where that is faster: [B, D] in the given order."""
    ordered = sorted_by_length(ragged)
    if ordered is None:
        return encode(ragged)
    return encode(ordered.ragged).index_select(0, inverse(ordered.sentence_order))
