"""The model of stage one: the encoder, and the layers that are used in training only.

Axes: B sentences, D hidden.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from minbert import pooling
from minbert.bert import BertModel
from minbert.encode import vectors
from minbert.ragged import Ragged
from minbert.seeds import torch_seed
from tasks.contrastive.losses import softmax_features
from tasks.contrastive.settings import PAIRS, ContrastiveSettings
from tasks.contrastive.views import Draw, View, apply
from tasks.readers.layouts import NLI_CLASSES


class ContrastiveModel(nn.Module):
    """An encoder, with a projection of its vectors (SimCSE, section 6.3) or a classifier of pairs (SBERT, section 3).

    Neither is saved in the encoder folder, except a projection that is `kept` (as in supervised SimCSE): it replaces
    the encoder's own pooling layer, starting from random weights.
    """

    def __init__(self, encoder: BertModel, pooler: str, *, projection: str = "none", classes: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = "pooler" if projection == "kept" else pooler
        width = encoder.config.hidden_size
        self.projection = nn.Linear(width, width) if projection == "training" else None
        self.classifier = nn.Linear(3 * width, classes) if classes else None
        kept = encoder.pooler_dense if projection == "kept" else None
        for layer in (kept, self.projection, self.classifier):
            if layer is not None:
                nn.init.normal_(layer.weight, std=encoder.config.initializer_range)
                nn.init.zeros_(layer.bias)

    @classmethod
    def of(cls, settings: ContrastiveSettings, encoder: BertModel) -> "ContrastiveModel":
        """The encoder with the layers that the settings ask for, their weights drawn by the run's seed."""
        torch.manual_seed(torch_seed(settings.training.seed, "heads"))
        classes = len(NLI_CLASSES) if settings.objective.data_kind == PAIRS else 0
        how = settings.encoder
        return cls(encoder, how.pooler, projection=how.projection, classes=classes)

    def vectors(
        self, ragged: Ragged, views: Sequence[View] = (), draw: Draw | None = None, perturbation: Tensor | None = None
    ) -> Tensor:
        """The vectors that the loss sees, [B, D]; with `draw`, of sentences under `views`."""
        if draw is None:
            return self.projected(vectors(self.encoder, ragged, self.pooler))
        return self.pool(apply(self.encoder, ragged, views, draw, perturbation=perturbation), ragged)

    def pool(self, states: list[Tensor], ragged: Ragged) -> Tensor:
        """The vectors that the loss sees, from hidden states: [B, D]."""
        if self.pooler == "pooler":
            return self.projected(self.encoder.pool(states[-1].index_select(0, ragged.starts)))
        return self.projected(pooling.POOLERS[self.pooler](states, ragged))

    def projected(self, pooled: Tensor) -> Tensor:
        """tanh(W x + b) where there is a projection in training only: [B, D]."""
        return pooled if self.projection is None else torch.tanh(self.projection(pooled))

    def classify(self, u: Tensor, v: Tensor) -> Tensor:
        """W [u; v; |u - v|] + b, in fp32: [B, classes]."""
        assert self.classifier is not None, "a model without a classifier"
        logits: Tensor = self.classifier(softmax_features(u, v))
        return logits
