"""One vector a sentence from hidden states: pure functions of (hidden states, ragged batch).

Axes: T tokens in the batch, B sentences, D hidden. `states` holds the embedding layer's output and then every
layer's output, each [T, D], as `BertModel.encode` returns them. `pooler`, the seventh way, needs the model's own
pooling layer: `BertModel.pooled`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from minbert.errors import one_of
from minbert.ragged import Ragged


def cls(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """The last layer's [CLS] rows: [B, D]."""
    return states[-1].index_select(0, ragged.starts)


def mean_of(x: Tensor, ragged: Ragged) -> Tensor:
    """Mean of each sentence's rows, taken in fp32: [T, D] to [B, D]."""
    lengths = torch.tensor(ragged.lengths, device=x.device)
    return torch.segment_reduce(x.float(), "mean", lengths=lengths, axis=0)


def mean(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """Mean of the last layer."""
    return mean_of(states[-1], ragged)


def maximum(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """Element-wise maximum of the last layer."""
    lengths = torch.tensor(ragged.lengths, device=states[-1].device)
    return torch.segment_reduce(states[-1].float(), "max", lengths=lengths, axis=0)


def average_first_last(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """Mean of the first and the last layer, then of the tokens (SelfCCL, section 5.1)."""
    return mean_of(states[1].float() + states[-1].float(), ragged) / 2


def average_static_last(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """Mean of the embedding layer and the last layer, then of the tokens."""
    return mean_of(states[0].float() + states[-1].float(), ragged) / 2


def average_last_two(states: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """Mean of the last two layers, then of the tokens (ConSERT, section 4.1)."""
    return mean_of(states[-2].float() + states[-1].float(), ragged) / 2


POOLERS: dict[str, Callable[[Sequence[Tensor], Ragged], Tensor]] = {
    "cls": cls,
    "mean": mean,
    "max": maximum,
    "avg-first-last": average_first_last,
    "avg-static-last": average_static_last,
    "avg-last-two": average_last_two,
}
NAMES = ("pooler", *POOLERS)


def check(name: str) -> str:
    """The pooler that `name` means, or a `UserError` that lists the poolers."""
    return one_of(name, NAMES, "--pooler")
