"""What all commands of stage one share: settings, the model, the training step, and a run from start to end.

The step takes the whole batch at once, or works in chunks and on several ranks.

Axes: B rows of a batch, k texts of a row, N = k * B sentences, n of them this rank's, D hidden.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from minbert import modules, weights
from minbert.bert import BertModel
from minbert.encoder import Encoder, pool
from minbert.errors import UserError
from minbert.fast.graphs import GraphedVectors
from minbert.files import data_path, write_json
from minbert.optimizer import AdamW, decay_groups
from minbert.ragged import Ragged, to_device
from minbert.seeds import torch_seed
from minbert.train import cli, distributed, loop, settings, start
from minbert.train.loop import LAST, StepContext
from minbert.train.plan import Plan, PlannedBatch
from minbert.train.settings import flag, require_range
from minbert.train.start import InitialEncoder, OpenRun
from tasks import metrics
from tasks.contrastive import evaluation
from tasks.contrastive.data import Data
from tasks.contrastive.evaluation import Evaluation
from tasks.examples import Augmentation, Examples, unchanged
from tasks.record import file_name, rows_of, write_rows

Metrics = dict[str, Tensor]
"""Scalars to log, among them the `loss` to minimise."""


@dataclass(frozen=True)
class EncoderSettings(settings.EncoderSettings):
    """The encoder that training starts from, and how its vectors are read."""

    max_length: int = flag(32, "longest sentence in tokens (0: as many as the encoder has positions)")
    projection: Literal["none", "training", "kept"] = flag(
        "none",
        "a new layer tanh(W x + b) over [CLS]: training = in training only (unsupervised SimCSE); kept = evaluated"
        " with the encoder and saved as its pooler (supervised SimCSE)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection != "none" and self.pooler != "cls":
            raise UserError(f"--projection {self.projection} is over [CLS]: it needs --pooler cls")


@dataclass(frozen=True)
class TrainingSettings(settings.TrainingSettings):
    """Training, evaluation and the selection of the final weights."""

    metric: ClassVar[str] = evaluation.METRIC

    correct_bias: bool = flag(True, "Adam's bias correction; without it the first updates are larger (ConSERT's code)")
    chunk: int = flag(
        0,
        "encode a batch in chunks of N sentences, in two passes: the same gradient with less memory (the extra pass of "
        "an adversarial view is not divided)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(self, "chunk", 0)


@dataclass(frozen=True)
class InBatchTrainingSettings(TrainingSettings):
    """Training with in-batch negatives."""

    unique_batches: bool = flag(
        True, "a text stands in one row of a batch, as it would be a negative of itself: other rows go to later batches"
    )

    def texts_apart(self, examples: Examples) -> np.ndarray | None:
        """For the plan: a number for every text, [rows, k], equal for those that the encoder sees as one; or None."""
        if not self.unique_batches:
            return None
        numbers: dict[tuple[int, ...], int] = {}
        texts = np.empty((len(examples), examples.cache.num_texts), dtype=np.int64)
        for row in range(len(examples)):
            for column in range(examples.cache.num_texts):
                texts[row, column] = numbers.setdefault(tuple(examples.sentence(row, column)), len(numbers))
        return texts


@dataclass(frozen=True)
class RunSettings(settings.RunSettings):
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag("runs/cbcl", "folder of the run: new, or empty, except with --resume", metavar="DIR")


def require_negatives(training: TrainingSettings) -> None:
    """Raises `UserError` if a batch has no second row, whose texts are the in-batch negatives of the first."""
    if training.batch_size < 2:
        raise UserError("--batch-size 1: a contrastive batch needs a second row for its in-batch negatives")


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
    the encoder's own pooling layer, starting from random weights.
    """

    def __init__(
        self,
        encoder: BertModel,
        pooler: str,
        *,
        seed: int,
        projection: str = "none",
        classifier: tuple[int, int] = (0, 0),
    ) -> None:
        """The new layers are drawn by the run's seed. `classifier` is (vectors that it reads, classes), or (0, 0).

        pooler: how the encoder's hidden states become one vector, one of `minbert.pooling.NAMES`.
        projection: "none", "training" or "kept".
        """
        super().__init__()
        torch.manual_seed(torch_seed(seed, "heads"))
        width = encoder.config.hidden_size
        vectors, classes = classifier
        self.encoder = encoder
        self.pooler = pooler
        self.graphed_vectors = GraphedVectors(encoder, pooler)
        self.projection = nn.Linear(width, width) if projection == "training" else None
        self.classifier = nn.Linear(vectors * width, classes) if classes else None
        kept = encoder.pooler_dense if projection == "kept" else None
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
        """The vectors that the loss sees: [B, D]."""
        return self.projected(self.graphed_vectors(ragged))

    def pool(self, states: list[Tensor], ragged: Ragged) -> Tensor:
        """The vectors that the loss sees, from hidden states: [B, D]."""
        return self.projected(pool(self.encoder, states, ragged, self.pooler))

    def projected(self, pooled: Tensor) -> Tensor:
        """tanh(W x + b) with a projection used in training only, else unchanged: [B, D]."""
        if self.projection is None:
            return pooled
        return torch.tanh(self.projection(pooled))

    def classify(self, features: Tensor) -> Tensor:
        """W x + b of each row x of the features, [B, D] or [B, 3D], in fp32: [B, classes]."""
        assert self.classifier is not None, "a model without a classifier"
        logits: Tensor = self.classifier(features)
        return logits


@dataclass(frozen=True)
class ContrastiveTrainStep:
    """A training step: the texts of a batch through the encoder, a loss over their vectors, and its gradients.

    A paper's loss is a subclass with a `loss`, and, where the texts are not encoded as they are, with `inputs` and
    `vectors`. `chunk` is the largest number of sentences that are encoded at once (0: all).
    """

    examples: Examples
    augment: Augmentation[Any] = unchanged
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

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """The loss over the vectors [k * B, D] of the texts, a mean over the batch, and further metrics to log."""
        raise NotImplementedError

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
        model.graphed_vectors.active = not self.chunk  # each of several parts is encoded twice
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
        texts = len(self.columns)
        rows = len(batch.rows)
        positions_by_text = np.arange(texts * rows).reshape(texts, rows)
        positions_of_rank = positions_by_text[:, distributed.rank() :: distributed.world()].ravel()
        positions = to_device(torch.from_numpy(positions_of_rank), context.device)  # [n]
        no_vectors = torch.zeros(0, model.encoder.config.hidden_size, device=context.device)
        own_vectors = torch.cat([no_vectors, *first_pass])
        all_vectors = distributed.gather(own_vectors, positions, texts * rows).requires_grad_()

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


def fit_and_save(
    run: OpenRun[Any],
    initial: InitialEncoder,
    model: ContrastiveModel,
    train_step: ContrastiveTrainStep,
    steps: Plan,
    data: Data,
    *,
    rows: Any,
    noun: str,
    loss: str,
    chance: float | None,
    triplets: Examples | None = None,
    next_flags: Sequence[str] = (),
    trains_sentences: bool = True,
) -> None:
    """Train a model over the plan's steps, and save the encoder, its scores and the page of the run.

    rows: int64 [n], those of `data.train` that are trained on; noun: what they are called, such as "triplets".
    loss: the name of the loss; chance: its value for a random guess, None where there is none.
    triplets: the training rows where an evaluation is over them too.
    next_flags: flags of stage two that follow from this run.
    trains_sentences: whether the run trains vectors of sentences, which the dev pairs judge.
    """
    training = run.settings.training
    kept = f"that is best by {evaluation.METRIC}"
    if training.keep == LAST:
        kept = "of the last step"
    distributed.say(f"evaluated on {data.dev.description}; the encoder {kept} is kept")
    batch = count_of(min(training.batch_size, len(rows)), noun)
    by_chance = f"; a guess has a loss of {chance:.3f}" if chance else ""
    distributed.say(f"{count_of(steps.total, 'steps')} of {batch}, {loss}{by_chance}; {run.describe(initial.model)}")
    start.note_rows("the training set", len(rows), training)

    encoder = Encoder(initial.model, initial.tokenizer, model.pooler, precision=run.precision)
    dev_evaluation = Evaluation(encoder, data.dev.pairs, triplets=triplets, rows=rows, batch_size=training.batch_size)
    before = dev_evaluation.evaluate()
    if before.metrics:
        distributed.say(f"before training: {evaluation.as_text(before.metrics)}")
    state = loop.fit(
        model,
        AdamW(
            decay_groups(model.parameters(), training.weight_decay), lr=training.lr, correct_bias=training.correct_bias
        ),
        train_step,
        steps,
        run.folder,
        training,
        run.settings.run,
        dev_evaluation.score,
        device=run.device,
        precision=run.precision,
        baseline=before.score,
    )
    after = dev_evaluation.kept(state)
    if distributed.rank():
        return

    folder = run.folder.path
    state_dict = initial.model.state_dict()
    kept_settings = modules.settings_kept_by_training(initial.folder)
    weights.save(folder / "encoder", state_dict, initial.config, initial.tokenizer, model.pooler, kept_settings)
    last_loss = evaluation.last_epoch_loss(run.folder.metrics(), steps)
    scores: dict[str, Any] = {}
    for name, value in after.metrics.items():
        scores[name] = {"before": before.metrics[name], "after": value}
    scores |= {
        "step": state.kept_step,
        "keep": training.keep,
        "metric": evaluation.METRIC,
        "best_step": state.best_step,
        "last_step": state.step,
        "dev_set": data.dev.name,
        "last_epoch_loss": last_loss,
        "chance_loss": chance,
    }
    write_json(folder / "scores.json", scores)
    if data.dev.pairs:
        name = evaluation.graded(data.dev.pairs)
        write_rows(folder, file_name(name), rows_of(data.dev.pairs[name], after.dev_cosines[name]))

    measured = evaluation.as_text(after.metrics) or "nothing is measured"
    cli.say(f"after training ({state.kept_weights(training, steps.total)}): {measured}")
    if trains_sentences and (sentence := evaluation.verdict(before, after, state)):
        cli.say(sentence)
    cli.say(f"mean training loss over the last epoch: {metrics.format_score(last_loss)}\n")
    run.folder.record_step(state.step)
    cli.run_module("tasks.report", str(folder))
    cli.say(f"encoder in {folder / 'encoder'}")
    if command := next_command(folder / "encoder", run.settings.files.data, next_flags):
        cli.say(f"next: {command}")


def next_command(encoder: Path, data: str, flags: Sequence[str] = ()) -> str:
    """The command of stage two that continues from an encoder, on the same data; `flags` are further flags.

    Empty if the data folder has no training file of the course's, which stage two reads.
    """
    data = data or os.environ.get("DATA_DIR", "")
    if not any([*data_path(data).glob("*-train.csv"), *data_path(data).glob("course/*-train.csv")]):
        return ""
    words = list(flags)
    if encoder != Path("runs/cbcl/encoder"):  # where stage two looks by itself
        words += ["--encoder", str(encoder)]
    if data:
        words += ["--data", data]
    if cli.console_command():
        return shlex.join(["minbert-train", *words])
    # the interpreter as it was typed, and stage two's script from wherever this command was started
    script = os.path.relpath(Path(__file__).parents[2] / "multitask_train.py")
    return shlex.join([sys.orig_argv[0], script, *words])


def count_of(count: int, noun: str) -> str:
    """A number and a noun in the plural: `1 step`, `2,000 steps`."""
    return f"{count:,} {noun[:-1] if count == 1 else noun}"
