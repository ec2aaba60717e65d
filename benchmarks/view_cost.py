"""What ConSERT's views cost: a training step with each of them beside the step without, interleaved in one process.

    DATA_DIR=... python -m benchmarks.view_cost

Three tables, on labelled NLI pairs. The first: two views of each premise, the same kind twice, with the settings of the
preset `consert`; beside them the step of `--objective simcse`, which encodes the same texts twice and knows nothing of
views. The second: the same with the embedding layer alone in place of the whole encoder, where what a view adds shows
above the noise. The third: the joint objective with the settings of `consert-joint`, without views that change anything
and with an adversarial one, which takes one more pass forward and back over the pairs.

A step is: rows of the token cache, forward, loss, backward, clipping, AdamW. All contestants train the same weights,
each with moments of its own. Each of the --batches timed batches goes through all of them before the next one, starting
with another one each time; the first --warmup batches are not timed. Medians with quartiles, ratios batch by batch.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from minbert.training import cli

if TYPE_CHECKING:
    from tasks.examples import Examples


def table(
    preset: str,
    changes: dict[str, dict[str, str]],
    examples: "Examples",
    options: argparse.Namespace,
    *,
    layers: bool = True,
) -> str:
    """A table of steps with a preset's settings, one row for each way to change them; the first is the base."""
    import numpy as np
    import torch

    from benchmarks import contrastive_ours, timing
    from minbert.training.plan import Step
    from tasks.contrastive.presets import PRESETS
    from tasks.contrastive.settings import ContrastiveSettings

    values = dict(PRESETS[preset][1]) | {"batch_size": options.batch_size, "precision": options.precision}
    base = ContrastiveSettings(**values)
    model = contrastive_ours.model(options.weights, base)
    if not layers:
        model.encoder.bert_layers = torch.nn.ModuleList()
    steps = {
        name: contrastive_ours.Ours(model, examples, replace(base, **change))  # type: ignore[arg-type]
        for name, change in changes.items()
    }
    rows = timing.shuffled(len(examples), options.batch_size, options.warmup + options.batches)
    batches = [Step("nli", np.array(some), 0, number, number) for number, some in enumerate(rows)]
    print(f"\n{preset}{'' if layers else ', embeddings alone'}: {options.batches} batches of {options.batch_size}")
    seconds = timing.measure(steps, batches, options.warmup)
    return "\n" + timing.markdown(seconds, "step", [next(iter(changes))])


def main() -> None:
    """Read the pairs, then time both objectives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with NLI pairs (default: $DATA_DIR)")
    parser.add_argument("--weights", default="minilm", help="minilm, or a folder (default: minilm)")
    parser.add_argument("--batches", type=int, default=20, help="timed batches (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=10, help="batches before them (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=96, help="texts, or pairs, of a step (default: %(default)s)")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16", help="(default: %(default)s)")
    options = parser.parse_args()

    import torch

    from minbert import token_cache, weights
    from minbert.errors import UserError
    from minbert.tokenizer import Tokenizer
    from tasks import readers
    from tasks.contrastive.views import KINDS
    from tasks.examples import Pair, Single
    from tasks.readers import nli

    given = options.data or os.environ.get("DATA_DIR")
    if not given:
        raise UserError("give --data, or set DATA_DIR: the sample has no labelled NLI pairs")
    torch.manual_seed(0)
    folder = weights.resolve(options.weights)
    tokenizer = Tokenizer.load(folder)
    cache = token_cache.load(readers.find(Path(given), "nli", ["nli-pairs.tsv"]), nli.pairs, "nli-pairs", 2, tokenizer)
    print(f"{torch.get_num_threads()} threads; load of the machine before: {os.getloadavg()[0]:.1f}")
    kinds = [kind for kind in KINDS if kind != "adversarial"]
    alone = {kind: {"views": f"{kind},{kind}"} for kind in kinds}
    alone["no views (simcse)"] = {"views": "", "objective": "simcse"}
    texts = Single(cache, tokenizer.cls, tokenizer.sep, 64)
    print(table("consert", alone, texts, options))
    print(table("consert", alone, texts, options, layers=False))
    joint = {kind: {"views": f"none,{kind}"} for kind in ("none", "adversarial")}
    print(table("consert-joint", joint, Pair(cache, tokenizer.cls, tokenizer.sep, 64), options))


if __name__ == "__main__":
    cli.run(main)
