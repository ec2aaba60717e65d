"""Objectives over texts without labels, and ConSERT's joint one: two views of a text belong together.

Axes: B rows of a batch, D hidden, T tokens of a batch.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from minbert.ragged import Ragged
from minbert.training.loop import Context
from minbert.training.plan import Step
from tasks.contrastive import losses
from tasks.contrastive.model import ContrastiveModel
from tasks.contrastive.objectives import Numbers, Softmax, Texts
from tasks.contrastive.views import Adversarial, View, adversarial


class Views(Texts):
    """NT-Xent over two views of each text (ConSERT, equation 1)."""

    texts = ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """Beside the loss, how often a view's other view is nearest. One text has no negatives: its loss is 0."""
        first, second = vectors.chunk(2)
        logits = losses.view_candidates(first, second, self.settings.objective.temperature)
        return {"loss": losses.over_candidates(logits), "accuracy": losses.in_batch_accuracy(logits.detach())}


class SimCSE(Texts):
    """Two passes of a text under dropout (SimCSE, section 3), and of a text and itself with punctuation (EdaCSE).

    L_SimCSE + lambda * L_EdaCSE (EdaCSE, equation 2), each NT-Xent with in-batch negatives.
    """

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """The text twice, and its punctuated form, column 1, where that has a weight."""
        return ((0, 0), (0, 1), (1, 1)) if self.settings.objective.eda_weight else ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The weighted sum; both parts are reported where there are two."""
        how = self.settings.objective
        first, second, *others = vectors.chunk(len(self.texts))
        logits = losses.candidates(first, second, None, how.temperature)
        numbers = {"loss": losses.over_candidates(logits), "accuracy": losses.in_batch_accuracy(logits.detach())}
        if others:
            marked = losses.nt_xent(first, others[0], None, how.temperature)
            numbers |= {"punctuation_loss": marked, "loss": numbers["loss"] + how.eda_weight * marked}
        return numbers


class Joint(Softmax):
    """Classification of NLI pairs plus alpha times NT-Xent over two views of their texts (ConSERT, section 3.3).

    The paper writes L_ce + alpha * L_con, with L_con the mean over the 2N views of equation 1, and leaves open how the
    two texts of a pair enter it. The released code contrasts premises with premises and hypotheses with hypotheses, and
    SUMS what it gets: both sides, and on each side both directions (first view to second, and back), each a mean over
    the B rows. So does this objective, since alpha = 0.15 was found with that sum. It is four times the mean over all
    views: the paper's formula taken by the letter is alpha = 0.15 / 4.

    As in the released code, one encoding serves as the view `none` and for the classification: 4 encodings a row with
    such a view, 6 without one. The classifier sees [u; v; |u - v|] (equation 2); the released scripts append
    max(u, v)^2, which the paper does not mention.
    """

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """Both texts unchanged, for the classification; then through the views that change them."""
        return [(side, view) for view in self._numbers for side in (0, 1)]

    @property
    def _numbers(self) -> list[int]:
        """The numbers of the views that are encoded; first that of the unchanged texts."""
        kinds = [type(view) for view in self.views[:2]]
        plain = kinds.index(View) if View in kinds else 2
        return [plain, *(number for number in (0, 1) if number != plain)]

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """Both parts are reported beside their sum."""
        numbers = super().loss(model, vectors[: 2 * len(batch.rows)], batch)
        how, seen = self.settings.objective, dict(zip(self.texts, vectors.chunk(len(self.texts)), strict=True))
        sides = [losses.view_candidates(seen[side, 0], seen[side, 1], how.temperature) for side in (0, 1)]
        # The mean over the 2N views of a side is half the sum of its two directions.
        contrast = 2 * torch.stack([losses.over_candidates(side) for side in sides]).sum()
        return numbers | {
            "classification_loss": numbers["loss"],
            "views_loss": contrast,
            "views_accuracy": torch.stack([losses.in_batch_accuracy(side.detach()) for side in sides]).mean(),
            "loss": numbers["loss"] + how.alpha * contrast,
        }

    def perturbation(
        self, model: ContrastiveModel, sentences: list[list[int]], batch: Step, context: Context
    ) -> Tensor | None:
        """From the gradient of the classification loss at the embeddings: one more pass, over the unchanged texts."""
        size = 2 * len(batch.rows)
        ragged = Ragged.from_lists(sentences[:size]).to(context.device)
        encoded = [self.views[number] for number in self._numbers]
        if not any(isinstance(view, Adversarial) for view in encoded):
            return None
        context.seed_dropout("adversarial")
        with context.autocast():
            x = model.encoder.embed(ragged).detach().requires_grad_()
            vectors = model.pool(model.encoder.encode(x, ragged), ragged).float()
        logits = model.classify(*vectors.chunk(2))
        labels = torch.from_numpy(self.examples.labels[batch.rows].astype(np.int64)).to(context.device)
        (gradient,) = torch.autograd.grad(losses.softmax_pairs(logits, labels), x)
        made = [
            adversarial(gradient, ragged, view.rate, protect_special=view.protect_special)
            if isinstance(view, Adversarial)
            else torch.zeros_like(x)
            for view in encoded
        ]
        return torch.cat(made).detach()
