"""The fast modules that `accelerate` puts in place of a model's plain ones, and packed weights for inference.

A fast module is a subclass of its plain module, with the same parameters and state-dict names. What is fast on a CPU
falls back to the plain computation elsewhere, so an accelerated model can be moved.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from minbert.attention import Layer, SelfAttention
from minbert.bert import BertModel
from minbert.fast import cpu_attention, gpu_attention
from minbert.fast.dropout import FastDropout
from minbert.fast.linear import FastLinear, Packed, can_pack, rounded_linear
from minbert.ragged import Ragged


class FastSelfAttention(SelfAttention):
    """`minbert.attention.SelfAttention` with faster kernels; on a CPU, one product for query, key and value."""

    packed: Packed | None = None  # of query, key and value

    def forward(self, x: Tensor, ragged: Ragged, query_index: Tensor | None = None) -> Tensor:
        """As in the plain module."""
        if x.device.type != "cpu":
            return super().forward(x, ragged, query_index)
        if query_index is not None:
            # packed weights hold all three projections, but few queries are needed here
            (q,) = self._project(x.index_select(0, query_index), [self.query])
            k, v = self._project(x, [self.key, self.value])
        elif self.packed:
            q, k, v = self._by_head(self.packed(x), 3)
        else:
            q, k, v = self._project(x, [self.query, self.key, self.value])
        return self.attend(q, k, v, ragged).flatten(1)  # [T or B, D]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ragged: Ragged) -> Tensor:
        """As in the plain module."""
        dropout = self.dropout if self.training else 0.0
        if q.device.type == "cpu":
            return cpu_attention.attend(q, k, v, ragged, dropout)
        return gpu_attention.attend(q, k, v, ragged, dropout)

    def _project(self, x: Tensor, projections: list[nn.Linear]) -> list[Tensor]:
        """Several projections of [T, D] in one product; returns [T, H, d] for each."""
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        return self._by_head(rounded_linear(x, weight, bias), len(projections))

    def _by_head(self, projected: Tensor, count: int) -> list[Tensor]:
        return [part.unflatten(1, (self.heads, -1)) for part in projected.chunk(count, 1)]


class FastLayer(Layer):
    """`minbert.attention.Layer` with fused dropout and residual addition; GELU is fused with packed products."""

    self_attention: FastSelfAttention
    attention_dense: FastLinear
    interm_dense: FastLinear
    out_dense: FastLinear
    dropout: FastDropout

    def pack(self, dtype: torch.dtype) -> None:
        """Use packed weights until `unpack`."""
        heads = self.self_attention
        heads.packed = Packed([heads.query, heads.key, heads.value], dtype)
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


FAST: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FastLinear,
    nn.Dropout: FastDropout,
    SelfAttention: FastSelfAttention,
    Layer: FastLayer,
}
"""The fast class of each plain module class."""


def accelerate(model: BertModel) -> BertModel:
    """Replace an encoder's modules by their fast versions, in place; returns the encoder."""
    for module in model.modules():
        # A fast class has the attributes of its plain class, so the object itself can change its class. Its parameters
        # stay the same objects, and optimizers of them stay valid, which they would not with new modules.
        module.__class__ = FAST.get(type(module), type(module))
    return model


_WORTHWHILE = 8192  # tokens; packing pays from some 3,000


@contextmanager
def packed_weights(model: nn.Module, precision: str, tokens: int) -> Iterator[None]:
    """Inside this context, the layers of an accelerated `model` use packed weights; the weights must not change.

    It has no effect if the operators are not available, outside of inference mode, or for too few `tokens`.
    """
    layers: list[FastLayer] = []
    worthwhile = tokens >= _WORTHWHILE and torch.is_inference_mode_enabled()
    if worthwhile and can_pack(next(model.parameters()).device, precision):
        layers = [module for module in model.modules() if isinstance(module, FastLayer)]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    try:
        for layer in layers:
            layer.pack(dtype)
        yield
    finally:
        for layer in layers:
            layer.unpack()
