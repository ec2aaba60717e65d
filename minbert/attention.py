"""The Transformer layer of BERT (Devlin et al. 2019, section 3) over ragged batches, and its attention.

Attention stays within each sentence. A reference and four faster paths compute the same without dropout: on a GPU by
one call per layer, elsewhere by one call for each group of sentences of equal length.

Axes: T tokens in the batch, B sentences, D hidden, H heads, d = D / H. In a group of n sentences of equal length:
L tokens and Q queries per sentence (Q = L, or 1 if only the [CLS] rows are needed). In a padded batch, L is the length
of the longest sentence.
"""

import math
import warnings
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.ragged import Ragged

GPUS = ("cuda", "meta")
ARGUMENTS = {
    "flash": "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask",
    "efficient": "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p custom_mask_type "
    "compute_log_sumexp",
}
"""The positional arguments that this file passes to torch's private operators, `_flash_attention_forward` and so on."""


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
        queries = x if query_index is None else x.index_select(0, query_index)
        projected = self.query(queries), self.key(x), self.value(x)
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

    def forward(self, x: Tensor, ragged: Ragged, query_index: Tensor | None = None) -> Tensor:
        """[T, D] to [T, D], or to [B, D] with `query_index` [B], the index of one token per sentence."""
        kept = x if query_index is None else x.index_select(0, query_index)
        x = self.attention_layer_norm(self.add(kept, self.attention_dense(self.self_attention(x, ragged, query_index))))
        return self.out_layer_norm(self.add(x, self.feed_forward(x)))

    def add(self, x: Tensor, change: Tensor) -> Tensor:
        """x + dropout(change)."""
        return x + self.dropout(change)

    def feed_forward(self, x: Tensor) -> Tensor:
        """W2 gelu(W1 x + b1) + b2."""
        return self.out_dense(F.gelu(self.interm_dense(x)))


def attend(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """Attention of every query over the tokens of its own sentence, by the fastest path available.

    `query` is [T, H, d], or [B, H, d] for one query per sentence; `key` and `value` are [T, H, d]. The groups are
    fastest if the sentences are sorted by length (`sorted_by_length`). Returns the shape of `query`.
    """
    name = kernel_name(query.device, query.dtype, query.shape[2], dropout)
    if name == "grouped":
        return grouped(query, key, value, ragged, partial(F.scaled_dot_product_attention, dropout_p=dropout))
    if name == "efficient":
        return efficient(query, key, value, ragged)
    return (flash if name == "flash" else padded)(query, key, value, ragged, dropout)


@cache
def kernel_name(device: torch.device, dtype: torch.dtype, width: int, dropout: float = 0.0) -> str:
    """Name of the path that `attend` takes for heads of d = `width`.

    Flash attention (Dao et al. 2022) needs half precision, compute capability 8.0 and a width divisible by 8, the
    memory-efficient kernel (Rabe & Staats 2021) an alignment to 16 bytes and, for bf16, that capability too. With
    dropout and sentences of several lengths, the latter draws another mask in its backward pass than in its forward
    pass, so the batch is padded instead. The meta device counts as a GPU of that capability, so that a step can be
    traced without one.
    """
    if device.type not in GPUS:
        return "grouped"
    half, recent = dtype.itemsize == 2, device.type == "meta" or torch.cuda.get_device_capability(device) >= (8, 0)
    known = dtype in (torch.float32, torch.float16) or (recent and dtype == torch.bfloat16)
    efficient = known and width * dtype.itemsize % 16 == 0 and not dropout
    chosen = "flash" if half and recent and width % 8 == 0 else "efficient" if efficient else ""
    operator = f"_{chosen}_attention_forward"
    if chosen and _arguments(operator) != ARGUMENTS[chosen]:
        changed = f"torch {torch.__version__} has changed the arguments of {operator}"
        warnings.warn(f"{changed}; attention pads the batch instead, which is slower", stacklevel=2)
        chosen = ""
    return chosen or "padded"


def sorted_by_length(ragged: Ragged) -> tuple[Ragged, Tensor, Tensor] | None:
    """`Ragged.by_length` where attention works by groups of equal length; None on a GPU, where any order is as fast."""
    return None if ragged.ids.device.type in GPUS else ragged.by_length


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


def _query_ends(query: Tensor, ragged: Ragged) -> tuple[Tensor, int]:
    """Cumulative numbers of queries of the sentences, int32 [B + 1], and the largest number of a sentence."""
    if len(query) == len(ragged.ids):
        return ragged.cu_seqlens, max(ragged.lengths)
    return torch.arange(len(ragged) + 1, dtype=torch.int32, device=query.device), 1


def flash(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """All sentences in one call of flash attention, which `torch.nn.attention.varlen` offers without dropout."""
    ends, max_queries = _query_ends(query, ragged)
    longest = max(ragged.lengths)
    kernel = torch.ops.aten._flash_attention_forward
    output: Tensor = kernel(query, key, value, ends, ragged.cu_seqlens, max_queries, longest, dropout, False, False)[0]
    return output


def efficient(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged) -> Tensor:
    """All sentences in one call of the memory-efficient kernel, without dropout, for older GPUs and for fp32."""
    ends, max_queries = _query_ends(query, ragged)
    qkv = (x.unsqueeze(0) for x in (query, key, value))  # [1, T or B, H, d]
    limits = None, ends, ragged.cu_seqlens, max_queries, max(ragged.lengths)
    kernel = torch.ops.aten._efficient_attention_forward
    output: Tensor = kernel(*qkv, *limits, 0.0, 0, torch.is_grad_enabled())[0]
    return output.squeeze(0)


def padded(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """All sentences in one call of torch's public attention, padded to the longest."""
    tokens, cells, real = ragged.padding
    alone = len(query) == len(ragged)  # one query per sentence
    together = torch.stack([key, value] if alone else [query, key, value], dim=1)  # [T, 2 or 3, H, d]
    *q, k, v = together.index_select(0, tokens).unflatten(0, (len(ragged), -1)).permute(2, 0, 3, 1, 4)  # [B, H, L, d]
    queries = query.unsqueeze(2) if alone else q[0]  # [B, H, 1 or L, d]
    output = F.scaled_dot_product_attention(queries, k, v, attn_mask=real[:, None, None], dropout_p=dropout)
    output = output.transpose(1, 2).flatten(0, 1)  # [B or B * L, H, d]
    return output if alone else output.index_select(0, cells)


def _arguments(operator: str) -> str:
    """The positional arguments of an operator of torch; empty if it has no such operator."""
    packet = getattr(torch.ops.aten, operator, None)
    return "" if packet is None else " ".join(a.name for a in packet.default._schema.arguments if not a.kwarg_only)
