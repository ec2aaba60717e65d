"""Baseline for the multitask scores: one task, fine-tuned with transformers, in padded batches of similar length.

    python -m benchmarks.single_task --task sst --data $DATA_DIR
    python -m benchmarks.single_task --task quora --data $DATA_DIR --epochs 3 --lr 5e-5 --seeds 1 2 3
    python -m benchmarks.single_task --task sts --data $DATA_DIR --epochs 1 --starter

It reads the same files with the same readers, starts from the same packaged MiniLM weights, and uses transformers'
BertModel with the mean over tokens that MiniLM was trained with, one linear layer, torch.optim.AdamW, a linear schedule
with warm-up, and bf16 autocast on machines where that is fast. It prints the score after the last epoch, as runs of
`--preset best` are scored, and that of the best epoch on the dev set. --starter trains as the course's starter code is
laid out, to compare times: in fp32, batches of any lengths, attention that is not fused; it also predicts the test set.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, BertModel, PreTrainedTokenizerBase, get_linear_schedule_with_warmup
from transformers.utils import logging

from benchmarks.timing import DATA
from minbert import weights
from minbert.precision import autocast, choose
from minbert.token_cache import Row
from minbert.train import cli
from tasks import readers
from tasks.registry import TASKS

T = TypeVar("T")
CPU = torch.device("cpu")
OUTPUTS = {"sst": 5, "quora": 1, "sts": 1}


class Classifier(nn.Module):
    """transformers' BertModel, the mean over a text's tokens, dropout, and one linear layer."""

    def __init__(self, folder: Path, outputs: int, attention: str = "sdpa") -> None:
        super().__init__()
        self.bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation=attention)
        self.dropout = nn.Dropout(self.bert.config.hidden_dropout_prob)
        self.linear = nn.Linear(self.bert.config.hidden_size, outputs)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Logits of a padded batch: [B, outputs]."""
        hidden = self.bert(**batch).last_hidden_state  # [B, length, D]
        mask = batch["attention_mask"].unsqueeze(2)
        return self.linear(self.dropout((hidden * mask).sum(1) / mask.sum(1)))


def rows_of(name: str, split: str, data: Path, limit: int = 0) -> list[Row]:
    """The rows of a split, of train and dev those with a label; the first `limit` of them unless it is 0."""
    task = TASKS[name]()
    path = readers.find_file(data, "course", [getattr(task.files, split)])
    rows = readers.open_as(path, task.kind, split, classes=task.class_count).rows
    if split != "test":
        rows = [row for row in rows if not math.isnan(row.label)]
    return rows[: limit or None]


def encoded(tokenizer: PreTrainedTokenizerBase, rows: list[Row]) -> dict[str, Tensor]:
    """A padded batch; a pair becomes one input with token types."""
    texts = []
    for column in range(len(rows[0].texts)):
        texts.append([row.texts[column] for row in rows])
    return dict(tokenizer(*texts, padding=True, truncation=True, max_length=512, return_tensors="pt"))


def outputs_of(task: str, logits: Tensor) -> Tensor:
    """What the task's head would give in multitask training: [B, 5] for SST, else [B], for STS from 0 to 5."""
    logits = logits.float()
    if task == "sst":
        return logits
    logits = logits.squeeze(-1)
    if task == "sts":
        return 5 * torch.sigmoid(logits)
    return logits


def characters(row: Row) -> int:
    """The length of a row's texts."""
    return sum(map(len, row.texts))


def batches(
    rows: Sequence[T], size: int, generator: np.random.Generator, count: int, length: Callable[[T], int]
) -> Iterator[list[T]]:
    """Shuffled batches; the rows of every `count` batches are sorted by length among them.

    With 50 this is what transformers' Trainer does with `group_by_length`, with 1 lengths do not matter.
    """
    order = generator.permutation(len(rows))
    for start in range(0, len(rows), count * size):
        block = [rows[index] for index in order[start : start + count * size]]
        block.sort(key=length)
        for batch in generator.permutation(math.ceil(len(block) / size)):
            yield block[batch * size : (batch + 1) * size]


@torch.inference_mode()
def predict(
    model: Classifier, tokenizer: PreTrainedTokenizerBase, task: str, rows: list[Row], precision: str
) -> np.ndarray:
    """The task's predictions: [rows]."""
    model.eval()
    outputs = []
    for start in range(0, len(rows), 64):
        with autocast(precision, CPU):
            outputs.append(outputs_of(task, model(encoded(tokenizer, rows[start : start + 64]))))
    return TASKS[task]().predict(torch.cat(outputs).numpy())


def dev_score(
    model: Classifier, tokenizer: PreTrainedTokenizerBase, task: str, rows: list[Row], precision: str
) -> float:
    """The task's score on the dev rows."""
    labels = np.array([row.label for row in rows])
    score = TASKS[task]().score(predict(model, tokenizer, task, rows, precision), labels)
    return float("nan") if score is None else score


def fine_tune(options: argparse.Namespace, seed: int) -> list[float]:
    """The dev score after each epoch."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    task = options.task
    kind = TASKS[task]()
    precision = choose("auto", CPU)
    attention = "sdpa"
    sorted_batches = 50  # as many as transformers' Trainer sorts by length
    if options.starter:
        precision = "fp32"
        attention = "eager"
        sorted_batches = 1
    folder = weights.resolve("minilm")
    model = Classifier(folder, OUTPUTS[task], attention)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    train = rows_of(task, "train", options.data, options.limit)
    dev = rows_of(task, "dev", options.data, options.limit)
    steps = math.ceil(len(train) / options.batch_size) * options.epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0, fused=not options.starter)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    scores: list[float] = []
    for epoch in range(options.epochs):
        started = time.perf_counter()
        model.train()
        for rows in batches(train, options.batch_size, generator, sorted_batches, characters):
            optimizer.zero_grad()
            with autocast(precision, CPU):
                logits = model(encoded(tokenizer, rows))
            labels = torch.from_numpy(np.array([row.label for row in rows], dtype=np.float32))
            # a task's loss is a sum over the rows
            (kind.loss(outputs_of(task, logits), labels) / len(rows)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        scores.append(dev_score(model, tokenizer, task, dev, precision))
        minutes = (time.perf_counter() - started) / 60
        cli.say(f"{task} seed {seed} epoch {epoch + 1}/{options.epochs}: dev {scores[-1]:.4f}, {minutes:.1f} min")
    if options.starter:
        predict(model, tokenizer, task, rows_of(task, "test", options.data, options.limit), precision)
    return scores


def main() -> None:
    """Fine-tune once a seed, and print the mean and the standard deviation over the seeds."""
    parser = cli.Parser(doc=__doc__)
    parser.add_argument("--task", choices=list(OUTPUTS), required=True, help="which task")
    parser.add_argument("--data", type=Path, default=DATA, help="(default: $DATA_DIR, else data/sample)")
    parser.add_argument("--epochs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--lr", type=float, default=5e-5, help="(default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11711], help="(default: %(default)s)")
    parser.add_argument("--limit", type=int, default=0, help="first rows of each file (default: all)")
    parser.add_argument("--starter", action="store_true", help="as the course's starter code trains")
    options = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # a report on weights that the encoder does not use
    scores = np.array([fine_tune(options, seed) for seed in options.seeds])
    for name, values in (("last epoch", scores[:, -1]), ("best epoch", scores.max(1))):
        spread = ""
        if len(values) > 1:
            spread = f" ± {values.std(ddof=1):.4f} over {len(values)} seeds"
        cli.say(f"{options.task}, {name}: dev {values.mean():.4f}{spread}")


if __name__ == "__main__":
    cli.run(main)
