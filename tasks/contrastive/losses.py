"""Contrastive losses over sentence vectors, in fp32.

Axes: B rows of a batch, D hidden.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from minbert.errors import UserError


def candidates(anchor: Tensor, positive: Tensor, hard_negative: Tensor, temperature: float) -> Tensor:
    """cos(anchor_i, candidate_j) / temperature for all positives, then all hard negatives of the batch: [B, 2B]."""
    if not temperature > 0:
        raise UserError(f"--temperature: {temperature} is not above 0")
    if not anchor.shape == positive.shape == hard_negative.shape or anchor.dim() != 2:
        shapes = ", ".join(str(list(x.shape)) for x in (anchor, positive, hard_negative))
        raise UserError(f"anchor, positive and hard_negative must have one shape [B, D], not {shapes}")
    rows = F.normalize(anchor.float(), dim=1)
    columns = F.normalize(torch.cat([positive, hard_negative]).float(), dim=1)
    return rows @ columns.t() / temperature


def nt_xent(anchor: Tensor, positive: Tensor, hard_negative: Tensor, temperature: float) -> Tensor:
    """NT-Xent with hard negatives (CBCL, equation 1; SelfCCL, section 4.4): a scalar, the mean over the batch of

        -log( exp(cos(a_i, p_i) / t) / sum_j ( exp(cos(a_i, p_j) / t) + exp(cos(a_i, n_j) / t) ) )

    with t the temperature. It is the multiple negatives ranking loss with scale = 1 / temperature.
    """
    logits = candidates(anchor, positive, hard_negative, temperature)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
