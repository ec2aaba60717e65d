"""Time of a training step compared with transformers' BertModel, on the same batches, interleaved in one process.

    DATA_DIR=... python -m benchmarks.train_speed                  both shapes, the course's Quora pairs
    python -m benchmarks.train_speed --shape minilm --batches 100  the packaged MiniLM weights only

A step is: build the batch (padded to its longest pair for transformers, ragged for us), forward to the pooler output
and a linear head, binary cross-entropy, backward, AdamW, gradients set to None. Dropout is 0.1 everywhere. Both sides
keep meeting new lengths, for which oneDNN compiles kernels, so medians are shown instead of means. Ratios are computed
batch by batch. The peak is the speed of one large matrix product in the same number format. The process keeps freed
memory, as our training scripts do; that saves both sides the same time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchmarks.harness import cell, measure, parse, parser, peak, print_machine, shuffled, table
from minbert import AdamW, BertConfig, BertModel, Ragged, weights
from minbert.fast import accelerate, keep_freed_memory
from minbert.fast.graphs import GraphedVectors
from minbert.precision import DTYPES, autocast
from minbert.ragged import to_device
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from minbert.train import cli
from tasks import readers

BATCH, LONGEST, LEARNING_RATE = 32, 512, 2e-5
Pairs = list[tuple[list[int], list[int], float]]  # token ids, token types, label
Pooled = Callable[[Pairs], Tensor]
Step = Callable[[Pairs], None]


def read_pairs(data: Path, tokenizer: Tokenizer) -> Pairs:
    """The Quora pairs of a folder as `[CLS] a [SEP] b [SEP]`; rows without a sentence or a label are skipped."""
    path = readers.find_file(data, "course", ["quora-train.csv"])
    rows = [row for row in readers.open_as(path, "pair-class").rows if isinstance(row, Row)]
    first, second = (tokenizer.encode([row.texts[side] for row in rows]) for side in (0, 1))
    pairs = []
    for row, a, b in zip(rows, first, second, strict=True):
        ids = [tokenizer.cls, *a, tokenizer.sep, *b, tokenizer.sep][:LONGEST]
        types = ([0] * (len(a) + 2) + [1] * (len(b) + 1))[:LONGEST]
        pairs.append((ids, types, row.label))
    return pairs


def our_pooled(model: BertModel) -> Pooled:
    """Our encoder on a ragged batch, as a training step reads it."""
    read = GraphedVectors(model, "pooler")
    read.active = True

    def pooled(pairs: Pairs) -> Tensor:
        ragged = Ragged.from_lists([ids for ids, _, _ in pairs], [types for _, types, _ in pairs])
        return read(ragged.to(model.device))

    return pooled


def their_pooled(model: transformers.BertModel) -> Pooled:
    """transformers' encoder on a batch padded to its longest pair."""

    def pooled(pairs: Pairs) -> Tensor:
        ids, types = (pad_sequence([torch.tensor(pair[part]) for pair in pairs], True) for part in (0, 1))
        mask = pad_sequence([torch.ones(len(pair[0]), dtype=torch.int64) for pair in pairs], True)
        ids, types, mask = (to_device(x, model.device) for x in (ids, types, mask))
        output: Tensor = model(input_ids=ids, attention_mask=mask, token_type_ids=types).pooler_output
        return output

    return pooled


def training_step(pooled: Pooled, head: nn.Linear, optimizer: torch.optim.Optimizer, precision: str) -> Step:
    """A training step, with the same head, loss and optimizer for every contestant."""

    def step(pairs: Pairs) -> None:
        device = head.weight.device
        labels = to_device(torch.tensor([label for _, _, label in pairs]), device)
        with autocast(precision, device):
            logits = head(pooled(pairs)).squeeze(1)
        F.binary_cross_entropy_with_logits(logits.float(), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


SHAPES = {
    "base": BertConfig(),
    "large": BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
}


def models(shape: str, folder: Path, device: torch.device) -> tuple[BertModel, transformers.BertModel]:
    """Both libraries' models: `minilm` with the weights of a folder, the others with random ones."""
    if shape == "minilm":
        ours, theirs = accelerate(BertModel.from_pretrained(folder)), transformers.BertModel.from_pretrained(folder)
    else:
        config: Any = SHAPES[shape].to_transformers()
        ours = accelerate(BertModel(SHAPES[shape]))
        theirs = transformers.BertModel(transformers.BertConfig(**config))
    nn.Module.to(theirs, device)
    return ours.to(device).train(), theirs.train()


def contestants(
    ours: BertModel, theirs: transformers.BertModel, precisions: Sequence[str], *, compiled: bool
) -> dict[str, Step]:
    """The contestants, whose precision is that of autocast; those of a library share one model in fp32.

    `compiled` adds transformers compiled by torch, in the last of the precisions.
    """
    head = nn.Linear(ours.config.hidden_size, 1).to(ours.device)
    our_parameters = [*ours.parameters(), *head.parameters()]
    their_parameters = [*theirs.parameters(), *head.parameters()]
    our_optimizer = AdamW(our_parameters, lr=LEARNING_RATE)
    default = torch.optim.AdamW(their_parameters, lr=LEARNING_RATE)
    fused = torch.optim.AdamW(their_parameters, lr=LEARNING_RATE, fused=True)
    steps = {}
    for precision in precisions:
        for name, optimizer in (("default", default), ("fused", fused)):
            step = training_step(their_pooled(theirs), head, optimizer, precision)
            steps[f"transformers {precision}, AdamW {name}"] = step
        steps[f"minbert {precision}"] = training_step(our_pooled(ours), head, our_optimizer, precision)
    if compiled:
        pooled = their_pooled(cast(transformers.BertModel, torch.compile(theirs, dynamic=True)))
        steps[f"transformers {precisions[-1]} compiled, AdamW fused"] = training_step(
            pooled, head, fused, precisions[-1]
        )
    return steps


def share_of_peak(model: BertModel, batches: Sequence[Pairs], seconds: Tensor, peak: float) -> str:
    """The operations needed, 6 for each weight of the layers and each token, in percent of what `peak` does meanwhile.

    `peak` is in operations a second, `seconds` has the time of each batch.
    """
    layers = sum(p.numel() for p in model.get_submodule("bert_layers").parameters())
    tokens = torch.tensor([sum(len(ids) for ids, _, _ in batch) for batch in batches])
    return cell(100 * 6 * layers * tokens / seconds / peak, 0)


def padding(batches: Sequence[Pairs]) -> float:
    """Share of padding in batches that are padded to their longest pair."""
    padded = sum(max(len(ids) for ids, _, _ in batch) * len(batch) for batch in batches)
    return 1 - sum(len(ids) for batch in batches for ids, _, _ in batch) / padded


def main() -> None:
    """Read the pairs, then time each shape; bert-base gets a quarter of the batches."""
    flags = parser(__doc__, "course/quora-train.csv (default: $DATA_DIR, else data/sample)", 60, 60)
    flags.add_argument("--shape", choices=("minilm", "base", "both"), default="both", help="(default: both)")
    flags.add_argument("--compiled", action="store_true", help="also transformers in bf16 compiled by torch")
    options = parse(flags)
    keep_freed_memory()
    minilm = weights.resolve(options.weights)
    pairs = read_pairs(options.data, Tokenizer.load(minilm))
    print_machine("torch", "transformers")
    peaks = {name: peak(options.device, DTYPES[name], 2048) for name in ("fp32", "bf16")}
    print(", ".join(f"{name} {top / 1e9:.0f} GFLOPS" for name, top in peaks.items()), "in a large matrix product")
    for shape in ("minilm", "base") if options.shape == "both" else (options.shape,):
        parts = 1 if shape == "minilm" else 4
        count, warmup = max(1, options.batches // parts), options.warmup // parts
        batches = [[pairs[i] for i in rows] for rows in shuffled(len(pairs), BATCH, warmup + count)]
        ours, theirs = models(shape, minilm, options.device)
        steps = contestants(ours, theirs, tuple(peaks), compiled=options.compiled)
        seconds = measure(steps, batches, warmup, options.device)
        shares = {
            name: {
                "share of the peak, %": share_of_peak(
                    ours, batches[warmup:], values, peaks[name.split()[1].rstrip(",")]
                )
            }
            for name, values in seconds.items()
        }
        title = f"{shape} shape, {count} batches of {BATCH} pairs, {100 * padding(batches):.0f}% padding if padded"
        print(table(title, seconds, "step", shares))


if __name__ == "__main__":
    cli.run(main)
