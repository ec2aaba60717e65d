"""Contrastive losses over sentence vectors, in fp32 (in float64 for float64 vectors).

Axes: B rows of a batch, N texts with two views each, D hidden, C candidates of a row: its own positive is number i.
Every loss is a mean over its rows. A temperature t divides cosines: scale = 1 / t in other libraries' words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from minbert.errors import UserError


def candidate_logits(anchor: Tensor, positive: Tensor, hard_negative: Tensor | None, temperature: float) -> Tensor:
    """cos(anchor_i, candidate_j) / temperature for all positives, then all hard negatives of the batch: [B, C].

    C is 2B, or B without hard negatives.
    """
    candidates = [positive]
    if hard_negative is not None:
        candidates.append(hard_negative)
    _check_rows("anchor, positive and hard_negative", anchor, *candidates)
    return _cosines(anchor, torch.cat(candidates)) / temperature


def nt_xent(anchor: Tensor, positive: Tensor, hard_negative: Tensor | None, temperature: float) -> Tensor:
    """NT-Xent with hard negatives (CBCL, equation 1; SelfCCL, section 4.4): a scalar, the mean over the batch of

        -log( exp(cos(a_i, p_i) / t) / sum_j ( exp(cos(a_i, p_j) / t) + exp(cos(a_i, n_j) / t) ) )

    with t the temperature: the multiple negatives ranking loss with scale = 1 / temperature. Without hard negatives
    the second term is absent.
    """
    return nt_xent_from_logits(candidate_logits(anchor, positive, hard_negative, temperature))


def nt_xent_from_logits(logits: Tensor) -> Tensor:
    """`nt_xent` from its logits [B, C], as `candidate_logits` gives them."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


@torch.no_grad()
def nearest_share(logits: Tensor) -> Tensor:
    """The share of rows whose own candidate is above every other in logits [B, C]; a tie is a miss."""
    positives = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
    negatives = logits.masked_fill(positives, -torch.inf)
    return (logits.diagonal() > negatives.amax(1)).float().mean()


def view_logits(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """cos(r_i, r_k) / temperature of each of the 2N views with all of them: [2N, 2N], its other view in column i.

    The logit of a view with itself is -inf. `nt_xent_from_logits` of this is NT-Xent over two views of N texts
    (ConSERT, equation 1; SimCLR), the mean over the 2N views r of

        -log( exp(cos(r_i, r_j) / t) / sum_{k != i} exp(cos(r_i, r_k) / t) )

    with r_j the other view of the same text and t the temperature: 2(N - 1) negatives each. One text has none, so its
    loss is 0 and has no gradient.
    """
    _check_rows("the two views", first, second)
    views = torch.cat([first, second])
    logits = _cosines(views, torch.cat([second, first])) / temperature
    itself = torch.eye(len(views), dtype=torch.bool, device=views.device).roll(len(first), 1)
    return logits.masked_fill(itself, -torch.inf)


def margin_contrastive(u: Tensor, v: Tensor, similar: Tensor, margin: float) -> Tensor:
    """Contrastive loss over pairs (SelfCCL, section 3.1): the mean of

        D^2 / 2 where the pair is similar, max(0, margin - D)^2 / 2 where it is not, with D = ||u - v||.

    `similar` is bool [B]. (The paper's text gives similar pairs Y = 1, its formula Y = 0.)
    """
    _check_rows("u and v", u, v)
    distance = _distance(u, v)
    shortfall = F.relu(margin - distance)
    return torch.where(similar, distance, shortfall).square().mean() / 2


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Triplet loss (SelfCCL, section 3.1; SBERT, section 3): the mean of

    max(0, D(a, p) - D(a, n) + margin), with D = ||x - y||.
    """
    _check_rows("anchor, positive and negative", anchor, positive, negative)
    gap = _distance(anchor, positive) - _distance(anchor, negative)
    return F.relu(gap + margin).mean()


def softmax_features(u: Tensor, v: Tensor) -> Tensor:
    """[u; v; |u - v|] (SBERT, section 3; ConSERT, equation 2), which a classifier of pairs sees: [B, 3D]."""
    u = _full_precision(u)
    v = _full_precision(v)
    return torch.cat([u, v, (u - v).abs()], dim=1)


def _full_precision(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _cosines(x: Tensor, y: Tensor) -> Tensor:
    """Cosine of every row of `x` with every row of `y`, in full precision whatever the surrounding autocast."""
    with torch.autocast(x.device.type, enabled=False):
        return F.normalize(_full_precision(x), dim=1) @ F.normalize(_full_precision(y), dim=1).t()


def _distance(x: Tensor, y: Tensor) -> Tensor:
    return torch.linalg.vector_norm(_full_precision(x) - _full_precision(y), dim=1)


def _check_rows(names: str, *tensors: Tensor) -> None:
    shapes = [list(x.shape) for x in tensors]
    if len(shapes[0]) != 2 or shapes.count(shapes[0]) != len(shapes):
        raise UserError(f"{names} must have one shape [B, D], not {', '.join(map(str, shapes))}")
