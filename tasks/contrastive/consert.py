"""ConSERT: two views of each text, made at the embedding layer, alone or joined with the classification of NLI pairs.

python -m tasks.contrastive.consert --preset consert
python -m tasks.contrastive.consert --preset consert-joint --run-dir runs/joint
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from minbert.errors import UserError
from minbert.train import cli, plan, start
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from minbert.train.settings import RUN_HELP, flag, parse, refuse_flags, require_range
from minbert.train.start import OpenRun
from tasks.augment.synonyms import SynonymSettings, synonym_augmentation, synonym_files, write_replacements
from tasks.contrastive import corpora, losses, nli
from tasks.contrastive.curriculum import shuffled_plan
from tasks.contrastive.data import find_dev_pairs, prepare_data
from tasks.contrastive.fit import fit_and_save
from tasks.contrastive.pairs import NliFileSettings, find_pairs, read_pairs
from tasks.contrastive.settings import (
    TASK,
    ContrastiveEncoderSettings,
    InBatchTrainingSettings,
    RunSettings,
    StageOneSettings,
)
from tasks.contrastive.step import ContrastiveModel, ContrastiveTrainStep, Inputs, Metrics
from tasks.contrastive.unique_batches import sentence_numbers
from tasks.contrastive.views import Adversarial, Streams, View, apply, parse_views
from tasks.examples import Examples
from tasks.presets import PRESETS
from tasks.readers.kinds import NLI_CLASSES


@dataclass(frozen=True)
class LossSettings:
    """The views of a text and the loss over them."""

    objective: Literal["views", "joint"] = flag(
        "views",
        "views = NT-Xent over two views of each text (equation 1); joint = classification of NLI pairs plus alpha "
        "times NT-Xent over two views of their texts (section 3.3)",
    )
    views: str = flag(
        "feature-cutoff:0.2,shuffle",
        "two views, such as feature-cutoff:0.2,shuffle, from none, shuffle, token-cutoff, span-cutoff (rate 0.15 by "
        "default), feature-cutoff, dropout (0.2), and with --objective joint adversarial (1)",
        metavar="VIEW,VIEW",
    )
    protect_special: bool = flag(True, "views leave [CLS] and [SEP] as they are")
    temperature: float = flag(0.05, "temperature of NT-Xent")
    alpha: float = flag(
        0.15, "with --objective joint, weight of the views' loss, which is added to the classification's"
    )

    def __post_init__(self) -> None:
        require_range(self, "temperature", 1e-4)
        require_range(self, "alpha", 0)
        views = self.views_by_number()
        if self.objective == "views" and any(isinstance(view, Adversarial) for view in views):
            raise UserError("--views: an adversarial view needs the supervision of --objective joint")

    def views_by_number(self) -> tuple[View, View, View]:
        """Numbers 0 and 1 are both views, number 2 is the identity. Raises `UserError`."""
        first, second = parse_views(self.views, protect_special=self.protect_special)
        return first, second, View()


@dataclass(frozen=True)
class ConsertRunSettings(RunSettings):
    """`RunSettings` with a default folder of its own: stage two looks for its encoder in CBCL's."""

    run_dir: str = flag("runs/consert", RUN_HELP, metavar="DIR")


@dataclass(frozen=True)
class ConsertSettings(StageOneSettings):
    """All settings of this command."""

    encoder: ContrastiveEncoderSettings
    data: corpora.TextSettings
    loss: LossSettings
    synonyms: SynonymSettings
    training: InBatchTrainingSettings
    files: NliFileSettings
    run: ConsertRunSettings

    def __post_init__(self) -> None:
        super().__post_init__()
        self.training.require_negatives()

    def check_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for a flag that has no effect."""
        super().check_overrides(overrides)
        objective = self.loss.objective
        others = ("alpha", "nli_pairs") if objective == "views" else ("texts", "keep_duplicates")
        refuse_flags(others, overrides, f"does not belong to --objective {objective}")


@dataclass(frozen=True, kw_only=True)
class ViewInputs(Inputs):
    """Sentences with their random streams, and the perturbation of the adversarial view, [T, D], if there is one."""

    streams: Streams
    perturbation: Tensor | None = None

    def part(self, indices: slice) -> Self:
        """Some of the sentences, with their streams and their tokens' perturbation."""
        part = super().part(indices)
        perturbation = self.perturbation
        if perturbation is not None:
            # its rows are tokens
            ends = np.cumsum([0, *map(len, self.sentences)])
            perturbation = perturbation[ends[indices.start] : ends[min(indices.stop, len(self))]]
        return replace(part, streams=self.streams.take(indices), perturbation=perturbation)


@dataclass(frozen=True)
class ViewsTrainStep(ContrastiveTrainStep):
    """NT-Xent over two views of each text (ConSERT, equation 1)."""

    loss_settings: LossSettings = LossSettings()

    @property
    def texts_and_views(self) -> list[tuple[int, int]]:
        """What is encoded of a row: (column of the data, number of the view)."""
        return [(0, 0), (0, 1)]

    @property
    def columns(self) -> list[int]:
        """The column of each text that is encoded, once for each of its views."""
        return [column for column, _ in self.texts_and_views]

    def inputs(
        self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext
    ) -> ViewInputs:
        """The texts, each with a random stream of its own, whatever its position in the batch."""
        sentences = super().inputs(model, examples, batch, context).sentences
        # one key for each text of the data, so that both views of a text have it; the views' numbers tell them apart
        columns = 1 + max(self.columns)
        keys = np.concatenate([batch.rows * columns + column for column in self.columns])
        views = np.repeat([view for _, view in self.texts_and_views], len(batch.rows))
        return ViewInputs(sentences, streams=Streams(context.seed, batch.epoch, keys, views))

    def vectors(self, model: ContrastiveModel, inputs: Inputs, context: StepContext) -> Tensor:
        """The vectors of sentences under their views: [sentences, D]."""
        assert isinstance(inputs, ViewInputs)
        ragged = inputs.ragged().to(context.device)
        views = self.loss_settings.views_by_number()
        states = apply(model.encoder, ragged, views, inputs.streams, perturbation=inputs.perturbation)
        return model.pool(states, ragged)

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """The loss, and the share of views whose other view is nearest; the loss of a single text is 0."""
        first, second = vectors.chunk(2)
        logits = losses.view_logits(first, second, self.loss_settings.temperature)
        return {"loss": losses.nt_xent_from_logits(logits), "accuracy": losses.nearest_share(logits)}


@dataclass(frozen=True)
class JointTrainStep(ViewsTrainStep):
    """Classification of NLI pairs plus alpha times NT-Xent over two views of their texts (ConSERT, section 3.3).

    The paper writes L_ce + alpha * L_con, with L_con the mean over the 2N views of equation 1, and leaves open how the
    two texts of a pair enter it. The released code contrasts premises with premises and hypotheses with hypotheses, and
    SUMS the terms: both sides, and on each side both directions (first view to second, and back), each a mean over the
    B rows. So does this loss, because alpha = 0.15 was tuned with that sum. It is four times the mean over all
    views: the paper's formula taken literally means alpha = 0.15 / 4.

    As in the released code, one encoding serves as the view `none` and for the classification: 4 encodings a row with
    such a view, 6 without one. The classifier sees [u; v; |u - v|] (equation 2); the released scripts append
    max(u, v)^2, which the paper does not mention.
    """

    @property
    def texts_and_views(self) -> list[tuple[int, int]]:
        """Both texts unchanged, for the classification; then through the views that change them."""
        pairs = []
        for view in self.encoded_views:
            pairs += [(0, view), (1, view)]
        return pairs

    @property
    def encoded_views(self) -> list[int]:
        """The numbers of the views that are encoded; the unchanged texts come first."""
        first, second, _ = self.loss_settings.views_by_number()
        if type(first) is View:
            return [0, 1]
        if type(second) is View:
            return [1, 0]
        return [2, 0, 1]

    def inputs(
        self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext
    ) -> ViewInputs:
        """As `ViewsTrainStep.inputs`, with an adversarial view's perturbation."""
        inputs = super().inputs(model, examples, batch, context)
        return replace(inputs, perturbation=self.perturbation(model, inputs, batch, context))

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """The sum; both terms are logged too."""
        # the first vectors are those of both texts unchanged
        labels = nli.classes_of(self.examples, batch, vectors.device)
        metrics = nli.classify_pairs(model, vectors[: 2 * len(labels)], labels)
        keys = self.texts_and_views
        by_text_and_view = dict(zip(keys, vectors.chunk(len(keys)), strict=True))
        loss_of_sides = []
        accuracy_of_sides = []
        for side in (0, 1):
            first = by_text_and_view[side, 0]
            second = by_text_and_view[side, 1]
            logits = losses.view_logits(first, second, self.loss_settings.temperature)
            loss_of_sides.append(losses.nt_xent_from_logits(logits))
            accuracy_of_sides.append(losses.nearest_share(logits))
        # the mean over the 2N views of a side is half the sum of its two directions
        contrast = 2 * torch.stack(loss_of_sides).sum()
        return metrics | {
            "classification_loss": metrics["loss"],
            "views_loss": contrast,
            "views_accuracy": torch.stack(accuracy_of_sides).mean(),
            "loss": metrics["loss"] + self.loss_settings.alpha * contrast,
        }

    def perturbation(
        self, model: ContrastiveModel, inputs: Inputs, batch: PlannedBatch, context: StepContext
    ) -> Tensor | None:
        """From the gradient of the classification loss at the embeddings: one more pass, over the unchanged texts."""
        views = [self.loss_settings.views_by_number()[number] for number in self.encoded_views]
        if not any(isinstance(view, Adversarial) for view in views) or not len(inputs):
            return None
        ragged = Inputs(inputs.sentences[: 2 * len(batch.rows)]).ragged().to(context.device)
        context.seed_dropout("adversarial")
        with context.autocast():
            x = model.encoder.embed(ragged).detach().requires_grad_()
            vectors = model.pool(model.encoder.encode(x, ragged), ragged).float()
        labels = nli.classes_of(self.examples, batch, vectors.device)
        loss = nli.classify_pairs(model, vectors, labels)["loss"]
        (gradient,) = torch.autograd.grad(context.scaled(loss), x)
        parts = []
        for view in views:
            if isinstance(view, Adversarial):
                parts.append(view.perturbation(gradient, ragged))
            else:
                parts.append(torch.zeros_like(x))
        return torch.cat(parts)


def chance_loss(options: LossSettings, rows: int) -> float:
    """The loss of a random guess for a batch of `rows`; the joint one has two sides with two directions each."""
    contrast = math.log(2 * rows - 1)
    if options.objective == "views":
        return contrast
    return math.log(len(NLI_CLASSES)) + options.alpha * 4 * contrast


def main() -> None:
    """Read the settings, open the run, then train."""
    program = "-m tasks.contrastive.consert"
    parsed = parse(ConsertSettings, PRESETS, sys.argv[1:], program=program, doc=__doc__, default="consert")
    with start.open_run(parsed) as run:
        train(run)


def train(run: OpenRun[ConsertSettings]) -> None:
    """Read the texts or the pairs, train on them and save the encoder."""
    options = run.settings
    training = options.training
    joint = options.loss.objective == "joint"

    # read the texts, or the pairs
    if joint:
        pairs = find_pairs(options.files)
    else:
        corpus = corpora.find_texts(options.data.texts, options.files.data)
    dev = find_dev_pairs(options.files)
    resources = synonym_files(options)
    initial = start.load_initial_encoder(options.encoder, run.device)
    if joint:
        rows_read = read_pairs(pairs, [], options.files.data, initial)
        data = prepare_data(rows_read, dev, options, initial, noun="pairs")
    else:
        rows_read = corpora.read_texts(corpus, options.data, training.seed, initial)
        data = prepare_data(rows_read, dev, options, initial, noun="texts", unlabelled=True)
    texts = sentence_numbers(data.train) if training.unique_batches else None
    count = len(data.train)
    steps = shuffled_plan(count, training, texts)

    # train on them
    model = ContrastiveModel(
        initial.model,
        initial.pooler,
        seed=training.seed,
        projection=options.encoder.projection,
        classifier=(3, len(NLI_CLASSES)) if joint else None,
    )
    augment = synonym_augmentation(options, {TASK: data.train}, steps, run.folder.path)
    inputs = {**data.inputs, **resources}
    start.begin_run(run, initial, inputs, data=data.entry, plan=plan.manifest_entry(steps), training_rows={TASK: count})
    write_replacements(augment)
    train_step = JointTrainStep if joint else ViewsTrainStep
    fit_and_save(
        run,
        initial,
        model.to(run.device),
        train_step(data.train, augment, training.chunk, options.loss),
        steps,
        data,
        loss=options.loss.objective,
        chance=chance_loss(options.loss, min(training.batch_size, count)),
    )


if __name__ == "__main__":
    cli.run(main)
