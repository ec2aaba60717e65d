"""BERT's Transformer layer for the CPU: one product for query, key and value, fused dropout and residual addition."""

import torch
from torch import Tensor

from minbert import layers
from minbert.cpu.attention import attend
from minbert.cpu.dropout import FastDropout
from minbert.cpu.linear import FastLinear, linear
from minbert.cpu.packed import Packed
from minbert.ragged import Ragged


class FastSelfAttention(layers.SelfAttention):
    """`minbert.layers.SelfAttention` with one product for query, key and value, with packed weights if set."""

    packed: Packed | None = None  # of query, key and value

    def forward(self, x: Tensor, ragged: Ragged, rows: Tensor | None = None) -> Tensor:
        """As in the plain module."""
        if x.device.type != "cpu":
            return super().forward(x, ragged, rows)
        if rows is not None:
            (q,), (k, v) = self._project(x.index_select(0, rows), ["query"]), self._project(x, ["key", "value"])
        elif self.packed:
            q, k, v = self._by_head(self.packed(x), 3)
        else:
            q, k, v = self._project(x, ["query", "key", "value"])
        return attend(q, k, v, ragged, self.dropout if self.training else 0.0).flatten(1)  # [T or B, D]

    def _project(self, x: Tensor, names: list[str]) -> list[Tensor]:
        """Several projections of [T, D] in one product; returns [T, H, d] for each of `names`."""
        projections = [self.get_submodule(name) for name in names]
        weight, bias = (torch.cat([getattr(one, name) for one in projections]) for name in ("weight", "bias"))
        return self._by_head(linear(x, weight, bias), len(names))

    def _by_head(self, projected: Tensor, count: int) -> list[Tensor]:
        return [part.unflatten(1, (self.heads, -1)) for part in projected.chunk(count, 1)]


class FastLayer(layers.Layer):
    """`minbert.layers.Layer` with fused dropout and residual addition; GELU is fused with packed products."""

    self_attention: FastSelfAttention
    attention_dense: FastLinear
    interm_dense: FastLinear
    out_dense: FastLinear
    dropout: FastDropout

    def pack(self, dtype: torch.dtype) -> None:
        """Use packed weights until `unpack`."""
        attention = self.self_attention
        attention.packed = Packed([attention.query, attention.key, attention.value], dtype)
        for dense in (self.attention_dense, self.interm_dense, self.out_dense):
            dense.packed = Packed([dense], dtype)

    def unpack(self) -> None:
        """Use the ordinary weights again."""
        for part in (self.self_attention, self.attention_dense, self.interm_dense, self.out_dense):
            part.packed = None

    def add(self, x: Tensor, change: Tensor) -> Tensor:
        """x + dropout(change)."""
        return self.dropout.add(x, change)

    def feed_forward(self, x: Tensor) -> Tensor:
        """W2 gelu(W1 x + b1) + b2."""
        return self.out_dense(self.interm_dense.gelu(x))
