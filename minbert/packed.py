"""Weights cast and laid out once, for inference on the CPU.

torch lays an ordinary weight out anew at every product, casts it where the product is in bf16, and in fp32 takes a
library that is slower on some processors. While `packed` holds, the products of an encoder's layers take weights in
oneDNN's own blocks, and GELU is computed in the product before it. The operators are those that torch's compiler
writes for frozen weights; they have no public name.

Axes: T rows, D columns in, E columns out.
"""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from minbert.precision import supports_bf16

if TYPE_CHECKING:
    from minbert.bert import BertModel, Layer

_WORTHWHILE = 8192  # tokens: packing takes about as long as packed weights save over some 3,000


class Packed:
    """x W' + b with the weights of layers side by side: [T, D] to [T, E], in the number format of the weights."""

    def __init__(self, layers: Sequence[nn.Linear], dtype: torch.dtype) -> None:
        weights = [layer.weight.to(dtype) for layer in layers]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)  # [E, D]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = torch.cat([layer.bias for layer in layers]).to(dtype)

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        """The product, with "gelu" of it where that is asked for."""
        x = x.to(self._bias.dtype)
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, activation, [], "none")
        return made


@contextmanager
def packed(model: "BertModel", precision: str, tokens: int) -> Iterator[None]:
    """While this holds, the layers of `model` use packed weights, and weights must not change.

    Nothing changes where the operators are not to be had, outside of inference mode, and for few `tokens`.
    """
    if tokens < _WORTHWHILE or not torch.is_inference_mode_enabled() or not _possible(model.device, precision):
        yield
        return
    layers = cast("list[Layer]", list(model.bert_layers))
    try:
        for layer in layers:
            layer.pack(torch.bfloat16 if precision == "bf16" else torch.float32)
        yield
    finally:
        for layer in layers:
            layer.unpack()


def _possible(device: torch.device, precision: str) -> bool:
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    has = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return device.type == "cpu" and x86 and has and (precision == "fp32" or supports_bf16(device))
