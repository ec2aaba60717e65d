"""What the benchmarks of speed share: programs in processes of their own, timing, tables and flags."""

import argparse
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from minbert import UserError
from minbert.fast import tune_allocator
from minbert.precision import supports_bf16
from minbert.train import cli
from tasks.tables import Table

B = TypeVar("B")
DATA = Path(os.environ.get("DATA_DIR") or Path(__file__).resolve().parent.parent / "data" / "sample")
"""The default of `--data`."""
OPENMP_DEFAULT = "300000"
"""The value of `$GOMP_SPINCOUNT` where it is not set; the package `tasks` sets it."""


Build = Callable[..., Callable[..., Any]]


class Program:
    """A function of a batch in a process of its own, which `build(*arguments)` makes there.

    With `as_command`, the process has the settings of memory and threads of minbert's training commands.
    """

    def __init__(self, build: Build, *arguments: Any, as_command: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other_end = context.Pipe()
        process = context.Process(target=_serve, args=(other_end, build, arguments, as_command), daemon=True)
        spin_count = os.environ["GOMP_SPINCOUNT"]
        if not as_command:
            os.environ["GOMP_SPINCOUNT"] = OPENMP_DEFAULT
        process.start()
        os.environ["GOMP_SPINCOUNT"] = spin_count
        other_end.close()  # so that `recv` does not wait for a process that has failed
        self._pipe.recv()

    def __call__(self, *inputs: Any) -> tuple[float, Any]:
        """The seconds that the function took, and what it returned."""
        self._pipe.send(inputs)
        return self._pipe.recv()


def _serve(pipe: Connection, build: Build, arguments: Sequence[Any], as_command: bool) -> None:
    """The process of a `Program`."""
    torch.manual_seed(0)
    if as_command:
        tune_allocator()
    function = build(*arguments)
    pipe.send("ready")
    with suppress(EOFError):  # the end of the program that asks
        while True:
            inputs = pipe.recv()
            started = time.perf_counter()
            output = function(*inputs)
            if torch.cuda.is_initialized():
                # kernels run asynchronously: without waiting, only their launch would be timed
                torch.cuda.synchronize()
            pipe.send((time.perf_counter() - started, output))


def measure(
    programs: Mapping[str, Callable[[B], tuple[float, Any]]], batches: Sequence[B], warmup: int
) -> dict[str, np.ndarray]:
    """Seconds of each batch after the first `warmup`, by name: float64 [batches - warmup] each."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    names = list(programs)
    for number, batch in enumerate(batches):
        # another one begins each time
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            taken, _ = programs[name](batch)
            seconds[name].append(taken)
    return {name: np.array(values[warmup:]) for name, values in seconds.items()}


def timing_table(title: str, seconds: Mapping[str, np.ndarray], base: str) -> Table:
    """A row for each name: milliseconds, and the ratio to `base`."""
    rows = []
    for name, values in seconds.items():
        rows.append({"": name, "ms": quartiles(1000 * values), f"times {base}": quartiles(values / seconds[base])})
    return Table(title, pd.DataFrame(rows))


def quartiles(values: np.ndarray) -> str:
    """Median with quartiles: `2.10 [1.90, 2.50]`."""
    low, middle, high = np.percentile(values, (25, 50, 75))
    digits = 0 if middle >= 100 else 2
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def shuffled(rows: int, size: int, count: int) -> list[list[int]]:
    """`count` batches of `size` row numbers; where there are too few rows, they are shuffled again and repeated."""
    order: list[int] = []
    generator = random.Random(0)
    while len(order) < count * size:
        order += generator.sample(range(rows), rows)
    return [order[start : start + size] for start in range(0, count * size, size)]


def flags(doc: str | None) -> argparse.ArgumentParser:
    """The flags of the benchmarks of speed."""
    parser = cli.Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="(default: $DATA_DIR, else data/sample)")
    parser.add_argument("--weights", default="minilm", help="minilm, or a folder (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)")
    parser.add_argument("--batches", type=int, default=20, help="timed batches (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=20, help="batches before them (default: %(default)s)")
    parser.add_argument("--length", type=int, default=32, help="longest sentence in tokens (default: %(default)s)")
    return parser


def describe_machine(*libraries: str) -> str:
    """The versions of some libraries, the number of threads, and the load."""
    versions = ", ".join(f"{library} {metadata.version(library)}" for library in libraries)
    # the load tells whether other work disturbed the measurement
    return f"{versions}; {torch.get_num_threads()} threads, load average {os.getloadavg()[0]:.1f}"


def precisions_of(device: torch.device) -> list[str]:
    """The number formats to measure on a device, the usual one first. Raises `UserError` for an absent device."""
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here")
    return ["bf16", "fp32"] if supports_bf16(device) else ["fp32"]
