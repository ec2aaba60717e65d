"""The objective of unsupervised SimCSE and of EdaCSE: texts under dropout, and with punctuation inserted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from minbert.errors import UserError
from minbert.training.settings import flag
from tasks.contrastive.objective import Numbers, Objective, Punctuated, TextKeys, loss_and_accuracy, objective_flag
from tasks.contrastive.texts import TextSettings

if TYPE_CHECKING:
    from torch import Tensor

    from minbert.bert import BertModel
    from minbert.training.plan import Step
    from tasks.contrastive.model import ContrastiveModel
    from tasks.contrastive.settings import ContrastiveSettings
    from tasks.examples import Examples


class SimCSE(Punctuated, TextSettings, Objective):
    """Two passes of a text under dropout (SimCSE, section 3), and of a text and itself with punctuation (EdaCSE).

    L_SimCSE + lambda * L_EdaCSE (EdaCSE, equation 2), each NT-Xent with in-batch negatives.
    """

    in_batch: ClassVar[bool] = True
    punctuated: ClassVar[int] = 0
    objective: Literal["simcse"] = objective_flag("simcse")
    temperature: float = flag(0.05, "temperature of NT-Xent", ge=1e-4, common=True)
    eda_weight: float = flag(
        0.0, "weight of NT-Xent between a text and itself with punctuation inserted (EdaCSE's lambda)", ge=0
    )

    def check(self, settings: ContrastiveSettings) -> None:
        """See `Objective.check`."""
        super().check(settings)
        if bool(self.eda_weight) != bool(self.marks_most):
            raise UserError(
                "--eda-weight and --marks-most require each other: a weight, and the punctuation that it weighs"
            )

    def encoded(self, examples: Examples) -> TextKeys:
        """The text twice, and its punctuated form, column 1, where that has a weight."""
        return ((0, 0), (0, 0), (1, 0)) if self.eda_weight else ((0, 0), (0, 0))

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: Step) -> Numbers:
        """The weighted sum; with punctuation, both terms are logged."""
        from tasks.contrastive import losses

        first, second, *punctuated = vectors.chunk(len(self.encoded(examples)))
        numbers = loss_and_accuracy(losses.candidate_logits(first, second, None, self.temperature))
        if punctuated:
            marked = losses.nt_xent(first, punctuated[0], None, self.temperature)
            numbers |= {"punctuation_loss": marked, "loss": numbers["loss"] + self.eda_weight * marked}
        return numbers

    def chance(self, batch_size: int, columns: int) -> float:
        """See `Objective.chance`."""
        return math.log(batch_size) * (1 + self.eda_weight)

    def notes(self, encoder: BertModel) -> list[str]:
        """A warning if the encoder has no dropout."""
        rates = encoder.config.hidden_dropout_prob, encoder.config.attention_probs_dropout_prob
        note = f"--objective {self.objective}: the encoder has no dropout, so both passes of a text are the same"
        return [] if any(rates) else [note]
