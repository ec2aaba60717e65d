"""Stage one's losses as the papers write them: one term at a time, in float64, of arrays or of tensors."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

Vectors = Tensor | np.ndarray | Sequence[Tensor | np.ndarray]


def _cosine(u: Tensor | np.ndarray, v: Tensor | np.ndarray) -> Tensor:
    u = torch.as_tensor(u).double()
    v = torch.as_tensor(v).double()
    return (u * v).sum() / torch.sqrt((u * u).sum() * (v * v).sum())


def cosine(u: Tensor | np.ndarray, v: Tensor | np.ndarray) -> float:
    return float(_cosine(u, v))


def nt_xent(anchors: Vectors, positives: Vectors, *negatives: Vectors, temperature: float) -> Tensor:
    """CBCL, equation 1: hard negatives are further candidates of every row."""
    terms = []
    candidates = list(chain(positives, *negatives))
    for anchor, positive in zip(anchors, positives, strict=True):
        total = sum(torch.exp(_cosine(anchor, other) / temperature) for other in candidates)
        terms.append(-torch.log(torch.exp(_cosine(anchor, positive) / temperature) / total))
    return torch.stack(terms).mean()


def two_views(first: Vectors, second: Vectors, temperature: float) -> Tensor:
    """ConSERT, equation 1: the candidates of a view are all other views of the batch."""
    terms = []
    every = [*first, *second]
    for i, view in enumerate(every):
        others = every[:i] + every[i + 1 :]
        total = sum(torch.exp(_cosine(view, other) / temperature) for other in others)
        positive = every[(i + len(first)) % len(every)]
        terms.append(-torch.log(torch.exp(_cosine(view, positive) / temperature) / total))
    return torch.stack(terms).mean()
