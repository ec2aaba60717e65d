"""Which texts a contrastive step encodes, and which loss it takes.

Axes: B triplets of a batch, D hidden.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.bert import BertModel
from minbert.encode import vectors
from minbert.training.loop import Context
from minbert.training.plan import Step
from tasks.contrastive.losses import candidates
from tasks.examples import Triplet


@dataclass
class TripletObjective:
    """NT-Xent with hard negatives over one ragged batch of 3B sentences (CBCL, equation 1)."""

    triplets: Triplet
    pooler: str
    temperature: float

    def backward(self, model: nn.Module, batch: Step, context: Context) -> dict[str, Tensor]:
        """Gradients of the mean loss; reports the loss and how often the own positive is the nearest candidate."""
        assert isinstance(model, BertModel)
        ragged = self.triplets.ragged(batch.rows).to(context.device)
        context.seed_dropout("encoder")
        with context.autocast():
            encoded = vectors(model, ragged, self.pooler)
        anchor, positive, negative = encoded.chunk(3)
        logits = candidates(anchor, positive, negative, self.temperature)  # [B, 2B]
        own = torch.arange(len(logits), device=logits.device)
        loss = F.cross_entropy(logits, own)
        loss.backward()
        accuracy = (logits.detach().argmax(1) == own).float().mean()
        return {"loss": loss.detach(), "accuracy": accuracy}
