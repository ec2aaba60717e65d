"""The Transformer layer of BERT (Devlin et al. 2019, section 3) over ragged batches.

Axes: T tokens in the batch, B sentences, D hidden, H heads, d = D / H.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from minbert.attention import attend
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
