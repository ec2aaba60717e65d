"""Linear layers on the CPU: bf16 products in blocks of rows with few different shapes; packed weights for inference.

oneDNN compiles a kernel for every new shape (some 4 ms each), and a ragged batch has a new number of tokens at
every step. Rows are therefore split into blocks whose heights are multiples of 32, so that all shapes occur early in
a run. Nothing is padded. For outputs, the last block overlaps the one before it, so a few rows are computed twice.
For weight gradients, which are sums over rows, the remainder below a multiple of 32 is a block of its own.

torch reorders an ordinary weight at every product and casts it if the product is in bf16; in fp32 it uses a library
that is slower on some processors. Packed weights are cast once and stored in oneDNN's blocked layout, and GELU is fused
with the product before it. Their operators are those that torch's compiler generates for frozen weights; they are not
public.

Axes: T rows, D input features, E output features.
"""

import math
import os
import platform
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from minbert.precision import supports_bf16

# oneDNN reads this at its first product; its default of 1024 kernels is too small for a long run.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")

_BLOCK = 2048  # rows
_STEP = 32  # rows; the heights of blocks are multiples of it


def heights(rows: int) -> list[int]:
    """Heights of disjoint blocks of `rows` rows, for sums: full blocks, then a multiple of 32, then the remainder."""
    full, rest = divmod(rows, _BLOCK)
    remainder = rest % _STEP
    last = [rest - remainder, remainder]
    return [_BLOCK] * full + [height for height in last if height]


def spans(rows: int) -> list[slice]:
    """Blocks of equal height, a multiple of 32, that cover `rows` rows; the last may overlap the one before.

    Fewer than 32 rows are one block.
    """
    if rows < _STEP or (rows <= _BLOCK and rows % _STEP == 0):
        return [slice(0, rows)]
    count = max(2, math.ceil(rows / _BLOCK))
    height = math.ceil(rows / (count * _STEP)) * _STEP
    # rows in the overlap are computed twice, to the same values; a block of another height would need another kernel
    starts = [min(number * height, rows - height) for number in range(count)]
    return [slice(start, start + height) for start in starts]


def blocked_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W' + b for [T, D], [E, D], [E]: in blocks under bf16 autocast on the CPU, else `F.linear`."""
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    blocked: Tensor = _BlockedLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return blocked


class Packed:
    """x W' + b with the concatenated weights of one or more layers: [T, D] to [T, E], in `dtype`."""

    def __init__(self, layers: Sequence[nn.Linear], dtype: torch.dtype) -> None:
        weights = [layer.weight.to(dtype) for layer in layers]
        weight = torch.cat(weights)  # [E, D]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = torch.cat([layer.bias for layer in layers]).to(dtype)

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        """The product, followed by GELU if `activation` is "gelu"."""
        x = x.to(self._bias.dtype)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, activation, [], "none")
        return product


def can_pack(device: torch.device, precision: str) -> bool:
    """Whether the operators are available on this machine and fast in this precision."""
    if device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return precision == "fp32" or supports_bf16(device)


class FastLinear(nn.Linear):
    """`nn.Linear` for inputs [T, D], computed by `blocked_linear`, or with packed weights if set."""

    packed: Packed | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[T, D] to [T, E]."""
        if self.packed:
            return self.packed(x)
        return blocked_linear(x, self.weight, self.bias)

    def gelu(self, x: Tensor) -> Tensor:
        """GELU of `forward`."""
        if self.packed:
            return self.packed(x, "gelu")
        return F.gelu(self(x))


class _BlockedLinear(torch.autograd.Function):
    """Products in bf16, as under autocast; the weight gradients of the blocks are summed in fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        half_x = x.bfloat16()
        half_weight = weight.bfloat16()
        half_bias = bias.bfloat16()
        ctx.save_for_backward(half_x, half_weight)
        ctx.dtype = x.dtype
        out = half_x.new_empty(len(x), len(weight))  # [T, E]
        for span in spans(len(x)):
            torch.addmm(half_bias, half_x[span], half_weight.t(), out=out[span])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradient.bfloat16()
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            for span in spans(len(x)):
                torch.mm(gradient[span], weight, out=grad_x[span])
            grad_x = grad_x.to(ctx.dtype)
        grad_weight = _weight_gradient(gradient, x)
        grad_bias = gradient.sum(0).float()  # the sum accumulates in fp32 and rounds once
        return grad_x, grad_weight, grad_bias


def _weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """gradient' x for [T, E] and [T, D]: fp32 [E, D]."""
    blocks = heights(len(x))
    products = []
    for grad_rows, x_rows in zip(gradient.split(blocks), x.split(blocks), strict=True):
        products.append(grad_rows.t() @ x_rows)
    total = products[0].float()
    for product in products[1:]:
        total += product.float()  # cast first: sums of mixed dtypes are slow
    return total
