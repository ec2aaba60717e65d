"""Time of stage one compared with sentence-transformers, on the same triplets, interleaved in one process.

    DATA_DIR=... python -m benchmarks.contrastive_speed                         training and scoring, 32 tokens
    python -m benchmarks.contrastive_speed --part training --length 75 --batches 20

Training. A step is: forward, loss, backward, clipping, AdamW, gradients set to None, for a batch of tokenised texts.
Theirs is SentenceTransformerTrainer's `training_step` with MultipleNegativesRankingLoss, then clipping, its default
optimizer and schedule as in its loop; its callbacks and logging are left out, which is in its favour. It starts from
batches that its collator has tokenised and padded. The collator tokenises again in every epoch; its time is shown
separately. Ours starts from row numbers: its step includes reading token ids from the cache and building the batch,
and also deterministic algorithms and the mask of false negatives, which theirs does not have.
Both sides start from the same weights, with the same settings and the dropout of the weights (0.1).

Scoring. `Encoder.encode` and `SentenceTransformer.encode` on the same distinct sentences, --sentences per call, from
texts to vectors; both include tokenisation and sorting by length. bf16 is autocast on both sides.

oneDNN's cache of kernels is enlarged for both sides (see minbert/cpu/linear.py). Shown are medians with quartiles, and
medians of the ratios of each batch.
"""

import argparse
import tempfile
import time
import warnings
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
from transformers.utils import logging

from benchmarks import harness, stage_one
from minbert import BertModel, Encoder, weights
from minbert.errors import UserError
from minbert.precision import autocast
from minbert.tokenizer import Tokenizer
from minbert.training import cli
from minbert.training.plan import Step
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples

BASES = ("minbert bf16", "minbert fp32")
LIBRARIES = ("torch", "sentence-transformers", "transformers")
COLUMNS = ("anchor", "positive", "negative")
DEFAULT, SIZES = 32, (16, 64, 128, 256)  # batch sizes tried for their `encode`
Texts = list[str]
Encode = Callable[[Texts], np.ndarray]
Batch = tuple[Step, dict[str, Any]]
"""The same triplets for both sides: as a step of row numbers, and as tensors padded by the trainer's collator."""


class Theirs:
    """sentence-transformers' trainer: what its loop does for a batch, without callbacks and logging."""

    def __init__(self, folder: Path, settings: ContrastiveSettings, scratch: Path) -> None:
        if not is_training_available():
            raise UserError('the trainer needs accelerate and datasets: pip install "sentence-transformers[train]"')
        self.model = SentenceTransformer(str(folder), device="cpu")
        self.model.max_seq_length = settings.encoder.max_length
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(scratch),
            use_cpu=True,
            bf16=settings.training.precision == "bf16",
            per_device_train_batch_size=settings.training.batch_size,
            learning_rate=settings.training.lr,
            max_grad_norm=settings.training.clip,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        )
        loss = MultipleNegativesRankingLoss(self.model, scale=1 / settings.loss.temperature)
        self.trainer = trainer = SentenceTransformerTrainer(model=self.model, args=arguments, loss=loss)
        # What `train` does before its first batch; done here, as the next trainer resets accelerate's precision.
        trainer.create_optimizer()
        _, trainer.optimizer = trainer.accelerator.prepare(self.model, trainer.optimizer)
        trainer.create_scheduler(num_training_steps=1_000_000)
        trainer.current_gradient_accumulation_steps = 1

    def collate(self, texts: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Triplets of texts, tokenised and padded column by column."""
        collated: dict[str, Any] = self.trainer.data_collator([dict(zip(COLUMNS, row, strict=True)) for row in texts])
        return collated

    def __call__(self, features: dict[str, Any]) -> Tensor:
        """One update on a collated batch; returns the loss."""
        trainer = self.trainer
        assert trainer.optimizer and trainer.lr_scheduler
        loss: Tensor = trainer.training_step(self.model, features)
        trainer.accelerator.clip_grad_norm_(self.model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        self.model.zero_grad()
        return loss


def collated(examples: Examples, plan: Sequence[Step], theirs: Theirs) -> tuple[list[Batch], Tensor]:
    """The steps with their texts as the trainer's collator pads them, and its seconds for each: float64 [batches]."""
    made, seconds = [], []
    for step in plan:
        texts = [[examples.cache.text(row, column) for column in range(len(COLUMNS))] for row in step.rows.tolist()]
        begun = time.perf_counter()
        made.append((step, theirs.collate(texts)))
        seconds.append(time.perf_counter() - begun)
    return made, torch.tensor(seconds, dtype=torch.float64)


def padding(made: Sequence[Batch]) -> float:
    """Fraction of padding in the trainer's batches."""
    masks = [features[f"{column}_attention_mask"] for _, features in made for column in COLUMNS]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def training(folder: Path, examples: Examples, options: argparse.Namespace) -> None:
    """Time training steps and print the table."""
    plan = stage_one.steps(len(examples), options.batch_size, options.warmup + options.batches)
    with tempfile.TemporaryDirectory() as scratch:
        steps: dict[str, Callable[[Batch], object]] = {}
        for precision in ("bf16", "fp32"):
            settings = ContrastiveSettings.of(
                pooler="mean", max_length=examples.max_length, batch_size=options.batch_size, precision=precision
            )
            ours = stage_one.Ours(stage_one.model(str(folder), settings), examples, settings)
            theirs = Theirs(folder, settings, Path(scratch))
            steps[f"minbert {precision}"] = lambda batch, step=ours: step(batch[0])  # type: ignore[misc]
            steps[f"sentence-transformers {precision}"] = lambda batch, step=theirs: step(batch[1])  # type: ignore[misc]
        made, collating = collated(examples, plan, theirs)
        what = f"{options.batches} batches of {options.batch_size} triplets of at most {examples.max_length} tokens"
        print(f"\nTraining: {what}, {100 * padding(made):.0f}% padding in its tensors")
        seconds = harness.measure(steps, made, options.warmup)
    print(f"\n{harness.markdown(seconds, 'step', BASES)}")
    print(f"\nNot counted: its collator, {harness.cell(1000 * collating, 1)} ms a batch")


def our_encode(folder: Path, length: int, precision: str) -> Encode:
    """Our `encode` with the given precision."""
    model, tokenizer = BertModel.from_pretrained(folder), Tokenizer.load(folder)
    return Encoder(model, tokenizer, "mean", precision=precision, max_length=length).encode


def their_encode(model: SentenceTransformer, precision: str, size: int) -> Encode:
    """Their `encode` with the given precision and batch size."""

    def encode(texts: Texts) -> np.ndarray:
        with autocast(precision, harness.CPU):
            vectors: np.ndarray = model.encode(texts, batch_size=size, show_progress_bar=False)
        return vectors

    return encode


def scoring(folder: Path, examples: Examples, options: argparse.Namespace) -> None:
    """Time `encode` calls, theirs with its default batch size and with the fastest one, and print the table."""
    texts = list(dict.fromkeys(examples.cache.text(row, column) for row in range(len(examples)) for column in range(3)))
    rows = harness.shuffled(len(texts), options.sentences, options.warmup + options.batches)
    calls = [[texts[i] for i in some] for some in rows]
    what = f"{options.batches} calls with {options.sentences} sentences of at most {examples.max_length} tokens"
    print(f"\nScoring: {what}")
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = examples.max_length
    contestants = {}
    for precision in ("bf16", "fp32"):
        theirs = {size: their_encode(model, precision, size) for size in (DEFAULT, *SIZES)}
        tried = harness.measure(theirs, [calls[0]] * 2, 1)  # the second call is timed
        best, name = min(tried, key=lambda size: float(tried[size])), f"sentence-transformers {precision}, batches of"
        contestants[f"minbert {precision}"] = our_encode(folder, examples.max_length, precision)
        contestants[f"{name} {DEFAULT} (default)"] = theirs[DEFAULT]
        if best != DEFAULT:
            contestants[f"{name} {best} (fastest)"] = theirs[best]
    print(f"\n{harness.markdown(harness.measure(contestants, calls, options.warmup), 'call', BASES)}")


def main() -> None:
    """Read the triplets, then time each part at each length."""
    parser = harness.parser(__doc__, "NLI triplets (default: $DATA_DIR, else data/sample)", 20, 10)
    add = parser.add_argument
    add("--part", choices=("both", "training", "scoring"), default="both", help="(default: both)")
    add("--length", type=int, nargs="+", default=[32], help="longest sentence in tokens (default: 32)")
    add("--batch-size", type=int, default=64, help="triplets of a training step (default: %(default)s)")
    add("--sentences", type=int, default=1920, help="sentences of a call of encode (default: %(default)s)")
    options = harness.parse(parser)
    warnings.filterwarnings("ignore", message=".*truncated")
    logging.disable_progress_bar()
    folder = weights.resolve(options.weights)
    harness.print_machine(*LIBRARIES)
    for length in options.length:
        examples = stage_one.triplets(options.data, options.weights, length)
        for part, table in (("training", training), ("scoring", scoring)):
            if options.part in (part, "both"):
                table(folder, examples, options)


if __name__ == "__main__":
    cli.run(main)
