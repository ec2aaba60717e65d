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
from tasks.contrastive.adversarial import adversarial
from tasks.contrastive.model import ContrastiveModel
from tasks.contrastive.objectives import Numbers, Softmax, Texts
from tasks.contrastive.views import Adversarial


class Views(Texts):
    """NT-Xent over two views of each text (ConSERT, equation 1)."""

    texts = ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """Beside the loss, how often a view's other view is nearest. One text has no negatives: its loss is 0."""
        first, second = vectors.chunk(2)
        logits = losses.view_candidates(first, second, self.settings.temperature)
        return {"loss": losses.over_candidates(logits), "accuracy": losses.in_batch_accuracy(logits.detach())}


class SimCSE(Texts):
    """Two passes of a text under dropout (SimCSE, section 3), and of a text and itself with punctuation (EdaCSE).

    L_SimCSE + lambda * L_EdaCSE (EdaCSE, section 3), each NT-Xent with in-batch negatives.
    """

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """The text twice, and its punctuated form, column 1, where that has a weight."""
        return ((0, 0), (0, 1), (1, 1)) if self.settings.eda_weight else ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """The weighted sum; both parts are reported where there are two."""
        how = self.settings
        first, second, *others = vectors.chunk(len(self.texts))
        logits = losses.candidates(first, second, None, how.temperature)
        numbers = {"loss": losses.over_candidates(logits), "accuracy": losses.in_batch_accuracy(logits.detach())}
        if others:
            marked = losses.nt_xent(first, others[0], None, how.temperature)
            numbers |= {"punctuation_loss": marked, "loss": numbers["loss"] + how.eda_weight * marked}
        return numbers


class Joint(Softmax):
    """Classification of NLI pairs plus alpha times NT-Xent over two views (ConSERT, section 3.4).

    Premises are contrasted with premises and hypotheses with hypotheses, as the released code does; the two losses
    are averaged.
    """

    texts = ((0, 2), (1, 2), (0, 0), (1, 0), (0, 1), (1, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, sentences: list[list[int]], batch: Step) -> Numbers:
        """Both parts are reported beside their sum."""
        plain, views = vectors[: 2 * len(batch.rows)], vectors[2 * len(batch.rows) :].chunk(4)
        numbers = super().loss(model, plain, sentences, batch)
        how = self.settings
        sides = [losses.view_candidates(views[side], views[side + 2], how.temperature) for side in (0, 1)]
        contrast = torch.stack([losses.over_candidates(side) for side in sides]).mean()
        return numbers | {
            "classification_loss": numbers["loss"],
            "views_loss": contrast,
            "views_accuracy": torch.stack([losses.in_batch_accuracy(side.detach()) for side in sides]).mean(),
            "loss": numbers["loss"] + how.alpha * contrast,
        }

    def perturbation(
        self, model: ContrastiveModel, sentences: list[list[int]], batch: Step, context: Context
    ) -> Tensor | None:
        """From the gradient of the classification loss at the embeddings: one more pass, over the plain sentences."""
        size = 2 * len(batch.rows)
        ragged = Ragged.from_lists(sentences[:size]).to(context.device)
        chosen = [view if isinstance(view, Adversarial) else None for view in self.views[:2]]
        if not any(chosen):
            return None
        context.seed_dropout("adversarial")
        with context.autocast():
            x = model.encoder.embed(ragged).detach().requires_grad_()
            vectors = model.pool(model.encoder.encode(x, ragged), ragged).float()
        logits = model.classify(*vectors.chunk(2))
        labels = torch.from_numpy(self.examples.labels[batch.rows].astype(np.int64)).to(context.device)
        (gradient,) = torch.autograd.grad(losses.softmax_pairs(logits, labels), x)
        made = [
            torch.zeros_like(x)
            if view is None
            else adversarial(gradient, ragged, view.rate, protect_special=view.protect_special)
            for view in chosen
        ]
        return torch.cat([torch.zeros_like(x), *made]).detach()
