"""Peak memory of contrastive steps: a large batch in one piece, the same in chunks, and batches as small as a chunk.

python -m benchmarks.chunk_memory --data DIR

Each row is a process of its own that takes the same number of triplets: forward, NT-Xent with hard negatives, backward,
AdamW. Peaks are of resident memory, before the first step (weights and data) and after the last one.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.reader_speed import peak
from minbert.training import cli

ROOT = Path(__file__).resolve().parent.parent


def steps(data: Path, given: str, triplets: int, batch_size: int, chunk: int) -> None:
    """Take steps over so many triplets, then print the two peaks in MiB."""
    import numpy as np

    from benchmarks import contrastive_ours, timing
    from minbert import token_cache, weights
    from minbert.tokenizer import Tokenizer
    from minbert.training.plan import Step
    from tasks import readers
    from tasks.contrastive.settings import ContrastiveSettings
    from tasks.examples import Triplet
    from tasks.readers import nli

    settings = ContrastiveSettings(pooler="mean", batch_size=batch_size, chunk=chunk, precision="bf16")
    tokenizer = Tokenizer.load(weights.resolve(given))
    path = readers.find(data, "nli", ["nli_for_simcse.csv", "nli-triplets.csv"])
    cache = token_cache.load(path, nli.triplets, "triplets", 3, tokenizer)
    examples = Triplet(cache, tokenizer.cls, tokenizer.sep, settings.max_length)
    step = contrastive_ours.Ours(contrastive_ours.model(given, settings), examples, settings)
    before = peak()
    for number, rows in enumerate(timing.shuffled(len(examples), batch_size, -(-triplets // batch_size))):
        step(Step("nli", np.asarray(rows), 0, number, number))
    print(before, peak())


def main() -> None:
    """Run each variant in its own process and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        help="folder with NLI triplets (default: $DATA_DIR, else data/sample)",
    )
    parser.add_argument("--weights", default="minilm", help="minilm, or a folder (default: minilm)")
    parser.add_argument(
        "--batch-size", type=int, default=512, help="triplets of the large batch (default: %(default)s)"
    )
    parser.add_argument("--chunk", type=int, default=32, help="sentences of a chunk (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=2, help="large batches (default: %(default)s)")
    parser.add_argument("--one", type=int, nargs=2, metavar=("TRIPLETS", "CHUNK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = Path(options.data or os.environ.get("DATA_DIR") or ROOT / "data" / "sample")
    triplets = options.batches * options.batch_size
    if options.one:
        steps(data, options.weights, triplets, *options.one)
        return
    small = -(-options.chunk // 3)
    variants = {
        f"{options.batch_size} triplets in one piece": (options.batch_size, 0),
        f"{options.batch_size} triplets, --chunk {options.chunk}": (options.batch_size, options.chunk),
        f"{small} triplets, {3 * small} sentences": (small, 0),
    }
    print("| a batch of | MiB before | MiB at the peak |\n|---|---|---|")
    for name, (batch_size, chunk) in variants.items():
        command = [sys.executable, "-m", "benchmarks.chunk_memory", *sys.argv[1:], "--one", str(batch_size), str(chunk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stderr)
            raise SystemExit(done.returncode)
        found = done.stdout.split()
        print(f"| {name} | {float(found[0]):,.0f} | {float(found[1]):,.0f} |", flush=True)


if __name__ == "__main__":
    cli.run(main)
