"""The model and the training step of all commands of stage one.

The step takes the whole batch at once, or works in chunks and on several ranks.

Axes: B rows of a batch, k texts of a row, N = k * B sentences, n of them this rank's, D hidden.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from minbert.bert import BertModel
from minbert.encoder import pool
from minbert.fast.graphs import GraphedVectors
from minbert.ragged import Ragged, to_device
from minbert.seeds import torch_seed
from minbert.train import distributed
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from tasks.examples import Augmentation, Examples, unchanged

Metrics = dict[str, Tensor]
"""Scalars to log, among them the `loss` to minimise."""


@dataclass(frozen=True)
class Inputs:
    """Sentences to encode: token ids with their special tokens, and token types (None: all 0)."""

    sentences: list[list[int]]
    types: list[list[int]] | None = None

    def __len__(self) -> int:
        return len(self.sentences)

    def part(self, indices: slice) -> Self:
        """Some of the sentences."""
        types = self.types[indices] if self.types else None
        return replace(self, sentences=self.sentences[indices], types=types)

    def ragged(self) -> Ragged:
        """All sentences as one batch."""
        return Ragged.from_lists(self.sentences, self.types)


class ContrastiveModel(nn.Module):
    """An encoder, with a projection of its vectors (SimCSE, section 6.3) or a classifier of pairs (SBERT, section 3).

    Neither is saved in the encoder folder, except a projection that is `kept` (as in supervised SimCSE): it replaces
    the encoder's own pooling layer, starting from random weights, and becomes the pooler. Scores before training are of
    this random layer.
    """

    def __init__(
        self,
        encoder: BertModel,
        pooler: str,
        *,
        seed: int,
        projection: str = "none",
        classifier: tuple[int, int] | None = None,
    ) -> None:
        """The new layers are drawn by the run's seed.

        pooler: how the encoder's hidden states become one vector, one of `minbert.pooling.NAMES`.
        projection: "none", "training" or "kept".
        classifier: the number of vectors that it reads, and of classes.
        """
        super().__init__()
        torch.manual_seed(torch_seed(seed, "heads"))
        width = encoder.config.hidden_size
        self.encoder = encoder
        self.pooler = pooler
        kept = None
        if projection == "kept":
            # the encoder's own pooling layer, trained anew; weights may have none
            self.pooler = "pooler"
            if encoder.pooler_dense is None:
                encoder.pooler_dense = nn.Linear(width, width).to(encoder.device)
            kept = encoder.pooler_dense
        self.graphed_vectors = GraphedVectors(encoder, self.pooler)
        self.projection = nn.Linear(width, width) if projection == "training" else None
        self.classifier = None
        if classifier:
            vectors, classes = classifier
            self.classifier = nn.Linear(vectors * width, classes)
        for layer in (kept, self.projection, self.classifier):
            if layer is not None:
                nn.init.normal_(layer.weight, std=encoder.config.initializer_range)
                nn.init.zeros_(layer.bias)

    def train(self, mode: bool = True) -> "ContrastiveModel":
        """Set training mode."""
        super().train(mode)
        self.graphed_vectors.active = mode
        return self

    def vectors(self, ragged: Ragged) -> Tensor:
        """The vectors that the loss sees: [N, D]."""
        return self.projected(self.graphed_vectors(ragged))

    def pool(self, states: list[Tensor], ragged: Ragged) -> Tensor:
        """The vectors that the loss sees, from hidden states: [N, D]."""
        return self.projected(pool(self.encoder, states, ragged, self.pooler))

    def projected(self, pooled: Tensor) -> Tensor:
        """tanh(W x + b) with a projection used in training only, else unchanged: [N, D]."""
        if self.projection is None:
            return pooled
        return torch.tanh(self.projection(pooled))

    def classify(self, features: Tensor) -> Tensor:
        """W x + b of each row x of the features, [B, D] or [B, 3D], in fp32: [B, classes]."""
        assert self.classifier is not None, "a model without a classifier"
        logits: Tensor = self.classifier(features)
        return logits


@dataclass(frozen=True)
class ContrastiveTrainStep(ABC):
    """A training step: the texts of a batch through the encoder, a loss over their vectors, and its gradients.

    A paper's loss is a subclass with a `loss`, and, where the texts are not encoded as they are, with `inputs` and
    `vectors`. `chunk` is the largest number of sentences that are encoded at once (0: all).
    """

    examples: Examples
    augment: Augmentation = unchanged
    chunk: int = 0

    @property
    def columns(self) -> list[int]:
        """The k texts of a row that are encoded, as columns of the data."""
        return list(range(self.examples.cache.num_texts))

    def inputs(self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext) -> Inputs:
        """The first text of every row, then the second of every row, and so on: k * B sentences."""
        sentences = []
        for column in self.columns:
            sentences += [examples.sentence(row, column) for row in batch.rows]
        return Inputs(sentences)

    def vectors(self, model: ContrastiveModel, inputs: Inputs, context: StepContext) -> Tensor:
        """The vectors of the sentences that the loss sees: [sentences, D]."""
        return model.vectors(inputs.ragged().to(context.device))

    @abstractmethod
    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """The loss over the vectors [k * B, D] of the texts, a mean over the batch, and further metrics to log."""

    def backward(self, model: nn.Module, batch: PlannedBatch, context: StepContext) -> Metrics:
        """Gradients of the mean loss over the batch; returns the metrics to log."""
        assert isinstance(model, ContrastiveModel)
        if distributed.world() > 1 or self.chunk:
            return self._backward_in_parts(model, batch, context)
        inputs = self.inputs(model, self.augment(self.examples, batch), batch, context)
        metrics = self.loss(model, self.encode(model, inputs, context), batch)
        context.scaled(metrics["loss"]).backward()
        return {name: value.detach() for name, value in metrics.items()}

    def encode(self, model: ContrastiveModel, inputs: Inputs, context: StepContext, part: int = 0) -> Tensor:
        """Vectors of sentences in fp32, with dropout masks by the number of their part: [sentences, D]."""
        context.seed_dropout("encoder", part)
        with context.autocast():
            return self.vectors(model, inputs, context).float()

    def _backward_in_parts(self, model: ContrastiveModel, batch: PlannedBatch, context: StepContext) -> Metrics:
        """The same gradient, in chunks and on several ranks.

        A loss over the vectors of a whole batch needs only the vectors, not the activations that the encoder keeps for
        its backward pass (gradient caching; Gao et al., 2021). So each part is encoded and its graph dropped at once,
        the loss is differentiated with respect to the vectors, and every part is encoded again, with the same dropout
        masks, to carry its share of that gradient to the weights. Memory is that of one part plus the vectors; the
        price is a second forward pass, which a single part does not need.

        Each rank encodes the sentences of its own rows, maybe none, takes the loss of the vectors of all ranks, and
        carries the gradient of its own to the weights, so all gradients need only be summed over the ranks.
        """
        # a CUDA graph has other dropout masks than a plain pass, and both passes of a part need the same masks
        model.graphed_vectors.active = not self.chunk
        own_batch = replace(batch, rows=distributed.own_rows(batch.rows))
        inputs = self.inputs(model, self.augment(self.examples, own_batch), own_batch, context)
        size = self.chunk or max(len(inputs), 1)
        parts = [inputs.part(slice(start, start + size)) for start in range(0, len(inputs), size)]

        # 1. the vectors of this rank's sentences; not under no_grad: attention takes another path there, whose last
        # bits differ
        keep_graph = len(parts) == 1
        first_pass = []
        for number, part in enumerate(parts):
            vectors = self.encode(model, part, context, number)
            first_pass.append(vectors if keep_graph else vectors.detach())
            del vectors  # and its graph, before the next part is encoded

        # 2. the vectors of all ranks, in the order of one process: [N, D]
        num_texts = len(self.columns)
        num_rows = len(batch.rows)
        positions_by_text = np.arange(num_texts * num_rows).reshape(num_texts, num_rows)
        positions_of_rank = positions_by_text[:, distributed.rank() :: distributed.world()].ravel()
        positions = to_device(torch.from_numpy(positions_of_rank), context.device)  # [n]
        no_vectors = torch.zeros(0, model.encoder.config.hidden_size, device=context.device)
        own_vectors = torch.cat([no_vectors, *first_pass])
        all_vectors = distributed.gather(own_vectors, positions, num_texts * num_rows).requires_grad_()

        # 3. the loss and its gradient with respect to them; parameters of the loss get theirs on the first rank alone
        metrics = self.loss(model, all_vectors, batch)
        loss = context.scaled(metrics["loss"])
        if distributed.rank() == 0:
            loss.backward()
            gradient = all_vectors.grad
        else:
            (gradient,) = torch.autograd.grad(loss, all_vectors)
        assert gradient is not None, "the loss does not depend on the vectors"

        # 4. each part's share of the gradient, back through the encoder
        pieces = gradient.index_select(0, positions).split([len(part) for part in first_pass])
        for number, piece in enumerate(pieces):
            vectors = first_pass[number] if keep_graph else self.encode(model, parts[number], context, number)
            vectors.backward(piece)
            del vectors
        return {name: value.detach() for name, value in metrics.items()}
