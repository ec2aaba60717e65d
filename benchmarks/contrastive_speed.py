"""How long stage one takes beside sentence-transformers, on the same triplets, interleaved in one process.

    DATA_DIR=... python -m benchmarks.contrastive_speed                         training and scoring, 32 tokens
    python -m benchmarks.contrastive_speed --part training --length 75 --batches 20

Training. A step is: a batch whose texts have been tokenised, forward, loss, backward, clipping, AdamW, gradients set
to None. Theirs is SentenceTransformerTrainer's `training_step` with MultipleNegativesRankingLoss, then clipping, its
default optimizer and schedule as its loop has them; its callbacks and logging are left out, in its favour. It starts
from what its collator has tokenised and padded, and the milliseconds of the collator, which tokenises anew in every
epoch, are shown apart. Ours starts from row numbers: reading the ids of the token cache and laying the batch out are
in the step, and so are deterministic algorithms and the mask of false negatives, which theirs does without.
Dropout is that of the weights (0.1) on both sides, and both start from the same weights with the same settings.

Scoring. `Encoder.encode` beside `SentenceTransformer.encode` on the same distinct sentences, --sentences a call, from
texts to vectors: tokenisation and sorting by length are in both. bf16 is autocast on both sides.

Each of the --batches timed batches goes through all contestants before the next one, starting with another one each
time; the first --warmup batches are not timed, because oneDNN compiles a kernel for every new shape of a product.
Its cache of kernels is enlarged for both sides (see minbert/linear.py). Medians with quartiles, ratios batch by batch.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from minbert.training import cli

if TYPE_CHECKING:
    from tasks.examples import Triplet

ROOT = Path(__file__).resolve().parent.parent
BASES = ("minbert bf16", "minbert fp32")
LIBRARIES = ("torch", "sentence-transformers", "transformers")


def training(folder: Path, examples: "Triplet", options: argparse.Namespace) -> None:
    """The table of training steps."""
    from benchmarks import contrastive_ours, timing
    from benchmarks.contrastive_steps import Batch, Theirs, batches, padding
    from tasks.contrastive.settings import ContrastiveSettings

    rows = timing.shuffled(len(examples), options.batch_size, options.warmup + options.batches)
    with tempfile.TemporaryDirectory() as scratch:
        ours: dict[str, Callable[[Batch], object]] = {}
        theirs: dict[str, Theirs] = {}
        for precision in ("bf16", "fp32"):
            settings = ContrastiveSettings(
                pooler="mean", max_length=examples.max_length, batch_size=options.batch_size, precision=precision
            )
            model = contrastive_ours.model(str(folder), settings)
            step = contrastive_ours.Ours(model, examples, settings)
            ours[f"minbert {precision}"] = lambda batch, step=step: step(batch.step)  # type: ignore[misc]
            theirs[f"sentence-transformers {precision}"] = Theirs(folder, settings, Path(scratch))
        made, collating = batches(examples, rows, theirs["sentence-transformers fp32"])
        what = f"{options.batches} batches of {options.batch_size} triplets of at most {examples.max_length} tokens"
        print(f"\nTraining: {what}, {100 * padding(made):.0f}% padding in its tensors")
        seconds = timing.measure(ours | theirs, made, options.warmup)
    print(f"\n{timing.markdown(seconds, 'step', BASES)}")
    low, middle, high = timing.quartiles(1000 * collating)
    print(f"\nNot counted: its collator, {middle:.1f} ms a batch [{low:.1f}, {high:.1f}]")


def scoring(folder: Path, examples: "Triplet", options: argparse.Namespace) -> None:
    """The table of `encode` calls."""
    from benchmarks import timing
    from benchmarks.scoring_speed import contestants

    texts = list(dict.fromkeys(examples.cache.text(row, column) for row in range(len(examples)) for column in range(3)))
    count = options.warmup + options.batches
    calls = [[texts[i] for i in some] for some in timing.shuffled(len(texts), options.sentences, count)]
    what = f"{options.batches} calls with {options.sentences} sentences of at most {examples.max_length} tokens"
    print(f"\nScoring: {what}")
    seconds = timing.measure(contestants(folder, examples.max_length, calls[0]), calls, options.warmup)
    print(f"\n{timing.markdown(seconds, 'call', BASES)}")


def main() -> None:
    """Read the triplets, then time each part at each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        help="folder with NLI triplets (default: $DATA_DIR, else data/sample)",
    )
    parser.add_argument("--weights", default="minilm", help="minilm, or a folder (default: minilm)")
    parser.add_argument("--part", choices=("both", "training", "scoring"), default="both", help="(default: both)")
    parser.add_argument("--length", type=int, nargs="+", default=[32], help="longest sentence in tokens (default: 32)")
    parser.add_argument(
        "--batches", type=int, default=20, help="timed batches, or calls of encode (default: %(default)s)"
    )
    parser.add_argument("--warmup", type=int, default=10, help="batches before them (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="triplets of a training step (default: %(default)s)")
    parser.add_argument(
        "--sentences", type=int, default=1920, help="sentences of a call of encode (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, help="default: as many as torch takes")
    options = parser.parse_args()

    import torch
    from transformers.utils import logging

    from minbert import token_cache, weights
    from minbert.tokenizer import Tokenizer
    from tasks import readers
    from tasks.examples import Triplet
    from tasks.readers import nli

    given = options.data or os.environ.get("DATA_DIR")
    if not given:
        print("DATA_DIR is not set: the small sample, whose triplets come round again and again")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    folder = weights.resolve(options.weights)
    tokenizer = Tokenizer.load(folder)
    path = readers.find(Path(given or ROOT / "data" / "sample"), "nli", ["nli_for_simcse.csv", "nli-triplets.csv"])
    cache = token_cache.load(path, nli.triplets, "triplets", 3, tokenizer)
    print(", ".join(f"{library} {metadata.version(library)}" for library in LIBRARIES))
    print(f"{torch.get_num_threads()} threads; load of the machine before: {os.getloadavg()[0]:.1f}")
    for length in options.length:
        examples = Triplet(cache, tokenizer.cls, tokenizer.sep, length)
        for part, table in (("training", training), ("scoring", scoring)):
            if options.part in (part, "both"):
                table(folder, examples, options)


if __name__ == "__main__":
    cli.run(main)
