"""Baseline for the multitask scores: one task, fine-tuned with transformers, padded to the longest text of a batch.

    python -m benchmarks.single_task --task sst --data $DATA_DIR
    python -m benchmarks.single_task --task quora --data $DATA_DIR --epochs 3 --lr 5e-5 --seed 1

It reads the same files with the same readers, starts from the same packaged MiniLM weights, and uses
BertForSequenceClassification with torch.optim.AdamW, a linear schedule with warm-up, and bf16 autocast on machines
where that is fast. The score is that of the best epoch on the dev set; runs of
`--preset best` are scored after the last step.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    PreTrainedTokenizerBase,
    get_linear_schedule_with_warmup,
)

from benchmarks.harness import CPU, SAMPLE
from minbert import weights
from minbert.precision import autocast, choose
from minbert.token_cache import Row
from minbert.training import cli
from tasks import readers
from tasks.registry import TASKS

OUTPUTS = {"sst": 5, "quora": 1, "sts": 1}


def rows_of(task: str, split: str, data: Path) -> list[Row]:
    """The labelled rows of a split."""
    kind = TASKS[task]()
    path = readers.find(data, "course", [getattr(kind.files, split)])
    rows = readers.open_as(path, kind.kind, split, classes=kind.class_count).rows
    return [row for row in rows if isinstance(row, Row) and row.label == row.label]


def encoded(tokenizer: PreTrainedTokenizerBase, rows: list[Row]) -> dict[str, Tensor]:
    """A padded batch; a pair becomes one input with token types."""
    texts = [list(column) for column in zip(*(row.texts for row in rows), strict=True)]
    return dict(tokenizer(*texts, padding=True, truncation=True, max_length=512, return_tensors="pt"))


def outputs_of(task: str, logits: Tensor) -> Tensor:
    """What the task's head would give in multitask training: [B, 5] for SST, else [B], for STS from 0 to 5."""
    logits = logits.float()
    if task == "sst":
        return logits
    return 5 * torch.sigmoid(logits.squeeze(-1)) if task == "sts" else logits.squeeze(-1)


def batches(rows: list[Row], size: int, generator: np.random.Generator) -> Iterator[list[Row]]:
    """Shuffled batches."""
    order = generator.permutation(len(rows))
    for start in range(0, len(rows), size):
        yield [rows[i] for i in order[start : start + size]]


@torch.inference_mode()
def dev_score(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerBase, task: str, rows: list[Row], precision: str
) -> float | None:
    """The task's score on the dev rows."""
    model.eval()
    outputs = []
    for start in range(0, len(rows), 64):
        with autocast(precision, CPU):
            outputs.append(outputs_of(task, model(**encoded(tokenizer, rows[start : start + 64])).logits))
    kind = TASKS[task]()
    return kind.score(kind.predict(torch.cat(outputs).numpy()), np.array([row.label for row in rows]))


def main() -> None:
    """Fine-tune, and print a line for each epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=list(OUTPUTS), required=True, help="which task")
    data = Path(os.environ.get("DATA_DIR") or SAMPLE)
    parser.add_argument("--data", type=Path, default=data, help="(default: $DATA_DIR, else data/sample)")
    parser.add_argument("--epochs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--lr", type=float, default=5e-5, help="(default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=11711, help="(default: %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    generator = np.random.default_rng(options.seed)
    folder = weights.resolve("minilm")
    precision = choose("auto", CPU)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder, num_labels=OUTPUTS[options.task])
    kind = TASKS[options.task]()
    train, dev = (rows_of(options.task, split, options.data) for split in ("train", "dev"))
    total = -(-len(train) // options.batch_size) * options.epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, total // 10, total)
    started, best = time.perf_counter(), -1.0
    for epoch in range(options.epochs):
        model.train()
        for rows in batches(train, options.batch_size, generator):
            optimizer.zero_grad()
            with autocast(precision, CPU):
                logits = model(**encoded(tokenizer, rows)).logits
            labels = torch.from_numpy(np.array([row.label for row in rows], dtype=np.float32))
            (kind.loss(outputs_of(options.task, logits), labels) / len(rows)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        score = dev_score(model, tokenizer, options.task, dev, precision)
        best = max(best, -1.0 if score is None else score)
        minutes = (time.perf_counter() - started) / 60
        print(f"{options.task} epoch {epoch + 1}/{options.epochs}: dev {score} (best {best:.4f}), {minutes:.1f} min")


if __name__ == "__main__":
    cli.run(main)
