"""Time of a training step of either stage, compared with the library that others train with, on the same batches.

    python -m benchmarks.train_speed --stage 1 --data DIR
    python -m benchmarks.train_speed --stage 2 --data DIR --device cuda --batch-size 128
    python -m benchmarks.train_speed --stage 2 --data DIR --batch-size 32 --grouped

Stage one is NT-Xent with hard negatives over NLI triplets, against sentence-transformers' trainer with
MultipleNegativesRankingLoss. Stage two is a linear head over the pooled vector of Quora pairs, against transformers'
BertModel. A step is: build the batch, forward, loss, backward, AdamW. Theirs is padded to its longest text; in stage
one its collator has tokenised and padded the batch before. "minbert plain" is without `minbert.fast`. All start from
the same weights, with their dropout. Each is a process of its own, with minbert's settings of memory and threads in
minbert's processes alone. Every batch is run by all of them, one after another, before the next one; medians are shown
with quartiles, as oneDNN compiles kernels for each new length. Ratios are taken batch by batch.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import tasks  # noqa: F401  before torch, which then reads what it sets

# isort: split
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchmarks import single_task
from benchmarks.timing import Program, describe_machine, flags, measure, precisions_of, shuffled, timing_table
from minbert import AdamW, BertConfig, BertModel, Ragged, weights
from minbert.fast import accelerate
from minbert.fast.graphs import GraphedVectors
from minbert.precision import autocast
from minbert.ragged import to_device
from minbert.tokenizer import Tokenizer
from minbert.train import cli
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from pretrain_cbcl import LossSettings, TripletTrainStep
from tasks.contrastive import triplets
from tasks.contrastive.settings import TASK
from tasks.contrastive.step import ContrastiveModel
from tasks.examples import Examples
from tasks.tables import Table

Pair = tuple[list[int], list[int], float]
"""Token ids, token types, and label of a pair as one input."""
Triplets = tuple[PlannedBatch, dict[str, Any]]
"""The same triplets as row numbers, and as tensors that the trainer's collator has padded."""
LEARNING_RATE = 2e-5


# --- stage one


class OurTripletStep:
    """minbert's step of stage one: token ids from the cache, forward, loss, backward, clipping, AdamW."""

    def __init__(self, folder: Path, data: Path, length: int, precision: str, device: torch.device, fast: bool) -> None:
        examples = read_triplets(data, folder, length)
        encoder = BertModel.from_pretrained(folder)
        if fast:
            accelerate(encoder)
        self.model = ContrastiveModel(encoder, "mean", seed=0).to(device).train()
        # the recorded graphs of a GPU
        self.model.graphed_vectors.active = fast
        self.optimizer = AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.train_step = TripletTrainStep(examples, loss_settings=LossSettings())
        self.precision = precision
        self.device = device

    def __call__(self, batch: Triplets) -> float:
        """One update; returns the loss."""
        planned, _ = batch
        context = StepContext(0, planned.step, self.precision, self.device)
        metrics = self.train_step.backward(self.model, planned, context)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return metrics["loss"].item()


class TheirTripletStep:
    """What sentence-transformers' trainer does with a batch, without its callbacks and its logging."""

    def __init__(self, folder: Path, length: int, size: int, precision: str, device: torch.device) -> None:
        self.model = SentenceTransformer(str(folder), device=str(device))
        self.model.max_seq_length = length
        arguments = SentenceTransformerTrainingArguments(
            output_dir=tempfile.mkdtemp(),
            use_cpu=device.type == "cpu",
            bf16=precision == "bf16",
            per_device_train_batch_size=size,
            learning_rate=LEARNING_RATE,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        )
        loss = MultipleNegativesRankingLoss(self.model, scale=1 / LossSettings().temperature)
        self.trainer = SentenceTransformerTrainer(model=self.model, args=arguments, loss=loss)
        # what `train` does before its first batch
        self.trainer.create_optimizer()
        _, self.optimizer = self.trainer.accelerator.prepare(self.model, self.trainer.optimizer)
        self.trainer.current_gradient_accumulation_steps = 1

    def __call__(self, batch: Triplets) -> float:
        """One update; returns the loss."""
        _, features = batch
        loss: Tensor = self.trainer.training_step(self.model, features)
        self.trainer.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.model.zero_grad()
        return loss.item()


def read_triplets(data: Path, folder: Path, length: int) -> Examples:
    """The NLI triplets of a data folder."""
    files = triplets.find_triplets("", str(data))
    return triplets.read_triplets(files, "first", Tokenizer.load(folder), length).examples


def triplet_batches(examples: Examples, size: int, count: int, collate: Callable[..., Any]) -> list[Triplets]:
    """Shuffled batches of triplets for both sides; `collate` is the trainer's."""
    batches = []
    for number, rows in enumerate(shuffled(len(examples), size, count)):
        texts = []
        for row in rows:
            columns = enumerate(("anchor", "positive", "negative"))
            texts.append({name: examples.cache.text(row, column) for column, name in columns})
        batches.append((PlannedBatch(TASK, np.array(rows), 0, number), collate(texts)))
    return batches


def stage_one(options: argparse.Namespace, folder: Path, precisions: Sequence[str]) -> Table:
    """The table of stage one."""
    device = torch.device(options.device)
    size = options.batch_size
    inputs = (folder, options.data, options.length)
    programs: dict[str, Program] = {}
    for precision in precisions:
        programs[f"minbert {precision}"] = Program(OurTripletStep, *inputs, precision, device, True, as_command=True)
        theirs = Program(TheirTripletStep, folder, options.length, size, precision, device, as_command=False)
        programs[f"sentence-transformers {precision}"] = theirs
    plain = Program(OurTripletStep, *inputs, precisions[0], device, False, as_command=True)
    programs[f"minbert plain {precisions[0]}"] = plain
    examples = read_triplets(options.data, folder, options.length)
    collate = TheirTripletStep(folder, options.length, size, precisions[0], device).trainer.data_collator
    batches = triplet_batches(examples, size, options.warmup + options.batches, collate)
    seconds = measure(programs, batches, options.warmup)
    title = f"Stage one: {size} triplets of at most {options.length} tokens"
    return timing_table(title, seconds, f"minbert {precisions[0]}")


# --- stage two


def read_pairs(data: Path, folder: Path) -> list[Pair]:
    """The Quora pairs of a data folder as `[CLS] a [SEP] b [SEP]`."""
    tokenizer = Tokenizer.load(folder)
    longest = BertConfig.read(folder).max_position_embeddings
    rows = single_task.rows_of("quora", "train", data)
    first = tokenizer.encode([row.texts[0] for row in rows])
    second = tokenizer.encode([row.texts[1] for row in rows])
    pairs = []
    for row, a, b in zip(rows, first, second, strict=True):
        ids = [tokenizer.cls, *a, tokenizer.sep, *b, tokenizer.sep]
        types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        pairs.append((ids[:longest], types[:longest], row.label))
    return pairs


def our_vectors(model: BertModel, *, fast: bool) -> Callable[[Sequence[Pair]], Tensor]:
    """minbert's pooled vectors of a ragged batch: [B, D]."""
    read = GraphedVectors(model, "pooler")
    read.active = fast

    def vectors(pairs: Sequence[Pair]) -> Tensor:
        ragged = Ragged.from_lists([ids for ids, _, _ in pairs], [types for _, types, _ in pairs])
        return read(ragged.to(model.device))

    return vectors


def their_vectors(model: transformers.BertModel) -> Callable[[Sequence[Pair]], Tensor]:
    """transformers' pooled vectors of a batch that is padded to its longest pair: [B, D]."""

    def vectors(pairs: Sequence[Pair]) -> Tensor:
        ids = pad_sequence([torch.tensor(ids) for ids, _, _ in pairs], batch_first=True)
        types = pad_sequence([torch.tensor(types) for _, types, _ in pairs], batch_first=True)
        mask = pad_sequence([torch.ones(len(ids), dtype=torch.int64) for ids, _, _ in pairs], batch_first=True)
        inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
        output = model(**{name: to_device(x, model.device) for name, x in inputs.items()})
        return output.pooler_output

    return vectors


def pair_step(
    vectors: Callable[[Sequence[Pair]], Tensor],
    head: nn.Linear,
    optimizer: torch.optim.Optimizer,
    precision: str,
) -> Callable[[Sequence[Pair]], float]:
    """A step of stage two over an encoder's vectors; it returns the loss."""

    def step(pairs: Sequence[Pair]) -> float:
        device = head.weight.device
        labels = to_device(torch.tensor([label for _, _, label in pairs]), device)
        with autocast(precision, device):
            logits = head(vectors(pairs)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logits.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def our_pair_step(folder: Path, precision: str, device: torch.device, fast: bool) -> Callable[..., float]:
    """minbert's step of stage two."""
    model = BertModel.from_pretrained(folder)
    if fast:
        accelerate(model)
    model.to(device).train()
    head = nn.Linear(model.config.hidden_size, 1).to(device)
    optimizer = AdamW([*model.parameters(), *head.parameters()], lr=LEARNING_RATE)
    return pair_step(our_vectors(model, fast=fast), head, optimizer, precision)


def their_pair_step(folder: Path, precision: str, device: torch.device) -> Callable[..., float]:
    """transformers' step of stage two, with torch's fused AdamW."""
    model: Any = transformers.BertModel.from_pretrained(folder)
    model.to(device).train()
    head = nn.Linear(model.config.hidden_size, 1).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=LEARNING_RATE, fused=True)
    return pair_step(their_vectors(model), head, optimizer, precision)


def stage_two(options: argparse.Namespace, folder: Path, precisions: Sequence[str]) -> Table:
    """The table of stage two."""
    device = torch.device(options.device)
    size = options.batch_size
    pairs = read_pairs(options.data, folder)
    programs = {}
    for precision in precisions:
        programs[f"minbert {precision}"] = Program(our_pair_step, folder, precision, device, True, as_command=True)
        programs[f"transformers {precision}"] = Program(their_pair_step, folder, precision, device, as_command=False)
    programs[f"minbert plain {precisions[0]}"] = Program(
        our_pair_step, folder, precisions[0], device, False, as_command=True
    )
    count = options.warmup + options.batches
    if options.grouped:
        like_lengths = single_task.batches(pairs, size, np.random.default_rng(0), 50, lambda pair: len(pair[0]))
        # the first 50 again and again: their sizes differ, and oneDNN compiles kernels for each
        batches = list(islice(cycle(islice(like_lengths, 50)), count))
    else:
        batches = [[pairs[row] for row in rows] for rows in shuffled(len(pairs), size, count)]
    seconds = measure(programs, batches, options.warmup)
    padded = 0
    tokens = 0
    for batch in batches:
        lengths = [len(ids) for ids, _, _ in batch]
        padded += len(batch) * max(lengths)
        tokens += sum(lengths)
    title = f"Stage two: {size} pairs, {1 - tokens / padded:.0%} padding if padded"
    return timing_table(title, seconds, f"minbert {precisions[0]}")


def main() -> None:
    """Time the steps of a stage and print the table."""
    parser = flags(__doc__)
    parser.add_argument("--stage", type=int, choices=(1, 2), required=True)
    parser.add_argument("--batch-size", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--grouped", action="store_true", help="stage two: batches of pairs of like lengths")
    options = parser.parse_args()
    stage = stage_one if options.stage == 1 else stage_two
    table = stage(options, weights.resolve(options.weights), precisions_of(options.device))
    cli.say(describe_machine("torch", "transformers", "sentence-transformers"))
    cli.say(table.markdown())


if __name__ == "__main__":
    cli.run(main)
