"""Shared by the benchmarks: flags, shuffled batches, interleaved timing, tables of medians."""

import argparse
import os
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import pandas as pd
import torch
from torch import Tensor

from minbert import weights
from minbert.errors import UserError
from minbert.tokenizer import Tokenizer
from tasks import readers
from tasks.examples import Examples
from tasks.tables import Table

B = TypeVar("B")
K = TypeVar("K", bound=Hashable)
CPU = torch.device("cpu")
BASES = ("minbert bf16", "minbert fp16", "minbert fp32")
SAMPLE = Path(__file__).resolve().parent.parent / "data" / "sample"


def parser(doc: str | None, data: str, batches: int, warmup: int) -> argparse.ArgumentParser:
    """The flags that the benchmarks share; `data` says what the folder of --data holds."""
    flags = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--data", type=Path, default=os.environ.get("DATA_DIR") or SAMPLE, help=f"folder with {data}")
    flags.add_argument("--batches", type=int, default=batches, help="timed batches (default: %(default)s)")
    flags.add_argument(
        "--warmup", type=int, default=warmup, help="batches before them, not timed (default: %(default)s)"
    )
    flags.add_argument("--weights", default="minilm", help="minilm, or a folder (default: minilm)")
    flags.add_argument("--threads", type=int, help="(default: as many as torch takes)")
    flags.add_argument("--device", type=torch.device, default=CPU, help="cpu or cuda (default: cpu)")
    return flags


def parse(flags: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, set the number of threads, and seed torch's generator. Raises `UserError`."""
    options = flags.parse_args()
    if min(options.batches, options.threads or 1) < 1:
        raise UserError("--batches, --threads: 1 is the least")
    if options.warmup < 0:
        raise UserError("--warmup: 0 is the least")
    if options.device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.data == SAMPLE:
        print("DATA_DIR is not set: the small sample, whose rows are repeated again and again")
    return options


def print_machine(*libraries: str) -> None:
    """Print the versions of some libraries, the number of threads, and the load average."""
    print(", ".join(f"{library} {metadata.version(library)}" for library in libraries))
    print(f"{torch.get_num_threads()} threads; load average {os.getloadavg()[0]:.1f}")


def triplets(data: Path, source: str, length: int) -> Examples:
    """The NLI triplets of a folder, tokenised with the vocabulary of the weights `source`."""
    tokenizer = Tokenizer.load(weights.resolve(source))
    path = readers.find_file(data, "nli", ["nli_for_simcse.csv", "nli-triplets.csv"])
    cache = readers.tokenised(path, "triplet", tokenizer)
    return Examples(cache, tokenizer.cls, tokenizer.sep, length)


def shuffled(rows: int, size: int, count: int) -> list[list[int]]:
    """`count` batches of `size` row numbers below `rows`; if there are too few rows, they are reshuffled and reused."""
    order: list[int] = []
    generator = random.Random(0)
    while len(order) < count * size:
        order += generator.sample(range(rows), rows)
    return [order[start : start + size] for start in range(0, count * size, size)]


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Operations a second of a matrix product of two [size, size] matrices, the fastest of ten."""
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = []
    for _ in range(12):
        wait_for(device)
        begun = time.perf_counter()
        a @ b
        wait_for(device)
        seconds.append(time.perf_counter() - begun)
    return 2 * size**3 / min(seconds[2:])


def measure(
    contestants: Mapping[K, Callable[[B], object]], batches: Sequence[B], warmup: int, device: torch.device = CPU
) -> dict[K, Tensor]:
    """Seconds of each timed batch, for each contestant: float64 [batches - warmup] each.

    Every batch is run by all contestants before the next batch, each time starting with another contestant. The first
    `warmup` batches are not timed, because oneDNN compiles a kernel for every new shape of a matrix product. A
    contestant in a process of its own returns the seconds that it took itself.
    """
    seconds: dict[K, list[float]] = {name: [] for name in contestants}
    entries = list(contestants.items())
    begun = time.perf_counter()
    for number, batch in enumerate(batches):
        if number == warmup:
            print(f"warm-up: {warmup} batches each, {time.perf_counter() - begun:.0f} s in all")
        shift = number % len(entries)
        for name, step in entries[shift:] + entries[:shift]:
            begin = time.perf_counter()
            own = step(batch)
            wait_for(device)
            seconds[name].append(own if isinstance(own, float) else time.perf_counter() - begin)
    return {name: torch.tensor(values[warmup:], dtype=torch.float64) for name, values in seconds.items()}


def cell(values: Tensor, digits: int) -> str:
    """Median with quartiles: `2.1 [1.9, 2.5]`."""
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    low, middle, high = (f"{value:.{digits}f}" for value in quartiles)
    return f"{middle} [{low}, {high}]"


def table(
    title: str, seconds: Mapping[str, Tensor], unit: str, more: Mapping[str, dict[str, str]] | None = None
) -> str:
    """A table in Markdown: milliseconds per `unit`, and the ratios, batch by batch, to the times of each base.

    `more` are further cells of a contestant, by their column.
    """
    rows = [
        {"": name, f"ms a {unit}": cell(1000 * values, 1 if values.median() < 0.1 else 0)}
        | {f"times {base}": cell(values / seconds[base], 2) for base in BASES if base in seconds}
        | (more[name] if more else {})
        for name, values in seconds.items()
    ]
    return f"\n{title}\n\n{Table('', pd.DataFrame(rows)).pipes()}"
