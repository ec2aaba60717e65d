"""Poolers: one vector per sentence, as a pure function of hidden states and the ragged batch.

Axes: T tokens in the batch, B sentences, D hidden. `states` holds the embedding layer's output and then every
layer's output, each [T, D], as `BertModel.encode` returns them. One more pooler, `pooler`, uses the model's own
pooling layer; it is computed by `BertModel.pooled`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from minbert.ragged import Ragged


def cls(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """The last layer's [CLS] rows: [B, D]."""
    return states[-1].index_select(0, ragged.starts)


def mean_of(x: Tensor, ragged: Ragged) -> Tensor:
    """Mean over each sentence's tokens, computed in fp32: [T, D] to [B, D]."""
    return torch.segment_reduce(x.float(), "mean", lengths=ragged.lengths_on_device, axis=0, unsafe=True)


def mean(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """Mean of the last layer over each sentence's tokens: [B, D]."""
    return mean_of(states[-1], ragged)


def maximum(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """Element-wise maximum of the last layer over each sentence's tokens: [B, D]. Equal maxima share the gradient."""
    x = states[-1].float()
    sentence = torch.repeat_interleave(ragged.lengths_on_device, output_size=len(x))
    maxima = x.new_full((len(ragged), x.shape[1]), -math.inf)
    return maxima.scatter_reduce(0, sentence[:, None].expand_as(x), x, "amax")


def average(states: Sequence[Tensor], ragged: Ragged, layers: tuple[int, int]) -> Tensor:
    """Mean of two hidden states, then over each sentence's tokens: [B, D]. `layers` are their indices in `states`."""
    first, second = layers
    # the halving comes last, on fewer numbers
    return mean_of(states[first].float() + states[second].float(), ragged) / 2


AVERAGES = {
    "avg-first-last": (1, -1),  # the first and the last layer (SelfCCL, section 5.1)
    "avg-static-last": (0, -1),  # the embedding layer and the last layer
    "avg-last-two": (-2, -1),  # the last two layers (ConSERT, section 4.1)
}
"""The poolers that average two hidden states, with the indices of the two in `states`."""
POOLERS: dict[str, Callable[[Sequence[Tensor], Ragged], Tensor]] = {
    "cls": cls,
    "mean": mean,
    "max": maximum,
    **{name: partial(average, layers=layers) for name, layers in AVERAGES.items()},
}
NAMES = ("pooler", *POOLERS)
"""`pooler`, the model's own pooling layer, and those of this file."""
