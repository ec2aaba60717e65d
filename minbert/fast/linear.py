"""Linear layers on the CPU: bf16 products of few different heights in training; packed weights for inference.

oneDNN compiles a kernel for every new shape (some 4 ms each), and a ragged batch has a new number of tokens at every
step. In training, zero rows therefore round the height of a product up to one of few values. They belong to no sentence
and are dropped from its result. A product is not cut into blocks of rows, as tall products are faster than short ones
with AMX.

torch reorders an ordinary weight at every product and casts it if the product is in bf16; in fp32 it uses a library
that is slower on some processors with AVX512. Packed weights are cast once and stored in oneDNN's blocked layout, and
what follows a product is fused with it. Their operators are those that torch's compiler generates for frozen weights;
they are not public.

Axes: T rows, D input features, E output features.
"""

import math
import os
import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from minbert.precision import cpu_has, supports_bf16

# oneDNN reads this at its first product; its default of 1024 kernels is too small for a long run.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")


def rounded_height(rows: int) -> int:
    """The next multiple of 32; above 2,048 rows of 64, above 4,096 of 128 and so on: 32 heights for each doubling."""
    step = 32
    while rows > 64 * step:
        step *= 2
    return math.ceil(rows / step) * step


def with_zero_rows(x: Tensor) -> Tensor:
    """x [T, D] in bf16, followed by zero rows up to `rounded_height`."""
    rows, width = x.shape
    padded = x.new_empty(rounded_height(rows), width, dtype=torch.bfloat16)
    padded[:rows] = x
    padded[rows:] = 0
    return padded


class Packed:
    """x W' + b with the concatenated weights of one or more layers: [T, D] to [T, E], all in `dtype`."""

    def __init__(self, layers: Sequence[nn.Linear], dtype: torch.dtype) -> None:
        weights = [layer.weight.to(dtype) for layer in layers]
        weight = torch.cat(weights)  # [E, D]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = torch.cat([layer.bias for layer in layers]).to(dtype)

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        """The product, followed by GELU if `activation` is "gelu"."""
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, activation, [], "none")

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + the product."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")


def can_pack(device: torch.device) -> bool:
    """Whether the operators of `Packed` are available on a device."""
    if device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def packing_is_fast(precision: str) -> bool:
    """Whether this processor computes faster with packed weights.

    In fp32 an encoding takes 0.91 times as long with packed weights as without on an AMD EPYC with AVX512, but 1.14
    times as long on one with AVX2 alone.
    """
    if precision == "bf16":
        return supports_bf16(torch.device("cpu"))
    return cpu_has("avx512")


class FastLinear(nn.Linear):
    """`nn.Linear` for inputs [T, D], with rounded heights under autocast on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """[T, D] to [T, E]."""
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            return _RoundedLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return super().forward(x)


class _RoundedLinear(torch.autograd.Function):
    """Products in bf16, as under autocast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows = len(x)
        half_x = with_zero_rows(x)
        half_weight = weight.bfloat16()
        ctx.save_for_backward(half_x, half_weight)
        return torch.addmm(bias.bfloat16(), half_x, half_weight.t())[:rows]  # [T, E]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rows = len(gradient)
        gradient = with_zero_rows(gradient)
        grad_x = (gradient @ weight)[:rows]
        grad_bias = gradient.sum(0)  # accumulates in fp32 and rounds once
        return grad_x, gradient.t() @ x, grad_bias  # autograd casts them to the dtypes of the inputs
