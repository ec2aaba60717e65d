"""The model and the objectives of stage one: which texts a step encodes, and the loss over their vectors.

Axes: B rows of a batch, k texts of a row, T tokens of a batch, D hidden.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minbert.bert import BertModel
from minbert.encode import pool
from minbert.encode import vectors as pooled_vectors
from minbert.ragged import Ragged
from minbert.seeds import torch_seed
from minbert.tokenizer import Tokenizer
from minbert.training import ranks
from minbert.training.loop import Context
from minbert.training.plan import Step
from tasks.augment import synonym_augmentation
from tasks.contrastive import cached, losses
from tasks.contrastive.scoring import distinct
from tasks.contrastive.settings import IN_BATCH, PAIRS, TEXTS, ContrastiveSettings
from tasks.contrastive.views import Adversarial, Draw, View, adversarial, apply, parse
from tasks.examples import Augmentation, Examples, Pair, unchanged
from tasks.readers.layouts import NLI_CLASSES, POLARITIES

Numbers = dict[str, Tensor]
Ids = list[list[int]]
COLLAPSED = 1e-2  # a mean cosine above 0.9999; random weights of BERT-base give a spread of 0.2, MiniLM 0.6 to 0.9
FLOORS = {"spread": (COLLAPSED, "all sentence vectors point one way: the encoder has collapsed")}
"""Minimum of a training metric, and the message with which training stops below it."""
ANCHOR_AND_OTHERS: Sequence[tuple[int, int]] = ((0, 0), (1, 1), (2, 1))


class ContrastiveModel(nn.Module):
    """An encoder, with a projection of its vectors (SimCSE, section 6.3) or a classifier of pairs (SBERT, section 3).

    The classifier sees [u; v; |u - v|], or the one vector of a pair that is read `together`. Neither is saved in the
    encoder folder, except a projection that is `kept` (as in supervised SimCSE): it replaces the encoder's own pooling
    layer, starting from random weights.
    """

    def __init__(
        self, encoder: BertModel, pooler: str, *, projection: str = "none", classes: int = 0, together: bool = False
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = "pooler" if projection == "kept" else pooler
        width = encoder.config.hidden_size
        self.projection = nn.Linear(width, width) if projection == "training" else None
        self.classifier = nn.Linear(width if together else 3 * width, classes) if classes else None
        kept = encoder.pooler_dense if projection == "kept" else None
        for layer in (kept, self.projection, self.classifier):
            if layer is not None:
                nn.init.normal_(layer.weight, std=encoder.config.initializer_range)
                nn.init.zeros_(layer.bias)

    @classmethod
    def of(cls, settings: ContrastiveSettings, encoder: BertModel) -> "ContrastiveModel":
        """The encoder with the layers that the settings ask for, their weights drawn by the run's seed."""
        torch.manual_seed(torch_seed(settings.training.seed, "heads"))
        classes = len(NLI_CLASSES) if settings.loss.data_kind == PAIRS else 0
        classes += len(POLARITIES) if settings.files.phrases else 0
        how = settings.encoder
        together = settings.loss.objective == "cross"
        return cls(encoder, how.pooler, projection=how.projection, classes=classes, together=together)

    def vectors(
        self, ragged: Ragged, views: Sequence[View] = (), draw: Draw | None = None, perturbation: Tensor | None = None
    ) -> Tensor:
        """The vectors that the loss sees, [B, D]; with `draw`, of sentences under `views`."""
        if draw is None:
            return self.projected(pooled_vectors(self.encoder, ragged, self.pooler))
        return self.pool(apply(self.encoder, ragged, views, draw, perturbation=perturbation), ragged)

    def pool(self, states: list[Tensor], ragged: Ragged) -> Tensor:
        """The vectors that the loss sees, from hidden states: [B, D]."""
        return self.projected(pool(self.encoder, states, ragged, self.pooler))

    def projected(self, pooled: Tensor) -> Tensor:
        """tanh(W x + b) where there is a projection in training only: [B, D]."""
        return pooled if self.projection is None else torch.tanh(self.projection(pooled))

    def classify(self, features: Tensor) -> Tensor:
        """W x + b of each row x of the features, [B, D] or [B, 3D], in fp32: [B, classes]."""
        assert self.classifier is not None, "a model without a classifier"
        logits: Tensor = self.classifier(features)
        return logits


def spread(vectors: Tensor) -> Tensor:
    """Root mean square distance of a batch's unit vectors [B, D] from their mean: 0 if all are equal, at most 1."""
    rows = torch.nn.functional.normalize(vectors.detach().double(), dim=1)
    return (rows - rows.mean(0)).square().sum(1).mean().sqrt()


@dataclass
class Objective(ABC):
    """A loss over k texts of each row, encoded as one ragged batch, or part by part (`chunk` sentences each).

    With `--views` each text is encoded under one of the two views, or under a third, the identity.
    """

    examples: Examples
    settings: ContrastiveSettings
    augment: Augmentation[Any] = unchanged
    views: tuple[View, ...] = field(init=False)

    def __post_init__(self) -> None:
        how = self.settings.augmentation
        self.views = (*parse(how.views, protect_special=how.protect_special), View()) if how.views else ()

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """The texts of a row that are encoded: (column of the data, number of the view), k of them."""
        return ANCHOR_AND_OTHERS

    @abstractmethod
    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The loss over the vectors [k * B, D] of the encoded texts, and further metrics to log."""

    def backward(self, model: nn.Module, batch: Step, context: Context) -> Numbers:
        """Gradients of the mean loss over the batch; returns the numbers to log, with the spread of the vectors.

        Of several ranks each encodes the sentences of its own rows, and takes the loss of the whole batch.
        """
        assert isinstance(model, ContrastiveModel)
        own = replace(batch, rows=ranks.share(batch.rows))
        (sentences, types), draw = self.inputs(own), self.draw(own)
        perturbation = self.perturbation(model, sentences, own, context) if sentences else None
        ends = np.cumsum([0, *map(len, sentences)])
        size = self.settings.parts_of or max(len(sentences), 1)
        parts = [slice(start, min(start + size, len(sentences))) for start in range(0, len(sentences), size)]

        def encode(number: int, part: slice) -> Tensor:
            ragged = Ragged.from_lists(sentences[part], types and types[part]).to(context.device)
            tokens = slice(ends[part.start], ends[part.stop])
            added = None if perturbation is None else perturbation[tokens]
            context.seed_dropout("encoder", number)
            with context.autocast():
                return model.vectors(ragged, self.views, draw and draw.take(part), added).float()

        def loss(vectors: Tensor) -> Numbers:
            numbers = self.loss(model, vectors, batch)
            return numbers | {"spread": spread(vectors)} if len(batch.rows) > 1 else numbers

        return cached.backward(encode, parts, loss, self.share(model, len(batch.rows), context))

    def share(self, model: ContrastiveModel, rows: int, context: Context) -> cached.Share | None:
        """The places of this rank's sentences among those of all `rows` of a batch; None for a single process."""
        if ranks.world() == 1:
            return None
        places = np.arange(len(self.texts) * rows).reshape(len(self.texts), rows)[:, ranks.rank() :: ranks.world()]
        width = model.encoder.config.hidden_size
        return cached.Share(torch.from_numpy(places.ravel()).to(context.device), len(self.texts) * rows, width)

    def inputs(self, batch: Step) -> tuple[Ids, Ids | None]:
        """Token ids of the first text of every row, then of the second of every row, and so on, and their types.

        They are k * B lists; the types are None where all are 0.
        """
        examples = self.augment(self.examples, batch)
        return [examples.sentence(row, column) for column, _ in self.texts for row in batch.rows], None

    def draw(self, batch: Step) -> Draw | None:
        """Random words for the views; each text has its own counter, whatever its place in the batch."""
        if not self.views:
            return None
        width = 1 + max(column for column, _ in self.texts)
        keys = np.concatenate([batch.rows * width + column for column, _ in self.texts])
        views = np.repeat([view for _, view in self.texts], len(batch.rows))
        return Draw(self.settings.training.seed, batch.epoch, keys, views)

    def perturbation(self, model: ContrastiveModel, sentences: Ids, batch: Step, context: Context) -> Tensor | None:
        """The perturbation of the embeddings of all sentences, [T, D]; None without an adversarial view."""
        return None


def ranked(logits: Tensor, directions: str = "one") -> Numbers:
    """NT-Xent of logits with the positives on the diagonal, and the share of rows whose positive is nearest."""
    return {
        "loss": losses.over_candidates(logits, directions),
        "accuracy": losses.in_batch_accuracy(logits.detach()),
    }


class NTXent(Objective):
    """NT-Xent with hard negatives (CBCL, equation 1), or with in-batch negatives alone."""

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """Anchor and positive, and the hard negative where the data have one and it is used."""
        return ANCHOR_AND_OTHERS[: self.examples.cache.columns if self.settings.loss.hard_negatives else 2]

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The loss, and the share of rows whose positive is the nearest candidate."""
        how = self.settings.loss
        anchor, positive, *others = vectors.chunk(len(self.texts))
        negative = others[0] if others else None
        ignored = self.false_negatives(batch).to(vectors.device) if how.mask_false_negatives else None
        weight = how.hard_weight if others else 0.0
        logits = losses.candidates(anchor, positive, negative, how.temperature, hard_weight=weight, ignored=ignored)
        return ranked(logits, how.directions)

    def false_negatives(self, batch: Step) -> Tensor:
        """Compared by the texts of the data file: synonyms may change one premise differently in two rows."""
        texts = (tuple(self.examples.sentence(row, column)) for column, _ in self.texts for row in batch.rows)
        return losses.false_negatives(*torch.from_numpy(distinct(texts)[1]).chunk(len(self.texts)))


class TripletLoss(Objective):
    """max(0, D(a, p) - D(a, n) + margin) (SelfCCL, section 3.1)."""

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The mean over the batch."""
        anchor, positive, negative = vectors.chunk(3)
        how = self.settings.loss
        return {"loss": losses.triplet(anchor, positive, negative, how.loss_margin, how.distance)}


class MarginLoss(Objective):
    """The contrastive loss with a margin over (anchor, positive) as similar, (anchor, negative) as dissimilar pairs."""

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The mean over both kinds of pairs (SelfCCL, section 3.1)."""
        anchor, positive, negative = vectors.chunk(3)
        similar = torch.arange(2 * len(anchor), device=vectors.device) < len(anchor)
        pairs = torch.cat([anchor, anchor]), torch.cat([positive, negative])
        return {"loss": losses.margin_contrastive(*pairs, similar, self.settings.loss.loss_margin)}


class Softmax(Objective):
    """Classification of NLI pairs over [u; v; |u - v|] (SBERT, section 3)."""

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """Both texts of a pair."""
        return ANCHOR_AND_OTHERS[:2]

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """Cross entropy and accuracy."""
        labels = torch.from_numpy(self.examples.labels[batch.rows].astype(np.int64)).to(vectors.device)
        logits = self.logits(model, vectors, labels)
        accuracy = (logits.detach().argmax(1) == labels).float().mean()
        return {"loss": losses.softmax_pairs(logits, labels), "accuracy": accuracy}

    def logits(self, model: ContrastiveModel, vectors: Tensor, labels: Tensor) -> Tensor:
        """The classifier over [u; v; |u - v|]: [B, classes]."""
        return model.classify(losses.softmax_features(*vectors.chunk(2)))


class CrossEncoder(Softmax):
    """Classification of NLI pairs that are read together, as [CLS] a [SEP] b [SEP] (BERT, section 4.1).

    It prepares an encoder for tasks that read pairs so (supplementary training; Phang et al., 2018). With `--phrases`
    some rows are single texts, [CLS] a [SEP], of two further classes; a row's softmax is over the classes of its kind.
    """

    texts = ((0, 0),)

    def inputs(self, batch: Step) -> tuple[Ids, Ids | None]:
        """Token ids and token types of each pair in one sequence, or of a single text: B lists each."""
        examples = self.augment(self.examples, batch)
        assert isinstance(examples, Pair)
        single = examples.labels[batch.rows] >= len(NLI_CLASSES)
        texts = [
            examples.alone(row, 0) if alone else examples.joined(row)
            for row, alone in zip(batch.rows, single, strict=True)
        ]
        return [ids for ids, _ in texts], [types for _, types in texts]

    def logits(self, model: ContrastiveModel, vectors: Tensor, labels: Tensor) -> Tensor:
        """The classifier over the rows' vectors, with -inf for the classes of the other kind of rows: [B, classes]."""
        logits = model.classify(vectors)
        of_pairs = torch.arange(logits.shape[1], device=labels.device) < len(NLI_CLASSES)
        return logits.masked_fill(of_pairs != (labels < len(NLI_CLASSES))[:, None], -math.inf)


class TwoViews(Objective):
    """NT-Xent over two views of each text (ConSERT, equation 1)."""

    texts = ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The loss, and the share of views whose other view is nearest; the loss of a single text is 0."""
        first, second = vectors.chunk(2)
        return ranked(losses.view_candidates(first, second, self.settings.loss.temperature))


class SimCSE(Objective):
    """Two passes of a text under dropout (SimCSE, section 3), and of a text and itself with punctuation (EdaCSE).

    L_SimCSE + lambda * L_EdaCSE (EdaCSE, equation 2), each NT-Xent with in-batch negatives.
    """

    @property
    def texts(self) -> Sequence[tuple[int, int]]:
        """The text twice, and its punctuated form, column 1, where that has a weight."""
        return ((0, 0), (0, 1), (1, 1)) if self.settings.loss.eda_weight else ((0, 0), (0, 1))

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: Step) -> Numbers:
        """The weighted sum; both terms are logged where there are two."""
        how = self.settings.loss
        first, second, *others = vectors.chunk(len(self.texts))
        numbers = ranked(losses.candidates(first, second, None, how.temperature))
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
        how, seen = self.settings.loss, dict(zip(self.texts, vectors.chunk(len(self.texts)), strict=True))
        sides = [ranked(losses.view_candidates(seen[side, 0], seen[side, 1], how.temperature)) for side in (0, 1)]
        # The mean over the 2N views of a side is half the sum of its two directions.
        contrast = 2 * torch.stack([side["loss"] for side in sides]).sum()
        return numbers | {
            "classification_loss": numbers["loss"],
            "views_loss": contrast,
            "views_accuracy": torch.stack([side["accuracy"] for side in sides]).mean(),
            "loss": numbers["loss"] + how.alpha * contrast,
        }

    def perturbation(self, model: ContrastiveModel, sentences: Ids, batch: Step, context: Context) -> Tensor | None:
        """From the gradient of the classification loss at the embeddings: one more pass, over the unchanged texts."""
        encoded = [self.views[number] for number in self._numbers]
        if not any(isinstance(view, Adversarial) for view in encoded):
            return None
        ragged = Ragged.from_lists(sentences[: 2 * len(batch.rows)]).to(context.device)
        context.seed_dropout("adversarial")
        with context.autocast():
            x = model.encoder.embed(ragged).detach().requires_grad_()
            vectors = model.pool(model.encoder.encode(x, ragged), ragged).float()
        (gradient,) = torch.autograd.grad(super().loss(model, vectors, batch)["loss"], x)
        made = [
            adversarial(gradient, ragged, view.rate, protect_special=view.protect_special)
            if isinstance(view, Adversarial)
            else torch.zeros_like(x)
            for view in encoded
        ]
        return torch.cat(made).detach()


OBJECTIVES: dict[str, type[Objective]] = {
    "nt-xent": NTXent,
    "triplet": TripletLoss,
    "margin": MarginLoss,
    "softmax": Softmax,
    "cross": CrossEncoder,
    "views": TwoViews,
    "joint": Joint,
    "simcse": SimCSE,
}


def chance(settings: ContrastiveSettings, rows: int, columns: int = 3) -> float | None:
    """The loss of a random guess: ln(number of candidates, or of classes).

    None for a loss over distances, and with `--phrases`, where it depends on how many rows of a batch are phrases.

    `rows` is the number of training rows, which may be less than a batch; `columns` is the number of texts of a row:
    with two there are no hard negatives. Candidates removed as false negatives are counted as well.
    """
    how, batch = settings.loss, min(settings.training.batch_size, rows)
    if settings.files.phrases:
        return None
    if how.objective in ("softmax", "cross"):
        return math.log(len(NLI_CLASSES))
    if how.objective not in IN_BATCH:
        return None
    if how.objective == "simcse":
        return math.log(batch) * (1 + how.eda_weight)
    if how.objective == "nt-xent":
        hard = how.hard_negatives and columns == 3
        there = float(np.logaddexp(math.log(2 * batch - 1), how.hard_weight)) if hard else math.log(batch)
        return there if how.directions == "one" else (there + math.log(batch)) / 2
    guess = math.log(2 * batch - 1)
    if how.objective == "views":
        return guess
    return math.log(len(NLI_CLASSES)) + how.alpha * 4 * guess  # two sides, two directions: see `Joint`


def objective(
    settings: ContrastiveSettings, train: Examples, tokenizer: Tokenizer, run: Path
) -> tuple[Objective, dict[str, Any] | None]:
    """The objective over the training data, and the manifest's entry of their synonyms, if there are any.

    `run` is the run's folder, for the texts before and after synonyms.
    """
    training, how = settings.training, settings.augmentation
    augment: Augmentation[Any]
    if how.marks_most:
        from tasks.augment.punctuation import Punctuation  # late, as the synonyms: most runs insert none

        column = 0 if settings.loss.data_kind == TEXTS else 1
        augment = Punctuation(tokenizer, column, seed=training.seed, most=how.marks_most, marks=how.marks)
        synonyms = None
    else:
        sets, data = {"nli": train}, settings.files.data
        augment, synonyms = synonym_augmentation(
            settings.synonyms, training, "pretrain", sets, tokenizer, data=data, run=run
        )
    return OBJECTIVES[settings.loss.objective](train, settings, augment), synonyms
