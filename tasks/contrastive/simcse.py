"""The objective of unsupervised SimCSE and of EdaCSE: texts under dropout, and with punctuation inserted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from minbert.errors import UserError
from minbert.train.settings import flag
from tasks.contrastive.objective import Numbers, TextKeys, objective_flag
from tasks.contrastive.texts import TextObjective

if TYPE_CHECKING:
    from torch import Tensor

    from minbert.bert import BertModel
    from minbert.tokenizer import Tokenizer
    from minbert.train.plan import PlannedBatch
    from tasks.contrastive.model import ContrastiveModel
    from tasks.contrastive.settings import ContrastiveSettings
    from tasks.examples import Augmentation, Examples


class SimCSE(TextObjective):
    """Two passes of a text under dropout (SimCSE, section 3), and of a text and itself with punctuation (EdaCSE).

    L_SimCSE + lambda * L_EdaCSE (EdaCSE, equation 2), each NT-Xent with in-batch negatives.
    """

    in_batch: ClassVar[bool] = True
    objective: Literal["simcse"] = objective_flag("simcse")
    temperature: float = flag(0.05, "temperature of NT-Xent", ge=1e-4, common=True)
    eda_weight: float = flag(
        0.0, "weight of NT-Xent between a text and itself with punctuation inserted (EdaCSE's lambda)", ge=0
    )
    marks_most: int = flag(0, "insert 1 to N punctuation marks into the text (EdaCSE); 0 inserts none", ge=0)
    marks: Literal["english", "chinese", "without-exclamation", "chinese-without-exclamation", "extra"] = flag(
        "english", "the punctuation that is inserted"
    )

    def check(self, settings: ContrastiveSettings) -> None:
        """See `Objective.check`."""
        super().check(settings)
        if bool(self.eda_weight) != bool(self.marks_most):
            raise UserError(
                "--eda-weight and --marks-most require each other: a weight, and the punctuation that it weighs"
            )
        if self.marks_most and settings.synonyms.used:
            raise UserError("--synonyms and --marks-most exclude each other: both rewrite a text")

    def augmentation(
        self, settings: ContrastiveSettings, examples: Examples, tokenizer: Tokenizer, run: Path
    ) -> Augmentation[Any]:
        """Punctuation if it is requested, else as `Objective.augmentation`."""
        if not self.marks_most:
            return super().augmentation(settings, examples, tokenizer, run)
        from tasks.augment.punctuation import Punctuation

        return Punctuation(tokenizer, settings.training.seed, self.marks_most, self.marks)

    def encoded(self, examples: Examples) -> TextKeys:
        """The text twice, and its punctuated form, column 1, where that has a weight."""
        return ((0, 0), (0, 0), (1, 0)) if self.eda_weight else ((0, 0), (0, 0))

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """The weighted sum; with punctuation, both terms are logged."""
        from tasks.contrastive import losses

        first, second, *punctuated = vectors.chunk(len(self.encoded(examples)))
        numbers = losses.loss_and_accuracy(losses.candidate_logits(first, second, None, self.temperature))
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
