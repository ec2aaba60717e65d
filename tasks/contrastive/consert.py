"""ConSERT's objectives: two views of each text, and these joined with the classification of NLI pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from minbert.errors import UserError
from minbert.train.settings import flag
from tasks.contrastive.nli import Classification
from tasks.contrastive.objective import Inputs, Numbers, Objective, TextKeys, objective_flag
from tasks.contrastive.texts import TextObjective

if TYPE_CHECKING:
    from torch import Tensor

    from minbert.train.loop import StepContext
    from minbert.train.plan import PlannedBatch
    from tasks.contrastive.model import ContrastiveModel
    from tasks.contrastive.settings import ContrastiveSettings
    from tasks.contrastive.views import Streams, View
    from tasks.examples import Examples


@dataclass(frozen=True)
class ViewInputs(Inputs):
    """Sentences with their random streams, and the perturbation of the adversarial view, [T, D], if there is one."""

    streams: Streams | None = None
    perturbation: Tensor | None = None

    def part(self, indices: slice) -> Self:
        """As `Inputs.part`."""
        assert self.streams is not None
        part, perturbation = super().part(indices), self.perturbation
        if perturbation is not None:
            ends = np.cumsum([0, *map(len, self.sentences)])
            perturbation = perturbation[ends[indices.start] : ends[min(indices.stop, len(self))]]
        return replace(part, streams=self.streams.take(indices), perturbation=perturbation)


class ViewObjective(Objective):
    """The part of an objective with two views of a text, made at the embedding layer (ConSERT, section 3.2)."""

    in_batch: ClassVar[bool] = True

    views: str = flag(
        "",
        "two views, such as feature-cutoff:0.2,shuffle, from none, shuffle, token-cutoff, span-cutoff (rate 0.15 by "
        "default), feature-cutoff, dropout (0.2), and with --objective joint adversarial (1)",
        metavar="VIEW,VIEW",
        common=True,
    )
    protect_special: bool = flag(True, "views leave [CLS] and [SEP] as they are")
    temperature: float = flag(0.05, "temperature of NT-Xent", ge=1e-4, common=True)

    def check(self, settings: ContrastiveSettings) -> None:
        """See `Objective.check`."""
        super().check(settings)
        self.parsed()

    def parsed(self) -> tuple[View, ...]:
        """Both views, and as a third the identity."""
        from tasks.contrastive.views import View, parse

        return (*parse(self.views, protect_special=self.protect_special), View())

    def inputs(
        self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext
    ) -> ViewInputs:
        """See `Objective.inputs`; each text has a random stream of its own, whatever its position in the batch."""
        from tasks.contrastive.views import Streams

        sentences, texts = super().inputs(model, examples, batch, context).sentences, self.encoded(examples)
        width = 1 + max(column for column, _ in texts)
        keys = np.concatenate([batch.rows * width + column for column, _ in texts])
        views = np.repeat([view for _, view in texts], len(batch.rows))
        return ViewInputs(sentences, streams=Streams(context.seed, batch.epoch, keys, views))

    def encode(self, model: ContrastiveModel, inputs: Inputs, context: StepContext) -> Tensor:
        """The vectors of sentences under their views: [sentences, D]."""
        from tasks.contrastive.views import apply

        assert isinstance(inputs, ViewInputs) and inputs.streams is not None
        ragged = inputs.ragged().to(context.device)
        states = apply(model.encoder, ragged, self.parsed(), inputs.streams, perturbation=inputs.perturbation)
        return model.pool(states, ragged)


class TwoViews(ViewObjective, TextObjective):
    """NT-Xent over two views of each text (ConSERT, equation 1)."""

    objective: Literal["views"] = objective_flag("views")

    def check(self, settings: ContrastiveSettings) -> None:
        """See `Objective.check`."""
        from tasks.contrastive.views import Adversarial

        super().check(settings)
        if any(isinstance(view, Adversarial) for view in self.parsed()):
            raise UserError("--views: an adversarial view needs the supervision of --objective joint")

    def encoded(self, examples: Examples) -> TextKeys:
        """The text under both views."""
        return ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """The loss, and the share of views whose other view is nearest; the loss of a single text is 0."""
        from tasks.contrastive import losses

        first, second = vectors.chunk(2)
        return losses.loss_and_accuracy(losses.view_logits(first, second, self.temperature))

    def chance(self, batch_size: int, columns: int) -> float:
        """See `Objective.chance`."""
        return math.log(2 * batch_size - 1)


class Joint(ViewObjective, Classification):
    """Classification of NLI pairs plus alpha times NT-Xent over two views of their texts (ConSERT, section 3.3).

    The paper writes L_ce + alpha * L_con, with L_con the mean over the 2N views of equation 1, and leaves open how the
    two texts of a pair enter it. The released code contrasts premises with premises and hypotheses with hypotheses, and
    SUMS the terms: both sides, and on each side both directions (first view to second, and back), each a mean over the
    B rows. So does this objective, because alpha = 0.15 was tuned with that sum. It is four times the mean over all
    views: the paper's formula taken literally means alpha = 0.15 / 4.

    As in the released code, one encoding serves as the view `none` and for the classification: 4 encodings a row with
    such a view, 6 without one. The classifier sees [u; v; |u - v|] (equation 2); the released scripts append
    max(u, v)^2, which the paper does not mention.
    """

    objective: Literal["joint"] = objective_flag("joint")
    alpha: float = flag(0.15, "weight of the views' loss, which is added to that of the classification", ge=0)

    def encoded(self, examples: Examples) -> TextKeys:
        """Both texts unchanged, for the classification; then through the views that change them."""
        return [(side, view) for view in self.encoded_views() for side in (0, 1)]

    def encoded_views(self) -> list[int]:
        """The numbers of the views that are encoded; first that of the unchanged texts."""
        from tasks.contrastive.views import View

        kinds = [type(view) for view in self.parsed()[:2]]
        plain = kinds.index(View) if View in kinds else 2
        return [plain, *(number for number in (0, 1) if number != plain)]

    def inputs(
        self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext
    ) -> ViewInputs:
        """As `ViewObjective.inputs`, with an adversarial view's perturbation."""
        inputs = super().inputs(model, examples, batch, context)
        return replace(inputs, perturbation=self.perturbation(model, inputs, examples, batch, context))

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """The sum; both terms are logged too."""
        import torch

        from tasks.contrastive import losses

        numbers, texts = super().loss(model, vectors[: 2 * len(batch.rows)], examples, batch), self.encoded(examples)
        by_text = dict(zip(texts, vectors.chunk(len(texts)), strict=True))
        views = [(by_text[side, 0], by_text[side, 1]) for side in (0, 1)]
        sides = [
            losses.loss_and_accuracy(losses.view_logits(first, second, self.temperature)) for first, second in views
        ]
        # The mean over the 2N views of a side is half the sum of its two directions.
        contrast = 2 * torch.stack([side["loss"] for side in sides]).sum()
        return numbers | {
            "classification_loss": numbers["loss"],
            "views_loss": contrast,
            "views_accuracy": torch.stack([side["accuracy"] for side in sides]).mean(),
            "loss": numbers["loss"] + self.alpha * contrast,
        }

    def perturbation(
        self, model: ContrastiveModel, inputs: Inputs, examples: Examples, batch: PlannedBatch, context: StepContext
    ) -> Tensor | None:
        """From the gradient of the classification loss at the embeddings: one more pass, over the unchanged texts."""
        import torch

        from tasks.contrastive.views import Adversarial, adversarial

        views = [self.parsed()[number] for number in self.encoded_views()]
        if not any(isinstance(view, Adversarial) for view in views) or not len(inputs):
            return None
        ragged = Inputs(inputs.sentences[: 2 * len(batch.rows)]).ragged().to(context.device)
        context.seed_dropout("adversarial")
        with context.autocast():
            x = model.encoder.embed(ragged).detach().requires_grad_()
            vectors = model.pool(model.encoder.encode(x, ragged), ragged).float()
        loss = super().loss(model, vectors, examples, batch)["loss"]
        (gradient,) = torch.autograd.grad(context.scaled(loss), x)
        parts = [
            adversarial(gradient, ragged, view.rate, protect_special=view.protect_special)
            if isinstance(view, Adversarial)
            else torch.zeros_like(x)
            for view in views
        ]
        return torch.cat(parts).detach()

    def chance(self, batch_size: int, columns: int) -> float:
        """See `Objective.chance`; two sides, two directions."""
        return math.log(self.classes) + self.alpha * 4 * math.log(2 * batch_size - 1)
