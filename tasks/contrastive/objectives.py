"""Which texts a step of stage one encodes, and which loss it takes over their vectors.

Axes: B rows of a batch, k texts of a row, D hidden.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from minbert.ragged import Ragged
from minbert.training.loop import Context
from minbert.training.plan import Step
from tasks.augmentation import Augmentation, unchanged
from tasks.contrastive import cached, losses
from tasks.contrastive.model import ContrastiveModel
from tasks.contrastive.settings import IN_BATCH, ContrastiveSettings
from tasks.contrastive.validation import spread
from tasks.examples import Examples
from tasks.readers import nli

Numbers = dict[str, Tensor]


@dataclass
class Texts(ABC):
    """An objective over k texts of each row, encoded as one ragged batch, or part by part (`chunk` sentences each)."""

    examples: Examples
    settings: ContrastiveSettings
    augment: Augmentation[Any] = unchanged
    columns: ClassVar[int]

    def backward(self, model: nn.Module, batch: Step, context: Context) -> Numbers:
        """Gradients of the mean loss over the batch; reports the loss, and how far the vectors are spread out."""
        assert isinstance(model, ContrastiveModel)
        sentences = self.sentences(batch)
        size = self.settings.parts_of or len(sentences)
        parts = [sentences[start : start + size] for start in range(0, len(sentences), size)]

        def encode(number: int, part: list[list[int]]) -> Tensor:
            ragged = Ragged.from_lists(part).to(context.device)
            context.seed_dropout("encoder", number)
            with context.autocast():
                return model.vectors(ragged).float()

        def loss(vectors: Tensor) -> Numbers:
            return self.loss(model, vectors, sentences, batch) | {"spread": spread(vectors)}

        return cached.backward(encode, parts, loss)

    def sentences(self, batch: Step) -> list[list[int]]:
        """k * B lists of ids: the first text of every row, then the second of every row, and so on."""
        examples = self.augment(self.examples, batch)
        return [examples.sentence(row, column) for column in range(self.columns) for row in batch.rows]

    @abstractmethod
    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """The loss over the vectors [k * B, D] of `sentences`, and whatever else is worth a number."""


class NTXent(Texts):
    """NT-Xent with hard negatives (CBCL, equation 1), or with in-batch negatives alone."""

    @property
    def columns(self) -> int:  # type: ignore[override]
        """Anchor and positive, and the hard negative where it is wanted and there."""
        return self.examples.cache.columns if self.settings.hard_negatives else 2

    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """Beside the loss, how often a row's positive is the nearest candidate."""
        how = self.settings
        anchor, positive, *others = vectors.chunk(self.columns)
        negative = others[0] if others else None
        ignored = _false_negatives(sentences, self.columns).to(vectors.device) if how.mask_false_negatives else None
        weight = how.hard_weight if others else 0.0
        logits = losses.candidates(anchor, positive, negative, how.temperature, hard_weight=weight, ignored=ignored)
        loss = losses.over_candidates(logits, how.directions)
        return {"loss": loss, "accuracy": losses.in_batch_accuracy(logits.detach())}


class TripletLoss(Texts):
    """max(0, D(a, p) - D(a, n) + margin) (SelfCCL, section 3.1)."""

    columns = 3

    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """The mean over the batch."""
        anchor, positive, negative = vectors.chunk(3)
        how = self.settings
        return {"loss": losses.triplet(anchor, positive, negative, how.loss_margin, how.distance)}


class MarginLoss(Texts):
    """The contrastive loss with a margin over (anchor, positive) as similar, (anchor, negative) as dissimilar pairs."""

    columns = 3

    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """The mean over both kinds of pairs (SelfCCL, section 3.1)."""
        anchor, positive, negative = vectors.chunk(3)
        similar = torch.arange(2 * len(anchor), device=vectors.device) < len(anchor)
        pairs = torch.cat([anchor, anchor]), torch.cat([positive, negative])
        return {"loss": losses.margin_contrastive(*pairs, similar, self.settings.loss_margin)}


class Softmax(Texts):
    """Classification of NLI pairs over [u; v; |u - v|] (SBERT, section 3)."""

    columns = 2

    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """Cross entropy, and the share of pairs that are classified rightly."""
        logits = model.classify(*vectors.chunk(2))
        labels = torch.from_numpy(self.examples.labels[batch.rows].astype(np.int64)).to(vectors.device)
        accuracy = (logits.detach().argmax(1) == labels).float().mean()
        return {"loss": losses.softmax_pairs(logits, labels), "accuracy": accuracy}


OBJECTIVES: dict[str, type[Any]] = {
    "nt-xent": NTXent, "triplet": TripletLoss, "margin": MarginLoss, "softmax": Softmax,
}  # fmt: skip


def chance(settings: ContrastiveSettings) -> float | None:
    """The loss of an encoder that knows nothing: ln(number of candidates, or of classes); None for a distance loss."""
    if settings.objective == "softmax":
        return losses.chance(len(nli.NAMES))
    if settings.objective not in IN_BATCH:
        return None
    return losses.chance(settings.batch_size * (2 if settings.hard_negatives else 1))


def _false_negatives(sentences: list[list[int]], columns: int) -> Tensor:
    """`losses.false_negatives` of texts that are the same where their ids are: bool [B, (columns - 1) * B]."""
    numbers: dict[tuple[int, ...], int] = {}
    keys = torch.tensor([numbers.setdefault(tuple(ids), len(numbers)) for ids in sentences])
    return losses.false_negatives(*keys.chunk(columns))
