"""Faster modules for the CPU: `accelerate` puts them in place of a model's plain modules, `plain` reverts this.

A fast module is a subclass of its plain module, with the same parameters and state-dict names. On other devices it
falls back to the plain computation, so an accelerated model can be moved.
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
"""The fast class of each plain module class."""

_WORTHWHILE = 8192  # tokens; the break-even point is at some 3,000


def accelerate(model: M) -> M:
    """Replace a model's modules by their fast versions, in place. Existing optimizers of it stay valid."""
    return _swap(model, FAST)


def plain(model: M) -> M:
    """Replace a model's fast modules by their plain versions, in place."""
    return _swap(model, {fast: twin for twin, fast in FAST.items()})


def _swap(model: M, twins: Mapping[type[nn.Module], type[nn.Module]]) -> M:
    for module in model.modules():
        module.__class__ = twins.get(type(module), type(module))
    return model


@contextmanager
def packed_weights(model: nn.Module, precision: str, tokens: int) -> Iterator[None]:
    """Inside this context, the layers of an accelerated `model` use packed weights; the weights must not change.

    It has no effect if the operators are not available, outside of inference mode, or for too few `tokens`.
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
