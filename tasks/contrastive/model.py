"""What stage one trains: the encoder, and what helps it in training alone.

Axes: B sentences, D hidden.
"""

import torch
from torch import Tensor, nn

from minbert.bert import BertModel
from minbert.encode import vectors
from minbert.ragged import Ragged
from tasks.contrastive.losses import softmax_features


class ContrastiveModel(nn.Module):
    """An encoder, with a projection of its vectors (SimCSE, section 6.3) or a classifier of pairs (SBERT, section 3).

    Neither of them goes into the encoder folder.
    """

    def __init__(self, encoder: BertModel, pooler: str, *, projection: bool = False, classes: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = pooler
        width = encoder.config.hidden_size
        self.projection = nn.Linear(width, width) if projection else None
        self.classifier = nn.Linear(3 * width, classes) if classes else None
        for layer in (self.projection, self.classifier):
            if layer is not None:
                nn.init.normal_(layer.weight, std=encoder.config.initializer_range)
                nn.init.zeros_(layer.bias)

    def vectors(self, ragged: Ragged) -> Tensor:
        """The vectors that the loss sees: [B, D]."""
        return self.projected(vectors(self.encoder, ragged, self.pooler))

    def projected(self, pooled: Tensor) -> Tensor:
        """tanh(W x + b) where there is a projection: [B, D]."""
        return pooled if self.projection is None else torch.tanh(self.projection(pooled))

    def classify(self, u: Tensor, v: Tensor) -> Tensor:
        """W [u; v; |u - v|] + b, in fp32: [B, classes]."""
        assert self.classifier is not None, "a model without a classifier"
        logits: Tensor = self.classifier(softmax_features(u, v))
        return logits
