"""Classification of labelled NLI pairs: SBERT's over two vectors, and of pairs that are read together, with phrases.

python -m tasks.contrastive.nli --preset sbert-nli
python -m tasks.contrastive.nli --preset intermediate --run-dir runs/intermediate
"""

import math
import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from minbert.errors import UserError
from minbert.ragged import to_device
from minbert.train import cli, plan, start
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from minbert.train.settings import RUN_HELP, DataSettings, flag, parse
from minbert.train.start import OpenRun
from tasks.augment.synonyms import SynonymSettings, synonym_augmentation, synonym_files, write_replacements
from tasks.contrastive import losses
from tasks.contrastive.curriculum import shuffled_plan
from tasks.contrastive.data import find_dev_pairs, prepare_data
from tasks.contrastive.fit import fit_and_save
from tasks.contrastive.pairs import PhraseFileSettings, find_pairs, find_phrases, read_pairs
from tasks.contrastive.settings import TASK, EncoderSettings, RunSettings, StageOneSettings, TrainingSettings
from tasks.contrastive.step import ContrastiveModel, ContrastiveTrainStep, Inputs, Metrics
from tasks.examples import Examples
from tasks.presets import PRESETS
from tasks.readers.kinds import NLI_CLASSES, POLARITIES


@dataclass(frozen=True)
class LossSettings:
    """What is classified."""

    objective: Literal["softmax", "cross"] = flag(
        "softmax",
        "softmax = the classes of NLI over [u; v; |u - v|] (SBERT, section 3); cross = of pairs that are read together",
    )


@dataclass(frozen=True)
class NliRunSettings(RunSettings):
    """`RunSettings` with a default folder of its own: stage two looks for its encoder in CBCL's."""

    run_dir: str = flag("runs/nli", RUN_HELP, metavar="DIR")


@dataclass(frozen=True)
class NliSettings(StageOneSettings):
    """All settings of this command."""

    encoder: EncoderSettings
    data: DataSettings
    loss: LossSettings
    synonyms: SynonymSettings
    training: TrainingSettings
    files: PhraseFileSettings
    run: NliRunSettings

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss.objective == "softmax":
            if self.files.phrases:
                raise UserError("--phrases needs --objective cross: a single text has no second vector")
        elif self.training.selects_by_dev:
            raise UserError(
                "--objective cross trains no sentence embeddings, so --sts-dev cannot select a checkpoint: use --keep "
                "last, without --patience"
            )


@dataclass(frozen=True)
class SoftmaxTrainStep(ContrastiveTrainStep):
    """Cross entropy over the classes of NLI, from [u; v; |u - v|] (SBERT, section 3)."""

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """Cross entropy and accuracy."""
        return classify_pairs(model, vectors, classes_of(self.examples, batch, vectors.device))


@dataclass(frozen=True)
class CrossTrainStep(ContrastiveTrainStep):
    """Cross entropy over the classes of pairs that are read together, as [CLS] a [SEP] b [SEP] (BERT, section 4.1).

    It prepares an encoder for tasks that read pairs so (supplementary training; Phang et al., 2018). With `--phrases`
    some rows are single texts, [CLS] a [SEP], of two further classes; a row's softmax is over the classes of its kind.
    """

    @property
    def columns(self) -> list[int]:
        """One sequence for each row."""
        return [0]

    def inputs(self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext) -> Inputs:
        """Token ids and token types of each pair in one sequence, or of a single text: B lists each."""
        sentences = []
        types = []
        for row in batch.rows:
            is_phrase = examples.labels[row] >= len(NLI_CLASSES)
            if is_phrase:
                ids = examples.sentence(row, 0)
                token_types = [0] * len(ids)
            else:
                ids, token_types = examples.joined(row)
            sentences.append(ids)
            types.append(token_types)
        return Inputs(sentences, types)

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """Cross entropy and accuracy, with logits of -inf for the classes of the other kind of rows."""
        labels = classes_of(self.examples, batch, vectors.device)
        logits = model.classify(vectors)
        class_of_pairs = torch.arange(logits.shape[1], device=labels.device) < len(NLI_CLASSES)
        is_pair = labels < len(NLI_CLASSES)
        return classification(logits.masked_fill(class_of_pairs != is_pair[:, None], -math.inf), labels)


def classes_of(examples: Examples, batch: PlannedBatch, device: torch.device) -> Tensor:
    """The classes of the rows of a batch: int64 [B]."""
    return to_device(torch.from_numpy(examples.labels[batch.rows].astype(np.int64)), device)


def classify_pairs(model: ContrastiveModel, vectors: Tensor, labels: Tensor) -> Metrics:
    """Cross entropy and accuracy of B pairs; `vectors` [2B, D] are those of first texts, then those of second ones."""
    u, v = vectors.chunk(2)
    return classification(model.classify(losses.softmax_features(u, v)), labels)


def classification(logits: Tensor, labels: Tensor) -> Metrics:
    """Cross entropy and accuracy of logits [B, classes] and labels [B]."""
    accuracy = (logits.detach().argmax(1) == labels).float().mean()
    return {"loss": F.cross_entropy(logits, labels), "accuracy": accuracy}


def main() -> None:
    """Read the settings, open the run, then train."""
    program = "-m tasks.contrastive.nli"
    parsed = parse(NliSettings, PRESETS, sys.argv[1:], program=program, doc=__doc__, default="sbert-nli")
    with start.open_run(parsed) as run:
        train(run)


def train(run: OpenRun[NliSettings]) -> None:
    """Read the pairs, train on them and save the encoder."""
    options = run.settings
    training = options.training
    cross = options.loss.objective == "cross"

    # read the pairs
    pairs = find_pairs(options.files)
    phrases = find_phrases(options.files)
    dev = find_dev_pairs(options.files)
    resources = synonym_files(options)
    initial = start.load_initial_encoder(options.encoder, run.device)
    if cross and initial.model.config.type_vocab_size < 2:
        raise UserError("--objective cross: these weights embed one token type; a pair read together needs two")
    rows_read = read_pairs(pairs, phrases, options.files.data, initial)
    form = "cross" if cross else "bi"
    data = prepare_data(rows_read, dev, options, initial, noun="pairs", form=form)
    count = len(data.train)
    steps = shuffled_plan(count, training)

    # train on them
    classes = len(NLI_CLASSES)
    if phrases:
        classes += len(POLARITIES)
    vectors_read = 1 if cross else 3  # one of the pair, or u, v and |u - v|
    model = ContrastiveModel(initial.model, initial.pooler, seed=training.seed, classifier=(vectors_read, classes))
    augment = synonym_augmentation(options, {TASK: data.train}, steps, run.folder.path)
    inputs = {**data.inputs, **resources}
    start.begin_run(run, initial, inputs, data=data.entry, plan=plan.manifest_entry(steps), training_rows={TASK: count})
    write_replacements(augment)
    train_step = CrossTrainStep if cross else SoftmaxTrainStep
    # a cross-encoder has trained no vectors of sentences: stage two reads them by the weights it started from
    next_flags = []
    if cross:
        next_flags = ["--preset", "best", "--sentence-encoder", options.encoder.weights]
    fit_and_save(
        run,
        initial,
        model.to(run.device),
        train_step(data.train, augment, training.chunk),
        steps,
        data,
        loss=options.loss.objective,
        chance=None if phrases else math.log(classes),  # with phrases it depends on how many a batch has
        next_flags=next_flags,
        trains_sentences=not cross,
    )


if __name__ == "__main__":
    cli.run(main)
