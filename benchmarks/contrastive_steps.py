"""The training step of sentence-transformers' trainer, and batches for it and for ours, of the same triplets."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
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

from minbert.errors import UserError
from minbert.training.plan import Step
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples

COLUMNS = ("anchor", "positive", "negative")


@dataclass(frozen=True)
class Batch:
    """The same triplets for both sides: rows of the token cache, and tensors padded by the trainer's collator."""

    step: Step
    features: dict[str, Any]


class Theirs:
    """sentence-transformers' trainer: what its loop does between two batches, callbacks and logging apart."""

    def __init__(self, folder: Path, settings: ContrastiveSettings, scratch: Path) -> None:
        if not is_training_available():
            raise UserError('the trainer needs accelerate and datasets: pip install "sentence-transformers[train]"')
        self.model = SentenceTransformer(str(folder), device="cpu")
        self.model.max_seq_length = settings.max_length
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(scratch),
            use_cpu=True,
            bf16=settings.precision == "bf16",
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.rate,
            max_grad_norm=settings.clip,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        )
        loss = MultipleNegativesRankingLoss(self.model, scale=1 / settings.temperature)
        self.trainer = trainer = SentenceTransformerTrainer(model=self.model, args=arguments, loss=loss)
        # What `train` does before its first batch. Here and now: the next trainer resets accelerate's precision.
        trainer.create_optimizer()
        _, trainer.optimizer = trainer.accelerator.prepare(self.model, trainer.optimizer)
        trainer.create_scheduler(num_training_steps=1_000_000)
        trainer.current_gradient_accumulation_steps = 1

    def collate(self, texts: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Texts of triplets, tokenised and padded column by column."""
        collated: dict[str, Any] = self.trainer.data_collator([dict(zip(COLUMNS, row, strict=True)) for row in texts])
        return collated

    def __call__(self, batch: Batch) -> Tensor:
        """One update; returns the loss."""
        trainer = self.trainer
        assert trainer.optimizer and trainer.lr_scheduler
        loss: Tensor = trainer.training_step(self.model, batch.features)
        trainer.accelerator.clip_grad_norm_(self.model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        self.model.zero_grad()
        return loss


def batches(examples: Examples, rows: Sequence[Sequence[int]], theirs: Theirs) -> tuple[list[Batch], Tensor]:
    """The batches for both sides, and the seconds that the trainer's collator took for each: float64."""
    made, seconds = [], []
    for number, some in enumerate(rows):
        texts = [[examples.cache.text(row, column) for column in range(len(COLUMNS))] for row in some]
        begun = time.perf_counter()
        features = theirs.collate(texts)
        seconds.append(time.perf_counter() - begun)
        made.append(Batch(Step("nli", np.array(some), 0, number, number), features))
    return made, torch.tensor(seconds, dtype=torch.float64)


def padding(made: Sequence[Batch]) -> float:
    """Share of padding in what the trainer computes."""
    masks = [batch.features[f"{column}_attention_mask"] for batch in made for column in COLUMNS]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)
