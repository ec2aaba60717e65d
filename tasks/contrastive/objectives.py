"""The objectives of stage one: which texts a step encodes, and the loss over their vectors.

Axes: B rows of a batch, k texts of a row, T tokens of a batch, D hidden.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from minbert.training.loop import Context
from minbert.training.plan import Step
from tasks.augment import synonyms
from tasks.augment.punctuation import Punctuation
from tasks.contrastive import cached, losses
from tasks.contrastive.model import ContrastiveModel
from tasks.contrastive.settings import IN_BATCH, TEXTS, ContrastiveSettings
from tasks.contrastive.validation import spread
from tasks.contrastive.views import Adversarial, Draw, View, adversarial, parse
from tasks.examples import Augmentation, Examples, unchanged
from tasks.readers.layouts import NLI_CLASSES

Numbers = dict[str, Tensor]
ANCHOR_AND_OTHERS: Sequence[tuple[int, int]] = ((0, 0), (1, 1), (2, 1))


@dataclass
class Texts(ABC):
    """An objective over k texts of each row, encoded as one ragged batch, or part by part (`chunk` sentences each).

    With `--views` each text is encoded under one of the two views, or under a third, the identity.
    """

    examples: Examples
    settings: ContrastiveSettings
    augment: Augmentation[Any] = unchanged
    views: tuple[View, ...] = field(init=False)

    def __post_init__(self) -> None:
        how = self.settings.views
        self.views = (*parse(how.views, protect_special=how.protect_special), View()) if how.views else ()

    @property
    @abstractmethod
    def texts(self) -> Sequence[tuple[int, int]]:
        """What is encoded of a row: (column of the data, number of its view), k of them."""

    def backward(self, model: nn.Module, batch: Step, context: Context) -> Numbers:
        """Gradients of the mean loss over the batch; returns the numbers to log, with the spread of the vectors."""
        assert isinstance(model, ContrastiveModel)
        sentences, draw = self.sentences(batch), self.draw(batch)
        perturbation = self.perturbation(model, sentences, batch, context)
        ends = np.cumsum([0, *map(len, sentences)])
        size = self.settings.parts_of or len(sentences)
        parts = [slice(start, min(start + size, len(sentences))) for start in range(0, len(sentences), size)]

        def encode(number: int, part: slice) -> Tensor:
            ragged = Ragged.from_lists(sentences[part]).to(context.device)
            tokens = slice(ends[part.start], ends[part.stop])
            added = None if perturbation is None else perturbation[tokens]
            context.seed_dropout("encoder", number)
            with context.autocast():
                return model.vectors(ragged, self.views, draw and draw.take(part), added).float()

        def loss(vectors: Tensor) -> Numbers:
            numbers = self.loss(model, vectors, batch)
            return numbers | {"spread": spread(vectors)} if len(batch.rows) > 1 else numbers

        return cached.backward(encode, parts, loss)

    def sentences(self, batch: Step) -> list[list[int]]:
        """k * B lists of ids: the first text of every row, then the second of every row, and so on."""
        examples = self.augment(self.examples, batch)
        return [examples.sentence(row, column) for column, _ in self.texts for row in batch.rows]

    def draw(self, batch: Step) -> Draw | None:
        """Random words for the views; each text has its own counter, whatever its place in the batch."""
        if not self.views:
            return None
        width = 1 + max(column for column, _ in self.texts)
        keys = np.concatenate([batch.rows * width + column for column, _ in self.texts])
        views = np.repeat([view for _, view in self.texts], len(batch.rows))
        return Draw(self.settings.training.seed, batch.epoch, keys, views)

    def perturbation(
        self, model: ContrastiveModel, sentences: list[list[int]], batch: Step, context: Context
    ) -> Tensor | None:
        """The perturbation of the embeddings of all sentences, [T, D]; None without an adversarial view."""
        return None

    @abstractmethod
    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The loss over the vectors [k * B, D] of the encoded texts, and further metrics to log."""


class NTXent(Texts):
    """NT-Xent with hard negatives (CBCL, equation 1), or with in-batch negatives alone."""

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """Anchor and positive, and the hard negative where the data have one and it is used."""
        return ANCHOR_AND_OTHERS[: self.examples.cache.columns if self.settings.objective.hard_negatives else 2]

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The loss, and the share of rows whose positive is the nearest candidate."""
        how = self.settings.objective
        anchor, positive, *others = vectors.chunk(len(self.texts))
        negative = others[0] if others else None
        ignored = self.false_negatives(batch).to(vectors.device) if how.mask_false_negatives else None
        weight = how.hard_weight if others else 0.0
        logits = losses.candidates(anchor, positive, negative, how.temperature, hard_weight=weight, ignored=ignored)
        loss = losses.over_candidates(logits, how.directions)
        return {"loss": loss, "accuracy": losses.in_batch_accuracy(logits.detach())}

    def false_negatives(self, batch: Step) -> Tensor:
        """Compared by the texts of the data file: synonyms may change one premise differently in two rows."""
        numbers: dict[tuple[int, ...], int] = {}
        texts = [tuple(self.examples.sentence(row, column)) for column, _ in self.texts for row in batch.rows]
        keys = torch.tensor([numbers.setdefault(ids, len(numbers)) for ids in texts])
        return losses.false_negatives(*keys.chunk(len(self.texts)))


class TripletLoss(Texts):
    """max(0, D(a, p) - D(a, n) + margin) (SelfCCL, section 3.1)."""

    texts: ClassVar[Sequence[tuple[int, int]]] = ANCHOR_AND_OTHERS

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The mean over the batch."""
        anchor, positive, negative = vectors.chunk(3)
        how = self.settings.objective
        return {"loss": losses.triplet(anchor, positive, negative, how.loss_margin, how.distance)}


class MarginLoss(Texts):
    """The contrastive loss with a margin over (anchor, positive) as similar, (anchor, negative) as dissimilar pairs."""

    texts: ClassVar[Sequence[tuple[int, int]]] = ANCHOR_AND_OTHERS

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The mean over both kinds of pairs (SelfCCL, section 3.1)."""
        anchor, positive, negative = vectors.chunk(3)
        similar = torch.arange(2 * len(anchor), device=vectors.device) < len(anchor)
        pairs = torch.cat([anchor, anchor]), torch.cat([positive, negative])
        return {"loss": losses.margin_contrastive(*pairs, similar, self.settings.objective.loss_margin)}


class Softmax(Texts):
    """Classification of NLI pairs over [u; v; |u - v|] (SBERT, section 3)."""

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """Both texts of a pair."""
        return ANCHOR_AND_OTHERS[:2]

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """Cross entropy and accuracy."""
        logits = model.classify(*vectors.chunk(2))
        labels = torch.from_numpy(self.examples.labels[batch.rows].astype(np.int64)).to(vectors.device)
        accuracy = (logits.detach().argmax(1) == labels).float().mean()
        return {"loss": losses.softmax_pairs(logits, labels), "accuracy": accuracy}


class Views(Texts):
    """NT-Xent over two views of each text (ConSERT, equation 1)."""

    texts = ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The loss, and the share of views whose other view is nearest; the loss of a single text is 0."""
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
        """The weighted sum; both terms are logged where there are two."""
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
    views: the paper's formula taken literally means alpha = 0.15 / 4.

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
        """The sum; both terms are logged too."""
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


OBJECTIVES: dict[str, type[Texts]] = {
    "nt-xent": NTXent,
    "triplet": TripletLoss,
    "margin": MarginLoss,
    "softmax": Softmax,
    "views": Views,
    "joint": Joint,
    "simcse": SimCSE,
}


def chance(settings: ContrastiveSettings, rows: int, columns: int = 3) -> float | None:
    """The loss of a random guess: ln(number of candidates, or of classes); None for a loss over distances.

    `rows` is the number of training rows, which may be less than a batch; `columns` is the number of texts of a row:
    with two there are no hard negatives. Candidates removed as false negatives are counted as well.
    """
    how, batch = settings.objective, min(settings.training.batch_size, rows)
    if how.objective == "softmax":
        return losses.chance(len(NLI_CLASSES))
    if how.objective not in IN_BATCH:
        return None
    if how.objective == "simcse":
        return losses.chance(batch) * (1 + how.eda_weight)
    if how.objective == "nt-xent":
        hard = how.hard_negatives and columns == 3
        there = losses.chance(2 * batch - 1 + math.exp(how.hard_weight) if hard else batch)
        return there if how.directions == "one" else (there + losses.chance(batch)) / 2
    guess = losses.chance(2 * batch - 1)
    if how.objective == "views":
        return guess
    return losses.chance(len(NLI_CLASSES)) + how.alpha * 4 * guess  # two sides, two directions: see `Joint`


def objective(
    settings: ContrastiveSettings, train: Examples, tokenizer: Tokenizer, run: Path
) -> tuple[Texts, dict[str, Any]]:
    """The objective over the training data, and the manifest's account of what is done to their texts.

    `run` is the run's folder, for the texts before and after synonyms.
    """
    augment, account = _augmentation(settings, train, tokenizer, run)
    return OBJECTIVES[settings.objective.objective](train, settings, augment), account


def _augmentation(
    settings: ContrastiveSettings, train: Examples, tokenizer: Tokenizer, run: Path
) -> tuple[Augmentation[Any], dict[str, Any]]:
    """What is done to the texts of a step: punctuation or synonyms."""
    training, how = settings.training, settings.views
    if how.marks_most:
        column = 0 if settings.objective.data_kind == TEXTS else 1
        return Punctuation(tokenizer, column, seed=training.seed, most=how.marks_most, marks=how.marks), {}
    sets, data = {"nli": train}, settings.files.data
    return synonyms.augmentation(settings.synonyms, training, "pretrain", sets, tokenizer, data=data, run=run)
