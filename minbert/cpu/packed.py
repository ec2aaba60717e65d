"""Prepacked weights for inference on the CPU: cast and reordered once.

torch reorders an ordinary weight at every product and casts it if the product is in bf16; in fp32 it uses a library
that is slower on some processors. Packed weights are stored in oneDNN's blocked layout, and GELU is fused with the
product before it. The operators are those that torch's compiler generates for frozen weights; they are not public.

Axes: T rows, D input features, E output features.
"""

import platform
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from minbert.precision import supports_bf16


class Packed:
    """x W' + b with the concatenated weights of one or more layers: [T, D] to [T, E], in `dtype`."""

    def __init__(self, layers: Sequence[nn.Linear], dtype: torch.dtype) -> None:
        weights = [layer.weight.to(dtype) for layer in layers]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)  # [E, D]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = torch.cat([layer.bias for layer in layers]).to(dtype)

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        """The product, followed by GELU if `activation` is "gelu"."""
        x = x.to(self._bias.dtype)
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, activation, [], "none")
        return made


def possible(device: torch.device, precision: str) -> bool:
    """Whether the operators are available on this machine and fast in this precision."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    has = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return device.type == "cpu" and x86 and has and (precision == "fp32" or supports_bf16(device))
