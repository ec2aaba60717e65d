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
from minbert.fast.linear import FastLinear, Packed, can_pack, packing_is_fast
from minbert.ragged import Ragged


class FastSelfAttention(SelfAttention):
    """`minbert.attention.SelfAttention` with faster kernels."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ragged: Ragged) -> Tensor:
        """As in the plain module."""
        dropout = self.dropout if self.training else 0.0
        if q.device.type == "cpu":
            return cpu_attention.attend(q, k, v, ragged, dropout)
        return gpu_attention.attend(q, k, v, ragged, dropout)


class PackedLayer:
    """A layer for inference on a CPU, with packed weights and all hidden states in `dtype`.

    Query, key and value are one product; GELU and the sums of the residual connections are fused with the products. In
    bf16 on a Xeon with AMX, fused sums and bf16 hidden states take 7% off the time of an encoding.
    """

    def __init__(self, layer: Layer, dtype: torch.dtype) -> None:
        self.layer = layer
        self.dtype = dtype
        attention = layer.self_attention
        self.projections = Packed([attention.query, attention.key, attention.value], dtype)
        self.attention_dense = Packed([layer.attention_dense], dtype)
        self.interm_dense = Packed([layer.interm_dense], dtype)
        self.out_dense = Packed([layer.out_dense], dtype)

    def __call__(self, x: Tensor, ragged: Ragged) -> Tensor:
        """[T, D] to [T, D]."""
        x = x.to(self.dtype)
        attention = self.layer.self_attention
        q, k, v = self.projections(x).unflatten(1, (3, attention.heads, -1)).unbind(1)  # [T, H, d]
        attended = attention.attend(q, k, v, ragged).flatten(1)  # [T, D]
        x = self.layer.attention_layer_norm(self.attention_dense.add(x, attended))
        intermediate = self.interm_dense(x, "gelu")
        return self.layer.out_layer_norm(self.out_dense.add(x, intermediate))


class FastLayer(Layer):
    """`minbert.attention.Layer`, computed by a `PackedLayer` if one is set."""

    packed: PackedLayer | None = None

    def forward(self, x: Tensor, ragged: Ragged, query_index: Tensor | None = None) -> Tensor:
        """As in the plain module."""
        # with an index few queries are needed, but packed weights hold all three projections
        packed = self.packed  # read once: another thread may unset it
        if packed is None or query_index is not None:
            return super().forward(x, ragged, query_index)
        return packed(x, ragged)


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


_WORTHWHILE = 8192  # tokens in all: packing takes time


@contextmanager
def packed_weights(model: nn.Module, precision: str, tokens: int) -> Iterator[None]:
    """Inside this context, the layers of an accelerated `model` use packed weights; the weights must not change.

    It has no effect if the operators are not available or not fast, outside of inference mode, or for too few `tokens`.
    """
    layers: list[FastLayer] = []
    weight = next(model.parameters())
    worthwhile = tokens >= _WORTHWHILE and torch.is_inference_mode_enabled()
    # a model that its user has made half precision has no LayerNorm for the states of packed layers
    packable = weight.dtype == torch.float32 and can_pack(weight.device)
    if worthwhile and packable and packing_is_fast(precision):
        layers = [module for module in model.modules() if isinstance(module, FastLayer)]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    try:
        for layer in layers:
            layer.packed = PackedLayer(layer, dtype)
        yield
    finally:
        for layer in layers:
            layer.packed = None
