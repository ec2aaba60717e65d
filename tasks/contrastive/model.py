"""The model of stage one, and its training step: of the whole batch at once, or in parts and on several ranks.

Axes: B rows of a batch, k texts of a row, N = k * B sentences, n of them this rank's, D hidden.
"""

from dataclasses import dataclass, replace
from typing import Any

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
from tasks.contrastive.objective import Inputs, Numbers, Objective
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Augmentation, Examples, unchanged


class ContrastiveModel(nn.Module):
    """An encoder, with a projection of its vectors (SimCSE, section 6.3) or a classifier of pairs (SBERT, section 3).

    The classifier sees [u; v; |u - v|], or the one vector of a pair that is read together. Neither is saved in the
    encoder folder, except a projection that is `kept` (as in supervised SimCSE): it replaces the encoder's own pooling
    layer, starting from random weights.
    """

    def __init__(self, settings: ContrastiveSettings, encoder: BertModel) -> None:
        """The weights of the new layers are drawn by the run's seed."""
        super().__init__()
        torch.manual_seed(torch_seed(settings.training.seed, "heads"))
        objective, projection, width = settings.objective, settings.encoder.projection, encoder.config.hidden_size
        features = 3 * width if objective.form == "bi" else width
        self.encoder = encoder
        self.pooler = settings.encoder.trained_pooler
        self.read = GraphedVectors(encoder, self.pooler)
        self.projection = nn.Linear(width, width) if projection == "training" else None
        self.classifier = nn.Linear(features, objective.classes) if objective.classes else None
        kept = encoder.pooler_dense if projection == "kept" else None
        for layer in (kept, self.projection, self.classifier):
            if layer is not None:
                nn.init.normal_(layer.weight, std=encoder.config.initializer_range)
                nn.init.zeros_(layer.bias)

    def train(self, mode: bool = True) -> "ContrastiveModel":
        """Set training mode."""
        super().train(mode)
        self.read.active = mode
        return self

    def vectors(self, ragged: Ragged) -> Tensor:
        """The vectors that the loss sees: [B, D]."""
        return self.projected(self.read(ragged))

    def pool(self, states: list[Tensor], ragged: Ragged) -> Tensor:
        """The vectors that the loss sees, from hidden states: [B, D]."""
        return self.projected(pool(self.encoder, states, ragged, self.pooler))

    def projected(self, pooled: Tensor) -> Tensor:
        """tanh(W x + b) with a projection used in training only, else unchanged: [B, D]."""
        return pooled if self.projection is None else torch.tanh(self.projection(pooled))

    def classify(self, features: Tensor) -> Tensor:
        """W x + b of each row x of the features, [B, D] or [B, 3D], in fp32: [B, classes]."""
        assert self.classifier is not None, "a model without a classifier"
        logits: Tensor = self.classifier(features)
        return logits


@dataclass(frozen=True)
class ContrastiveTrainStep:
    """A training step: the texts of a batch through the encoder, the objective's loss, and its gradients.

    `chunk` is the largest number of sentences that are encoded at once (0: all).
    """

    objective: Objective
    examples: Examples
    augment: Augmentation[Any] = unchanged
    chunk: int = 0

    def backward(self, model: nn.Module, batch: PlannedBatch, context: StepContext) -> Numbers:
        """Gradients of the mean loss over the batch; returns the numbers to log."""
        assert isinstance(model, ContrastiveModel)
        if distributed.world() > 1 or self.chunk:
            return self._backward_in_parts(model, batch, context)
        vectors = self.encode(model, self.inputs(model, batch, context), context)
        numbers = self.objective.loss(model, vectors, self.examples, batch)
        context.scaled(numbers["loss"]).backward()
        return {name: value.detach() for name, value in numbers.items()}

    def inputs(self, model: ContrastiveModel, batch: PlannedBatch, context: StepContext) -> Inputs:
        """The k * B sentences of a batch to encode."""
        return self.objective.inputs(model, self.augment(self.examples, batch), batch, context)

    def encode(self, model: ContrastiveModel, inputs: Inputs, context: StepContext, part: int = 0) -> Tensor:
        """Vectors of sentences in fp32, with dropout masks by the number of their part: [sentences, D]."""
        context.seed_dropout("encoder", part)
        with context.autocast():
            return self.objective.encode(model, inputs, context).float()

    def _backward_in_parts(self, model: ContrastiveModel, batch: PlannedBatch, context: StepContext) -> Numbers:
        """The same gradient, in chunks and on several ranks.

        A loss over the vectors of a whole batch needs only the vectors, not the activations that the encoder keeps for
        its backward pass (gradient caching; Gao et al., 2021). So each part is encoded and its graph dropped at once,
        the loss is differentiated with respect to the vectors, and every part is encoded again, with the same dropout
        masks, to carry its share of that gradient to the weights. Memory is that of one part plus the vectors; the
        price is a second forward pass, which a single part does not need.

        Each rank encodes the sentences of its own rows, maybe none, takes the loss of the vectors of all ranks, and
        carries the gradient of its own to the weights, so all gradients need only be summed over the ranks: parameters
        of the loss get theirs on the first rank alone.
        """
        model.read.active = not self.chunk  # each of several parts is encoded twice
        inputs = self.inputs(model, replace(batch, rows=distributed.own_rows(batch.rows)), context)
        size = self.chunk or max(len(inputs), 1)
        parts = [inputs.part(slice(start, start + size)) for start in range(0, len(inputs), size)]

        def encode(number: int) -> Tensor:
            return self.encode(model, parts[number], context, number)

        graph_kept = len(parts) == 1
        # Not under no_grad: attention takes another path there, whose last bits differ.
        first = [encode(number) if graph_kept else encode(number).detach() for number in range(len(parts))]
        no_rows = torch.zeros(0, model.encoder.config.hidden_size, device=context.device)
        texts, rows = len(self.objective.encoded(self.examples)), len(batch.rows)
        own = np.arange(texts * rows).reshape(texts, rows)[:, distributed.rank() :: distributed.world()].ravel()
        positions = to_device(torch.from_numpy(own), context.device)  # [n], of this rank's sentences among all N
        vectors = distributed.gather(torch.cat([no_rows, *first]), positions, texts * rows).requires_grad_()  # [N, D]
        numbers = self.objective.loss(model, vectors, self.examples, batch)
        loss = context.scaled(numbers["loss"])
        if distributed.rank() == 0:
            loss.backward()
            gradient = vectors.grad
        else:
            (gradient,) = torch.autograd.grad(loss, vectors)
        assert gradient is not None, "the loss does not depend on the vectors"
        pieces = gradient.index_select(0, positions).split([len(part) for part in first])
        for number, piece in enumerate(pieces):
            (first[number] if graph_kept else encode(number)).backward(piece)
        return {name: value.detach() for name, value in numbers.items()}
