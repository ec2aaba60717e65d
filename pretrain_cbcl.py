"""CBCL: curriculum-based contrastive pre-training on NLI triplets, with WordNet synonyms (CBCL, section 4; SelfCCL).

python pretrain_cbcl.py
python pretrain_cbcl.py --weights minilm --data DIR --run-dir runs/minilm
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import tasks  # noqa: F401  before torch: it sets GOMP_SPINCOUNT, which OpenMP reads when torch is loaded

# isort: split
import torch
from safetensors.numpy import save
from torch import Tensor

from minbert.encoder import Encoder
from minbert.errors import UserError, format_count
from minbert.files import expand_user, write_atomic
from minbert.train import cli, distributed, plan, start
from minbert.train.plan import PlannedBatch
from minbert.train.settings import DataSettings, flag, parse, refuse_flags, require_range
from minbert.train.start import OpenRun
from tasks import difficulty
from tasks.augment.synonyms import SynonymSettings, synonym_augmentation, synonym_files, write_replacements
from tasks.contrastive import curriculum, losses, scoring, triplets
from tasks.contrastive.curriculum import CurriculumSettings
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
    """The loss over anchors, positives and hard negatives."""

    objective: Literal["nt-xent", "triplet", "margin"] = flag(
        "nt-xent",
        "nt-xent = in-batch and hard negatives (CBCL, equation 1); triplet, margin = over Euclidean "
        "distances (SelfCCL, 3.1)",
    )
    temperature: float = flag(0.05, "temperature of NT-Xent")
    loss_margin: float = flag(1.0, "margin of the losses over Euclidean distances")

    def __post_init__(self) -> None:
        require_range(self, "temperature", 1e-4)
        require_range(self, "loss_margin", 1e-6)


@dataclass(frozen=True)
class TripletSettings(DataSettings):
    """Which triplets the pairs of a premise make."""

    per_premise: Literal["first", "zip", "cross"] = flag(
        "first",
        "of labelled NLI pairs, the triplets of one premise: its first entailment with its first contradiction, the "
        "i-th with the i-th, or all with all",
    )


@dataclass(frozen=True)
class TripletFileSettings(FileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    triplets: str = flag(
        "",
        "in place of nli/nli_for_simcse.csv or nli/nli-triplets.csv: files of triplets, or of labelled NLI pairs "
        "(SNLI, MultiNLI, nli-pairs.tsv), comma-separated",
        metavar="FILES",
    )
    difficulty_run: str = flag(
        "", "for --difficulty task: a finished run of multitask_train.py with the task sts", metavar="RUN"
    )


@dataclass(frozen=True)
class PretrainSettings(StageOneSettings):
    """All settings of this script."""

    encoder: ContrastiveEncoderSettings
    data: TripletSettings
    curriculum: CurriculumSettings
    loss: LossSettings
    synonyms: SynonymSettings
    training: InBatchTrainingSettings
    files: TripletFileSettings
    run: RunSettings

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss.objective == "nt-xent":
            self.training.require_negatives()
        if (self.curriculum.difficulty == "task") != bool(self.files.difficulty_run):
            raise UserError("--difficulty task and --difficulty-run RUN belong together")

    def check_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for a flag that has no effect."""
        super().check_overrides(overrides)
        objective = self.loss.objective
        if objective == "nt-xent":
            refuse_flags(["loss_margin"], overrides, "belongs to --objective triplet or margin, not nt-xent")
        else:
            refuse_flags(["temperature"], overrides, f"belongs to --objective nt-xent, not {objective}")
        if not self.curriculum.by_difficulty:
            order = self.curriculum.order
            refuse_flags(["difficulty", "margin"], overrides, f"belongs to --order curriculum or anti, not {order}")
        if self.curriculum.order == "none":
            refuse_flags(["pacing_exponent", "pace_by"], overrides, "does not belong to --order none: it has no pacing")
        if self.curriculum.difficulty == "task":
            refuse_flags(["margin"], overrides, "does not belong to --difficulty task, which has no groups")


@dataclass(frozen=True)
class TripletTrainStep(ContrastiveTrainStep):
    """The loss over the vectors of anchors, positives and, where the data have them, hard negatives."""

    loss_settings: LossSettings = LossSettings()

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """The mean over the batch; for NT-Xent also the share of rows whose positive is the nearest candidate."""
        anchor, positive, *hard_negatives = vectors.chunk(len(self.columns))
        negative = hard_negatives[0] if hard_negatives else None
        if self.loss_settings.objective == "nt-xent":
            logits = losses.candidate_logits(anchor, positive, negative, self.loss_settings.temperature)
            return {"loss": losses.nt_xent_from_logits(logits), "accuracy": losses.nearest_share(logits)}
        assert negative is not None, "find_data has refused rows without a hard negative"
        margin = self.loss_settings.loss_margin
        if self.loss_settings.objective == "triplet":
            return {"loss": losses.triplet(anchor, positive, negative, margin)}
        # (anchor, positive) are the similar pairs, (anchor, negative) the dissimilar ones
        similar = torch.arange(2 * len(anchor), device=vectors.device) < len(anchor)
        others = torch.cat([positive, negative])
        return {"loss": losses.margin_contrastive(torch.cat([anchor, anchor]), others, similar, margin)}


def chance_loss(options: LossSettings, rows: int, columns: int) -> float | None:
    """The NT-Xent of a random guess among the candidates of a batch of `rows`; None for a loss over distances."""
    if options.objective != "nt-xent":
        return None
    return math.log(2 * rows if columns == 3 else rows)


def find_data(options: PretrainSettings) -> triplets.TripletFiles:
    """The files of triplets. Raises `UserError` if one is missing or does not suit the settings."""
    files = triplets.find_triplets(options.files.triplets, options.files.data)
    if files.kind == "triplet" and options.data.per_premise != "first":
        raise UserError(f"--per-premise belongs to labelled NLI pairs; {files.paths[0]} holds none")
    if files.num_texts == 2:
        missing = f"{files.paths[0]}: no column 'hard_neg', 'negative' or 'hard_negative'"
        if options.loss.objective != "nt-xent":
            raise UserError(f"{missing}, which --objective {options.loss.objective} needs")
        if options.curriculum.by_difficulty:
            order = options.curriculum.order
            raise UserError(f"{missing}, which --order {order} needs; for pairs choose --order none or random")
    return files


def main() -> None:
    """Read the settings, open the run, then train."""
    program = "pretrain_cbcl.py"
    default = "cbcl-synonyms"
    parsed = parse(PretrainSettings, PRESETS, sys.argv[1:], program=program, doc=__doc__, default=default)
    with start.open_run(parsed) as run:
        train(run)


def train(run: OpenRun[PretrainSettings]) -> None:
    """Read the triplets, score, sort and pace them, train on them and save the encoder."""
    options = run.settings
    training = options.training

    # read the triplets; a missing or unfit file is an error before the encoder is loaded
    files = find_data(options)
    dev = find_dev_pairs(options.files)
    resources = dict(synonym_files(options))
    difficulty_run = expand_user(options.files.difficulty_run)
    if options.files.difficulty_run:
        resources |= difficulty.input_files(difficulty_run)
    initial = start.load_initial_encoder(options.encoder, run.device)
    rows_read = triplets.read_triplets(files, options.data.per_premise, initial.tokenizer, initial.max_length)
    data = prepare_data(rows_read, dev, options, initial, noun="triplets" if files.num_texts == 3 else "pairs")

    # score them with the starting encoder, sort them into easy, semi-hard and hard, pace them over the epochs
    count = len(data.train)
    scores = {}
    if options.curriculum.by_difficulty:
        if options.curriculum.difficulty == "task":
            score = partial(difficulty.similarity_losses, difficulty_run, data.train)
        else:
            scorer = Encoder(initial.model, initial.tokenizer, initial.pooler, precision=run.precision)
            score = partial(scoring.similarities, scorer, data.train, initial.sha256)
        scores = scoring.scores_of_run(run.folder.path, options.curriculum.score_names, count, run.device, score)
    order, groups = curriculum.sort(options.curriculum, count, scores, training.seed)
    texts = sentence_numbers(data.train) if training.unique_batches else None
    steps = curriculum.pace(options.curriculum, training, order, texts)
    group_counts = curriculum.count_groups(groups, steps)

    # train on them
    model = ContrastiveModel(initial.model, initial.pooler, seed=training.seed, projection=options.encoder.projection)
    augment = synonym_augmentation(options, {TASK: data.train}, steps, run.folder.path)
    start.begin_run(
        run,
        initial,
        {**data.inputs, **resources},
        data=data.entry,
        plan=plan.manifest_entry(steps),
        training_rows={TASK: count},
        curriculum=group_counts,
    )
    write_replacements(augment)
    if scores and distributed.rank() == 0:
        write_atomic(run.folder.path / scoring.SCORES_FILE, save(scores))
    print_curriculum(format_count(count, data.noun), group_counts)
    fit_and_save(
        run,
        initial,
        model.to(run.device),
        TripletTrainStep(data.train, augment, training.chunk, options.loss),
        steps,
        data,
        loss=options.loss.objective,
        chance=chance_loss(options.loss, min(training.batch_size, count), files.num_texts),
        triplets=data.train,
    )


def print_curriculum(total: str, groups: Mapping[str, Any] | None) -> None:
    """Print how many of the rows are easy, semi-hard and hard, and each epoch's mix of them."""
    if groups is None:
        distributed.say(total)
        return
    sizes = ", ".join(f"{groups[name]:,} {name}" for name in curriculum.GROUPS)
    distributed.say(f"{total}: {sizes}")
    epochs = []
    for epoch, shares in enumerate(groups["mix_per_epoch"], start=1):
        epochs.append(f"{epoch}: " + "/".join(f"{share:.0%}" for share in shares))
    if len(epochs) > 10:
        epochs[5:-4] = ["..."]
    distributed.say(f"{'/'.join(curriculum.GROUPS)} in epoch {', '.join(epochs)}")


command = partial(cli.run, main)
"""The console command `minbert-pretrain`."""

if __name__ == "__main__":
    command()
