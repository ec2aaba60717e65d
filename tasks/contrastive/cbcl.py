"""Objectives over triplets: NT-Xent with hard negatives (CBCL, SelfCCL, SimCSE), triplet and margin loss (SelfCCL).

Triplets are the objectives with a curriculum: an encoder scores them, and the easy ones come first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from minbert.errors import UserError
from minbert.train.settings import flag
from tasks.contrastive.curriculum import CurriculumSettings
from tasks.contrastive.objective import (
    Numbers,
    Objective,
    TextKeys,
    objective_flag,
)

if TYPE_CHECKING:
    from torch import Tensor

    from minbert.tokenizer import Tokenizer
    from minbert.train.plan import PlannedBatch
    from tasks.contrastive.data import TrainingRows
    from tasks.contrastive.model import ContrastiveModel
    from tasks.contrastive.settings import ContrastiveSettings
    from tasks.contrastive.triplets import TripletFiles
    from tasks.examples import Examples


class TripletObjective(CurriculumSettings, Objective):
    """An objective over (anchor, positive, hard negative), with a curriculum."""

    row_noun: ClassVar[str] = "triplets"

    triplets: str = flag(
        "",
        "in place of nli/nli_for_simcse.csv or nli/nli-triplets.csv: files of triplets, or of labelled NLI pairs "
        "(SNLI, MultiNLI, nli-pairs.tsv), comma-separated",
        metavar="FILES",
        path=True,
    )
    per_premise: Literal["first", "zip", "cross"] = flag(
        "first",
        "triplets of one premise of NLI pairs: its first entailment with its first contradiction, the i-th with "
        "the i-th, or all with all",
    )

    @property
    def curriculum(self) -> CurriculumSettings:
        """The fields of the objective itself."""
        return self

    def why_hard_negatives(self) -> str:
        """Why rows without a hard negative cannot be used; empty if they can."""
        return f"--objective {self.objective} needs hard negatives, and these rows have none"

    def find(self, data: str) -> TripletFiles:
        """Files of triplets, or of labelled pairs."""
        from tasks.contrastive import triplets

        files = triplets.find_triplets(self.triplets, data)
        why = self.why_hard_negatives()
        if files.columns == 2 and why:
            raise UserError(f"{files.paths[0]}: {why}")
        return files

    def read(self, settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> TrainingRows:
        """Triplets as the file holds them, or merged from labelled pairs."""
        from tasks.contrastive import triplets

        return triplets.read(self.find(settings.files.data), self.per_premise, tokenizer, length)

    def encoded(self, examples: Examples) -> TextKeys:
        """Anchor, positive and, where the data have one, hard negative."""
        return ((0, 0), (1, 0), (2, 0))[: examples.cache.columns]


class NTXent(TripletObjective):
    """NT-Xent with hard negatives (CBCL, equation 1), or with in-batch negatives alone."""

    in_batch: ClassVar[bool] = True
    objective: Literal["nt-xent"] = objective_flag("nt-xent")
    temperature: float = flag(0.05, "temperature of NT-Xent", ge=1e-4, common=True)

    def why_hard_negatives(self) -> str:
        """Only an order by cosines needs them."""
        if not self.by_cosine:
            return ""
        return f"--order {self.order} needs hard negatives, and these rows have none; choose --order none or random"

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """The loss, and the share of rows whose positive is the nearest candidate."""
        from tasks.contrastive import losses

        anchor, positive, *hard_negatives = vectors.chunk(len(self.encoded(examples)))
        hard_negative = hard_negatives[0] if hard_negatives else None
        logits = losses.candidate_logits(anchor, positive, hard_negative, self.temperature)
        return losses.loss_and_accuracy(logits)

    def chance(self, batch_size: int, columns: int) -> float:
        """See `Objective.chance`."""
        return math.log(2 * batch_size if columns == 3 else batch_size)


class OverDistances(TripletObjective):
    """A loss over distances, with a margin."""

    loss_margin: float = flag(1.0, "margin of the loss", ge=1e-6)


class TripletLoss(OverDistances):
    """max(0, D(a, p) - D(a, n) + margin) (SelfCCL, section 3.1)."""

    objective: Literal["triplet"] = objective_flag("triplet")

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """The mean over the batch."""
        from tasks.contrastive import losses

        anchor, positive, negative = vectors.chunk(3)
        return {"loss": losses.triplet(anchor, positive, negative, self.loss_margin)}


class MarginLoss(OverDistances):
    """The contrastive loss with a margin over (anchor, positive) as similar, (anchor, negative) as dissimilar pairs."""

    objective: Literal["margin"] = objective_flag("margin")

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """The mean over both kinds of pairs (SelfCCL, section 3.1)."""
        import torch

        from tasks.contrastive import losses

        anchor, positive, negative = vectors.chunk(3)
        similar = torch.arange(2 * len(anchor), device=vectors.device) < len(anchor)
        pairs = torch.cat([anchor, anchor]), torch.cat([positive, negative])
        return {"loss": losses.margin_contrastive(*pairs, similar, self.loss_margin)}
