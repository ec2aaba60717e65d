"""Unsupervised SimCSE and EdaCSE: texts under dropout, and with punctuation inserted.

python -m tasks.contrastive.simcse --texts FILE --weights minilm --pooler mean --limit 0 --sts-dev none --keep last
python -m tasks.contrastive.simcse --preset edacse-bert
"""

import math
import sys
from dataclasses import dataclass

from torch import Tensor

from minbert.errors import UserError
from minbert.train import cli, distributed, plan, start
from minbert.train.plan import PlannedBatch
from minbert.train.settings import RUN_HELP, flag, parse, require_range
from minbert.train.start import OpenRun
from tasks.augment.punctuation import MARKS, Punctuation
from tasks.augment.synonyms import SynonymSettings, synonym_augmentation, synonym_files, write_replacements
from tasks.contrastive import corpora, losses
from tasks.contrastive.curriculum import shuffled_plan
from tasks.contrastive.data import find_dev_pairs, prepare_data
from tasks.contrastive.fit import fit_and_save
from tasks.contrastive.settings import (
    TASK,
    ContrastiveEncoderSettings,
    FileSettings,
    InBatchTrainingSettings,
    RunSettings,
    StageOneSettings,
)
from tasks.contrastive.step import ContrastiveModel, ContrastiveTrainStep, Metrics
from tasks.contrastive.unique_batches import sentence_numbers
from tasks.presets import PRESETS


@dataclass(frozen=True)
class LossSettings:
    """NT-Xent between two passes of a text, and between a text and itself with punctuation."""

    temperature: float = flag(0.05, "temperature of NT-Xent")
    eda_weight: float = flag(
        0.0, "weight of NT-Xent between a text and itself with punctuation inserted (EdaCSE's lambda)"
    )
    marks_most: int = flag(0, "insert 1 to N punctuation marks into the text (EdaCSE); 0 inserts none")
    marks: str = flag("english", "the punctuation that is inserted", choices=[*MARKS])

    def __post_init__(self) -> None:
        require_range(self, "temperature", 1e-4)
        require_range(self, "eda_weight", 0)
        require_range(self, "marks_most", 0)
        if bool(self.eda_weight) != bool(self.marks_most):
            raise UserError(
                "--eda-weight and --marks-most require each other: a weight, and the punctuation that it weighs"
            )
        if self.marks != "english" and not self.marks_most:
            raise UserError("--marks needs --marks-most and --eda-weight: without them no marks are inserted")


@dataclass(frozen=True)
class SimcseRunSettings(RunSettings):
    """`RunSettings` with a default folder of its own: stage two looks for its encoder in CBCL's."""

    run_dir: str = flag("runs/simcse", RUN_HELP, metavar="DIR")


@dataclass(frozen=True)
class SimcseSettings(StageOneSettings):
    """All settings of this command."""

    encoder: ContrastiveEncoderSettings
    data: corpora.TextSettings
    loss: LossSettings
    synonyms: SynonymSettings
    training: InBatchTrainingSettings
    files: FileSettings
    run: SimcseRunSettings

    def __post_init__(self) -> None:
        super().__post_init__()
        self.training.require_negatives()
        if self.loss.marks_most and self.synonyms.used:
            raise UserError("--synonyms and --marks-most exclude each other: both rewrite a text")


@dataclass(frozen=True)
class SimcseTrainStep(ContrastiveTrainStep):
    """Two passes of a text under dropout (SimCSE, section 3), and of a text and itself with punctuation (EdaCSE).

    L_SimCSE + lambda * L_EdaCSE (EdaCSE, equation 2), each NT-Xent with in-batch negatives.
    """

    loss_settings: LossSettings = LossSettings()

    @property
    def columns(self) -> list[int]:
        """The text twice, and its punctuated form, column 1, where that has a weight."""
        if self.loss_settings.eda_weight:
            return [0, 0, 1]
        return [0, 0]

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """The weighted sum; with punctuation, both terms are logged."""
        temperature = self.loss_settings.temperature
        # two passes of a text in one batch have dropout masks of their own
        first, second, *punctuated = vectors.chunk(len(self.columns))
        logits = losses.candidate_logits(first, second, None, temperature)
        loss = losses.nt_xent_from_logits(logits)
        accuracy = losses.nearest_share(logits)
        if not punctuated:
            return {"loss": loss, "accuracy": accuracy}
        punctuation_loss = losses.nt_xent(first, punctuated[0], None, temperature)
        total = loss + self.loss_settings.eda_weight * punctuation_loss
        return {"loss": total, "accuracy": accuracy, "punctuation_loss": punctuation_loss}


def main() -> None:
    """Read the settings, open the run, then train."""
    program = "-m tasks.contrastive.simcse"
    parsed = parse(SimcseSettings, PRESETS, sys.argv[1:], program=program, doc=__doc__, default="simcse")
    with start.open_run(parsed) as run:
        train(run)


def train(run: OpenRun[SimcseSettings]) -> None:
    """Read the texts, train on them and save the encoder."""
    options = run.settings
    training = options.training

    # read the texts; a missing or unfit file is an error before the encoder is loaded
    corpus = corpora.find_texts(options.data.texts, options.files.data)
    dev = find_dev_pairs(options.files)
    resources = synonym_files(options)
    initial = start.load_initial_encoder(options.encoder, run.device)
    rows_read = corpora.read_texts(corpus, options.data, training.seed, initial)
    data = prepare_data(rows_read, dev, options, initial, noun="texts", unlabelled=True)
    texts = sentence_numbers(data.train) if training.unique_batches else None
    count = len(data.train)
    steps = shuffled_plan(count, training, texts)

    # train on them
    model = ContrastiveModel(initial.model, initial.pooler, seed=training.seed, projection=options.encoder.projection)
    augment = synonym_augmentation(options, {TASK: data.train}, steps, run.folder.path)
    if options.loss.marks_most:
        augment = Punctuation(training.seed, options.loss.marks_most, options.loss.marks)
    inputs = {**data.inputs, **resources}
    start.begin_run(run, initial, inputs, data=data.entry, plan=plan.manifest_entry(steps), training_rows={TASK: count})
    write_replacements(augment)
    config = initial.model.config
    if not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
        distributed.note("the encoder has no dropout, so both passes of a text are the same (--encoder-dropout)")
    batch_size = min(training.batch_size, count)
    fit_and_save(
        run,
        initial,
        model.to(run.device),
        SimcseTrainStep(data.train, augment, training.chunk, options.loss),
        steps,
        data,
        loss="simcse",
        chance=math.log(batch_size) * (1 + options.loss.eda_weight),
    )


if __name__ == "__main__":
    cli.run(main)
