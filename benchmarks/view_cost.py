"""Cost of ConSERT's augmented views: training steps with each view and without, interleaved in one process.

    DATA_DIR=... python -m benchmarks.view_cost

Three tables, on labelled NLI pairs. The first: two views of each premise, both of the same kind, with the settings of
the preset `consert`; compared with the step of `--objective simcse`, which encodes the same texts twice without views.
The second: the same with only the embedding layer as encoder, where the cost of a view is clear of the noise. The
third: the joint objective with the settings of `consert-joint`, with views that change nothing and with an adversarial
view, which needs one more forward and backward pass over the pairs.

A step is: rows of the token cache, forward, loss, backward, clipping, AdamW. All contestants train the same weights,
each with its own optimizer state. Shown are medians with quartiles; ratios are computed batch by batch.
"""

import argparse

import torch

from benchmarks import harness, stage_one
from minbert import weights
from minbert.errors import UserError
from minbert.tokenizer import Tokenizer
from minbert.training import cli
from tasks import readers
from tasks.contrastive.settings import PRESETS, ContrastiveSettings
from tasks.contrastive.views import KINDS
from tasks.examples import Examples, Pair, Single


def table(
    preset: str,
    changes: dict[str, dict[str, str]],
    examples: Examples,
    options: argparse.Namespace,
    *,
    layers: bool = True,
) -> str:
    """Time steps with variants of a preset's settings and print the table; the first variant is the baseline."""
    values = dict(PRESETS[preset][1]) | {"batch_size": options.batch_size, "precision": options.precision}
    base = ContrastiveSettings.of(**values)
    model = stage_one.model(options.weights, base)
    if not layers:
        model.encoder.bert_layers = torch.nn.ModuleList()
    contestants = {name: stage_one.Ours(model, examples, base.changed(**change)) for name, change in changes.items()}
    batches = stage_one.steps(len(examples), options.batch_size, options.warmup + options.batches)
    print(f"\n{preset}{'' if layers else ', embeddings alone'}: {options.batches} batches of {options.batch_size}")
    seconds = harness.measure(contestants, batches, options.warmup)
    return "\n" + harness.markdown(seconds, "step", [next(iter(changes))])


def main() -> None:
    """Read the pairs, then time both objectives."""
    parser = harness.parser(__doc__, "NLI pairs (default: $DATA_DIR)", 20, 10)
    parser.add_argument("--batch-size", type=int, default=96, help="texts, or pairs, of a step (default: %(default)s)")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16", help="(default: %(default)s)")
    options = harness.parse(parser)
    if not options.data:
        raise UserError("give --data, or set DATA_DIR: the sample has no labelled NLI pairs")
    tokenizer = Tokenizer.load(weights.resolve(options.weights))
    path = readers.find(options.data, "nli", ["nli-pairs.tsv"])
    cache = readers.tokenised(path, "nli", tokenizer)
    harness.print_machine("torch")
    alone = {kind: {"views": f"{kind},{kind}"} for kind in KINDS if kind != "adversarial"}
    alone["no views (simcse)"] = {"views": "", "objective": "simcse"}
    texts = Single(cache, tokenizer.cls, tokenizer.sep, 64)
    print(table("consert", alone, texts, options))
    print(table("consert", alone, texts, options, layers=False))
    joint = {kind: {"views": f"none,{kind}"} for kind in ("none", "adversarial")}
    print(table("consert-joint", joint, Pair(cache, tokenizer.cls, tokenizer.sep, 64), options))


if __name__ == "__main__":
    cli.run(main)
