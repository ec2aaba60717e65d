"""Time of a training step of stage one compared with sentence-transformers, on the same triplets, in one process.

    DATA_DIR=... python -m benchmarks.contrastive_speed --length 32 75 --batches 20

A step is: forward, loss, backward, clipping, AdamW, gradients set to None, for a batch of tokenised texts. Theirs is
SentenceTransformerTrainer's `training_step` with MultipleNegativesRankingLoss, then clipping, its default optimizer
and schedule as in its loop; its callbacks and logging are left out, which is in its favour. It starts from batches
that its collator has tokenised and padded; the collator's time is shown separately. Ours starts from row numbers: its
step includes reading token ids from the cache and building the batch, and also deterministic algorithms, which theirs
does not have. Both sides start from the same weights, with the same settings and the dropout of the weights (0.1). The
process keeps freed memory, as our training scripts do; that saves both sides the same time.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import is_training_available
from torch import Tensor

from benchmarks import harness
from minbert import weights
from minbert.errors import UserError
from minbert.fast import keep_freed_memory
from minbert.optimizer import AdamW, decay_groups
from minbert.train import cli, start
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from tasks.contrastive.model import ContrastiveModel, ContrastiveTrainStep
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples

COLUMNS = ("anchor", "positive", "negative")
Batch = tuple[PlannedBatch, dict[str, Any]]
"""The same triplets for both sides: as a step of row numbers, and as tensors padded by the trainer's collator."""


class Ours:
    """A training step from rows of the token cache: forward, loss, backward, clipping, AdamW."""

    def __init__(
        self, source: str, examples: Examples, settings: ContrastiveSettings, device: torch.device = harness.CPU
    ) -> None:
        self.settings, self.device = settings, device
        encoder = start.load_encoder(source, "--weights", settings.encoder.encoder_dropout)[0]
        self.model = ContrastiveModel(settings, encoder).to(device)
        groups = decay_groups(self.model.parameters(), settings.training.weight_decay)
        self.optimizer = AdamW(groups, lr=settings.training.lr)
        self.objective = ContrastiveTrainStep(settings.objective, examples)

    def __call__(self, batch: Batch) -> Tensor:
        """One update with deterministic algorithms, as in the script; returns the loss."""
        step, _ = batch
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        context = StepContext(self.settings.training.seed, step.number, self.settings.training.precision, self.device)
        numbers = self.objective.backward(self.model, step, context)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.training.clip, norm)
        self.optimizer.step()
        torch.use_deterministic_algorithms(False)
        return numbers["loss"]


class Theirs:
    """sentence-transformers' trainer: what its loop does for a batch, without callbacks and logging."""

    def __init__(
        self, folder: Path, settings: ContrastiveSettings, scratch: Path, device: torch.device = harness.CPU
    ) -> None:
        if not is_training_available():
            raise UserError('the trainer needs accelerate and datasets: pip install "sentence-transformers[train]"')
        self.model = SentenceTransformer(str(folder), device=str(device))
        self.model.max_seq_length = settings.encoder.max_length
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(scratch),
            use_cpu=device.type == "cpu",
            bf16=settings.training.precision == "bf16",
            per_device_train_batch_size=settings.training.batch_size,
            learning_rate=settings.training.lr,
            max_grad_norm=settings.training.clip,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        )
        loss = MultipleNegativesRankingLoss(self.model, scale=1 / settings.flat()["temperature"])
        self.trainer = trainer = SentenceTransformerTrainer(model=self.model, args=arguments, loss=loss)
        # What `train` does before its first batch; done here, as the next trainer resets accelerate's precision.
        trainer.create_optimizer()
        _, trainer.optimizer = trainer.accelerator.prepare(self.model, trainer.optimizer)
        trainer.create_scheduler(num_training_steps=1_000_000)
        trainer.current_gradient_accumulation_steps = 1

    def __call__(self, batch: Batch) -> Tensor:
        """One update; returns the loss."""
        trainer, (_, features) = self.trainer, batch
        assert trainer.optimizer and trainer.lr_scheduler
        loss: Tensor = trainer.training_step(self.model, features)
        trainer.accelerator.clip_grad_norm_(self.model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        self.model.zero_grad()
        return loss


def collated(examples: Examples, size: int, count: int, theirs: Theirs) -> tuple[list[Batch], Tensor]:
    """Shuffled batches for both sides, and the seconds of the trainer's collator for each: float64 [batches]."""
    batches, seconds = [], []
    for number, rows in enumerate(harness.shuffled(len(examples), size, count)):
        texts = [{name: examples.cache.text(row, column) for column, name in enumerate(COLUMNS)} for row in rows]
        begun = time.perf_counter()
        batches.append((PlannedBatch("nli", np.array(rows), 0, number), theirs.trainer.data_collator(texts)))
        seconds.append(time.perf_counter() - begun)
    return batches, torch.tensor(seconds, dtype=torch.float64)


def padding(batches: Sequence[Batch]) -> float:
    """Fraction of padding in the trainer's batches."""
    masks = [features[f"{column}_attention_mask"] for _, features in batches for column in COLUMNS]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def compare(folder: Path, examples: Examples, options: argparse.Namespace) -> None:
    """Time training steps and print the table."""
    with tempfile.TemporaryDirectory() as scratch:
        contestants: dict[str, Callable[[Batch], object]] = {}
        for precision in ("bf16", "fp32"):
            settings = ContrastiveSettings.of(
                pooler="mean", max_length=examples.max_length, batch_size=options.batch_size, precision=precision
            )
            contestants[f"minbert {precision}"] = Ours(str(folder), examples, settings, options.device)
            theirs = Theirs(folder, settings, Path(scratch), options.device)
            contestants[f"sentence-transformers {precision}"] = theirs
        batches, collating = collated(examples, options.batch_size, options.warmup + options.batches, theirs)
        counts = f"{options.batches} batches of {options.batch_size} triplets of at most {examples.max_length} tokens"
        seconds = harness.measure(contestants, batches, options.warmup, options.device)
    title = f"{counts}, {100 * padding(batches):.0f}% padding in its tensors"
    print(harness.table(title, seconds, "step"))
    print(f"\nNot counted: its collator, {harness.cell(1000 * collating, 1)} ms a batch")


def main() -> None:
    """Read the triplets, then time steps at each length."""
    parser = harness.parser(__doc__, "NLI triplets (default: $DATA_DIR, else data/sample)", 20, 10)
    parser.add_argument("--length", type=int, nargs="+", default=[32], help="longest sentence in tokens (default: 32)")
    parser.add_argument("--batch-size", type=int, default=64, help="triplets of a training step (default: %(default)s)")
    options = harness.parse(parser)
    keep_freed_memory()
    folder = weights.resolve(options.weights)
    harness.print_machine("torch", "sentence-transformers", "transformers")
    for length in options.length:
        compare(folder, harness.triplets(options.data, options.weights, length), options)


if __name__ == "__main__":
    cli.run(main)
