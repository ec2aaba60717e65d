"""What a GPU shows: whether results equal the CPU's, and time, launches and memory of training steps and encoding.

    DATA_DIR=... python -m benchmarks.gpu > gpu.md

The tests of CUDA run first. Then training steps of stage two of three model sizes are compared with transformers
(scaled dot-product attention, compiled and not), those of stage one and encoding with sentence-transformers. The share
of the peak counts 6 products for each weight of the layers and each token that is not padding, against the measured
speed of one large matrix product. Launches are the kernels of one step, in our encoder those of two CUDA graphs.
"""

import subprocess
import sys
from pathlib import Path

import torch

from benchmarks import contrastive_speed, encode_speed, harness, train_speed
from minbert import weights
from minbert.precision import DTYPES, choose
from minbert.tokenizer import Tokenizer
from minbert.train import cli

TESTS = Path(__file__).resolve().parent.parent / "tests" / "minbert" / "test_cuda.py"
SIZES = {"minilm": (32, 128, 256), "base": (32, 128, 256), "large": (32, 128)}
"""Batch sizes of each shape; transformers is compiled for the first, which takes a minute or more."""


def launches(step: train_speed.Step, pairs: train_speed.Pairs) -> int:
    """The kernels and copies that one step starts."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step(pairs)
        torch.cuda.synchronize()
    return sum(event.device_type == torch.profiler.DeviceType.CUDA for event in profile.events())


def memory(step: train_speed.Step, pairs: train_speed.Pairs) -> float:
    """The most memory that a first step takes beyond the weights, in MiB."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(pairs)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def training(shape: str, size: int, pairs: train_speed.Pairs, folder: Path, device: torch.device, top: float) -> str:
    """The table of one shape and batch size in Markdown."""
    precision = choose("auto", device)
    ours, theirs = train_speed.models(shape, folder, device)
    steps = train_speed.contestants(ours, theirs, (precision,), compiled=size == SIZES[shape][0])
    batches = [[pairs[i] for i in rows] for rows in harness.shuffled(len(pairs), size, 40)]
    mebibytes = {name: memory(step, batches[0]) for name, step in steps.items()}
    seconds = harness.measure(steps, batches, 20, device)
    more = {
        name: {
            "share of the peak, %": train_speed.share_of_peak(ours, batches[20:], values, top),
            "launches": str(launches(steps[name], batches[-1])),
            "MiB": f"{mebibytes[name]:.0f}",
        }
        for name, values in seconds.items()
    }
    title = f"{shape}, {size} pairs, {100 * train_speed.padding(batches):.0f}% padding if padded"
    return harness.table(title, seconds, "step", more)


def main() -> None:
    """Run the tests, then print a table for each measurement."""
    parser = harness.parser(__doc__, "the course's and the NLI files (default: $DATA_DIR, else data/sample)", 20, 10)
    parser.set_defaults(device=torch.device("cuda"))
    options = harness.parse(parser)
    device, folder = options.device, weights.resolve(options.weights)
    precision = choose("auto", device)
    harness.print_machine("torch", "transformers", "sentence-transformers")
    top = harness.peak(device, DTYPES[precision], 8192)
    print(f"{torch.cuda.get_device_name(device)}: {precision}, {top / 1e12:.0f} TFLOPS in a large matrix product")
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", str(TESTS)], capture_output=True, text=True)
    print("tests of CUDA:", *(tests.stdout or tests.stderr).strip().splitlines()[-1:])
    pairs = train_speed.read_pairs(options.data, Tokenizer.load(folder))
    for shape, sizes in SIZES.items():
        for size in sizes:
            print(training(shape, size, pairs, folder, device, top), flush=True)
    options.batch_size, options.sentences, options.peers = 64, 1920, None
    examples = harness.triplets(options.data, options.weights, 32)
    contrastive_speed.compare(folder, examples, options)
    encode_speed.compare(folder, 32, options)


if __name__ == "__main__":
    cli.run(main)
