"""Peak memory of contrastive steps: a large batch at once, the same batch in chunks, and small batches of chunk size.

python -m benchmarks.chunk_memory --data DIR

Each row is measured in its own process on the same number of triplets: forward, NT-Xent with hard negatives, backward,
AdamW. The two numbers are peak resident memory before the first step (weights and data) and after the last one.
"""

from pathlib import Path

from benchmarks import harness, stage_one
from minbert.training import cli
from tasks.contrastive.settings import ContrastiveSettings

Peaks = tuple[float, float]


def steps(data: Path | None, given: str, threads: int | None, triplets: int, batch_size: int, chunk: int) -> Peaks:
    """Train on `triplets` triplets; returns the peaks in MiB before the first step and at the end."""
    harness.prepare(threads)
    settings = ContrastiveSettings.of(pooler="mean", batch_size=batch_size, chunk=chunk, precision="bf16")
    examples = stage_one.triplets(data, given, settings.encoder.max_length)
    step = stage_one.Ours(stage_one.model(given, settings), examples, settings)
    before = harness.peak()
    for batch in stage_one.steps(len(examples), batch_size, -(-triplets // batch_size)):
        step(batch)
    return before, harness.peak()


def main() -> None:
    """Run each variant in its own process and print the table."""
    parser = harness.parser(__doc__, "NLI triplets (default: $DATA_DIR, else data/sample)", 2)
    parser.add_argument(
        "--batch-size", type=int, default=512, help="triplets of the large batch (default: %(default)s)"
    )
    parser.add_argument("--chunk", type=int, default=32, help="sentences of a chunk (default: %(default)s)")
    options = harness.parse(parser)
    given = options.data, options.weights, options.threads, options.batches * options.batch_size
    small = -(-options.chunk // 3)
    variants = {
        f"{options.batch_size} triplets in one piece": (options.batch_size, 0),
        f"{options.batch_size} triplets, --chunk {options.chunk}": (options.batch_size, options.chunk),
        f"{small} triplets, {3 * small} sentences": (small, 0),
    }
    print("| a batch of | MiB before | MiB at the peak |\n|---|---|---|")
    for name, variant in variants.items():
        before, most = harness.in_own_process(steps, *given, *variant)
        print(f"| {name} | {before:,.0f} | {most:,.0f} |", flush=True)


if __name__ == "__main__":
    cli.run(main)
