"""The adversarial view: fast gradient value on the token embeddings (ConSERT, section 3.2).

Axes: T tokens in the batch, D hidden.
"""

import numpy as np
import torch
from torch import Tensor

from minbert.ragged import Ragged


def adversarial(gradient: Tensor, ragged: Ragged, eps: float, *, protect_special: bool = False) -> Tensor:
    """What to add to the embeddings: eps * g / |g| for each token's gradient g, 0 where g is 0. [T, D], no graph.

    `gradient` [T, D] is that of the supervised loss with regard to the embedding layer's output. `protect_special`
    leaves the first and the last token of each sentence alone; the released code, as the paper, perturbs every token.
    """
    rows = gradient.detach().float()
    largest = rows.abs().amax(1, keepdim=True)
    rows = rows / largest.where(largest > 0, 1.0)  # the squares of a small gradient would vanish
    change = eps * rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(1.0)  # the norm is 0, or above
    if protect_special:
        ends = np.cumsum(ragged.lengths)
        special = torch.from_numpy(np.concatenate([ends - ragged.lengths, ends - 1])).to(change.device)
        change = change.index_fill(0, special, 0.0)
    return change.to(gradient.dtype)
