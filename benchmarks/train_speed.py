"""Time of a training step compared with transformers' BertModel, on the same batches, interleaved in one process.

    DATA_DIR=... python -m benchmarks.train_speed                  both shapes, the course's Quora pairs
    python -m benchmarks.train_speed --shape minilm --batches 100  the packaged MiniLM weights only

A step is: build the batch (padded to its longest pair for transformers, ragged for us), forward to the pooler output
and a linear head, binary cross-entropy, backward, AdamW, gradients set to None. Dropout is 0.1 everywhere. Both sides
keep meeting new lengths, for which oneDNN compiles kernels, so medians are shown instead of means. Ratios are computed
batch by batch.
"""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchmarks.harness import CPU, SAMPLE, measure, parse, parser, print_machine, shuffled, table
from minbert import AdamW, BertConfig, BertModel, Ragged, weights
from minbert.cpu import accelerate
from minbert.precision import autocast
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from minbert.training import cli
from tasks import readers

BATCH, LONGEST, LEARNING_RATE = 32, 512, 2e-5
Pairs = list[tuple[list[int], list[int], float]]  # token ids, token types, label
Pooled = Callable[[Pairs], Tensor]
Step = Callable[[Pairs], None]


def read_pairs(path: Path, tokenizer: Tokenizer) -> Pairs:
    """Quora pairs as `[CLS] a [SEP] b [SEP]`; rows without a second sentence or a label are skipped."""
    rows = [row for row in readers.open_as(path, "pair-class").rows if isinstance(row, Row)]
    first, second = (tokenizer.encode([row.texts[side] for row in rows]) for side in (0, 1))
    pairs = []
    for row, a, b in zip(rows, first, second, strict=True):
        ids = [tokenizer.cls, *a, tokenizer.sep, *b, tokenizer.sep][:LONGEST]
        types = ([0] * (len(a) + 2) + [1] * (len(b) + 1))[:LONGEST]
        pairs.append((ids, types, row.label))
    return pairs


def our_pooled(model: BertModel) -> Pooled:
    """Our encoder on a ragged batch."""

    def pooled(pairs: Pairs) -> Tensor:
        return model.pooled(Ragged.from_lists([ids for ids, _, _ in pairs], [types for _, types, _ in pairs]))

    return pooled


def their_pooled(model: transformers.BertModel) -> Pooled:
    """transformers' encoder on a batch padded to its longest pair."""

    def pooled(pairs: Pairs) -> Tensor:
        ids, types = (pad_sequence([torch.tensor(pair[part]) for pair in pairs], True) for part in (0, 1))
        mask = pad_sequence([torch.ones(len(pair[0]), dtype=torch.int64) for pair in pairs], True)
        output: Tensor = model(input_ids=ids, attention_mask=mask, token_type_ids=types).pooler_output
        return output

    return pooled


def training_step(pooled: Pooled, head: nn.Linear, optimizer: torch.optim.Optimizer, precision: str) -> Step:
    """A training step, with the same head, loss and optimizer for every contestant."""

    def step(pairs: Pairs) -> None:
        labels = torch.tensor([label for _, _, label in pairs])
        with autocast(precision, CPU):
            logits = head(pooled(pairs)).squeeze(1)
        F.binary_cross_entropy_with_logits(logits.float(), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def contestants(folder: Path | None) -> dict[str, Step]:
    """The contestants: with the weights of a folder, or, without one, with bert-base shape and random weights.

    To save memory, the contestants of a library share one fp32 model, which autocast does not change.
    """
    if folder is None:
        ours, theirs = accelerate(BertModel(BertConfig())), transformers.BertModel(transformers.BertConfig())
    else:
        ours, theirs = BertModel.from_pretrained(folder), transformers.BertModel.from_pretrained(folder)
    head = nn.Linear(ours.config.hidden_size, 1)
    our_parameters = [*ours.train().parameters(), *head.parameters()]
    their_parameters = [*theirs.train().parameters(), *head.parameters()]
    our_optimizer = AdamW(our_parameters, lr=LEARNING_RATE)
    default = torch.optim.AdamW(their_parameters, lr=LEARNING_RATE)
    fused = torch.optim.AdamW(their_parameters, lr=LEARNING_RATE, fused=True)
    steps = {}
    for precision in ("fp32", "bf16"):
        for name, optimizer in (("default", default), ("fused", fused)):
            step = training_step(their_pooled(theirs), head, optimizer, precision)
            steps[f"transformers {precision}, AdamW {name}"] = step
        steps[f"minbert {precision}"] = training_step(our_pooled(ours), head, our_optimizer, precision)
    return steps


def main() -> None:
    """Read the pairs, then time each shape; bert-base gets a quarter of the batches."""
    flags = parser(__doc__, "course/quora-train.csv (default: $DATA_DIR, else data/sample)", 60, 60)
    flags.add_argument("--shape", choices=("minilm", "base", "both"), default="both", help="(default: both)")
    options = parse(flags)
    if not options.data:
        print("DATA_DIR is not set: the small sample, whose pairs are repeated again and again")
    minilm = weights.resolve(options.weights)
    pairs = read_pairs((options.data or SAMPLE) / "course" / "quora-train.csv", Tokenizer.load(minilm))
    print_machine("torch", "transformers")
    for shape in ("minilm", "base") if options.shape == "both" else (options.shape,):
        parts = 1 if shape == "minilm" else 4
        count, warmup = max(1, options.batches // parts), options.warmup // parts
        batches = [[pairs[i] for i in rows] for rows in shuffled(len(pairs), BATCH, warmup + count)]
        longest = sum(max(len(ids) for ids, _, _ in batch) for batch in batches) * BATCH
        tokens = sum(len(ids) for batch in batches for ids, _, _ in batch)
        padding = 100 - 100 * tokens / longest
        seconds = measure(contestants(minilm if shape == "minilm" else None), batches, warmup)
        print(
            table(f"{shape} shape, {count} batches of {BATCH} pairs, {padding:.0f}% padding if padded", seconds, "step")
        )


if __name__ == "__main__":
    cli.run(main)
