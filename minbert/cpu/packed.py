"""Weights cast and laid out once, for inference on the CPU.

torch lays an ordinary weight out anew at every product, casts it where the product is in bf16, and in fp32 takes a
library that is slower on some processors. Packed weights lie in oneDNN's own blocks, and GELU is computed in the
product before it. The operators are those that torch's compiler writes for frozen weights; they have no public name.

Axes: T rows, D columns in, E columns out.
"""

import platform
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from minbert.precision import supports_bf16


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


def possible(device: torch.device, precision: str) -> bool:
    """Whether this machine has the operators, and they are fast in this number format."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    has = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return device.type == "cpu" and x86 and has and (precision == "fp32" or supports_bf16(device))
