"""What is there for speed on a CPU alone: `accelerate` swaps the parts of a plain model for fast ones, `plain` back.

A fast part is a subclass of its plain twin and keeps its parameters, names and state. On any other device it computes
what its twin does, and so does an accelerated model that is moved there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from minbert.cpu.dropout import FastDropout
from minbert.cpu.layers import FastLayer, FastSelfAttention
from minbert.cpu.linear import FastLinear
from minbert.cpu.packed import possible
from minbert.layers import Layer, SelfAttention

M = TypeVar("M", bound=nn.Module)

FAST: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FastLinear,
    nn.Dropout: FastDropout,
    SelfAttention: FastSelfAttention,
    Layer: FastLayer,
}
"""The fast twin of each plain part."""

_WORTHWHILE = 8192  # tokens: packing takes about as long as packed weights save over some 3,000


def accelerate(model: M) -> M:
    """The same model, its parts swapped for their fast twins in place; an optimizer of it may exist already."""
    return _swap(model, FAST)


def plain(model: M) -> M:
    """The same model, its fast parts swapped for their plain twins in place."""
    return _swap(model, {fast: twin for twin, fast in FAST.items()})


def _swap(model: M, twins: Mapping[type[nn.Module], type[nn.Module]]) -> M:
    for module in model.modules():
        module.__class__ = twins.get(type(module), type(module))
    return model


@contextmanager
def packed_weights(model: nn.Module, precision: str, tokens: int) -> Iterator[None]:
    """While this holds, the layers of an accelerated `model` use packed weights, and weights must not change.

    Nothing changes where the operators are not to be had, outside of inference mode, and for few `tokens`.
    """
    found: list[FastLayer] = []
    worthwhile = tokens >= _WORTHWHILE and torch.is_inference_mode_enabled()
    if worthwhile and possible(next(model.parameters()).device, precision):
        found = [module for module in model.modules() if isinstance(module, FastLayer)]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    try:
        for layer in found:
            layer.pack(dtype)
        yield
    finally:
        for layer in found:
            layer.unpack()
