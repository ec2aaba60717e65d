"""What the benchmarks share: contestants timed in turn on the same batches, and their medians with quartiles."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

B = TypeVar("B")


def shuffled(rows: int, size: int, count: int) -> list[list[int]]:
    """`count` batches of `size` row numbers below `rows`, in shuffled order that begins again where it runs out."""
    order: list[int] = []
    generator = random.Random(0)
    while len(order) < count * size:
        order += generator.sample(range(rows), rows)
    return [order[start : start + size] for start in range(0, count * size, size)]


def measure(steps: Mapping[str, Callable[[B], object]], batches: Sequence[B], warmup: int) -> dict[str, Tensor]:
    """Seconds of each timed batch, for each contestant: float64 [batches - warmup] each.

    Every batch goes through all contestants before the next one, starting with another one each time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    entries = list(steps.items())
    begun = time.perf_counter()
    for number, batch in enumerate(batches):
        if number == warmup:
            print(f"warm-up: {warmup} batches each, {time.perf_counter() - begun:.0f} s in all")
        turn = number % len(entries)
        for name, step in entries[turn:] + entries[:turn]:
            start = time.perf_counter()
            step(batch)
            seconds[name].append(time.perf_counter() - start)
    return {name: torch.tensor(values[warmup:], dtype=torch.float64) for name, values in seconds.items()}


def quartiles(values: Tensor) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, middle, high = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    return low, middle, high


def markdown(seconds: Mapping[str, Tensor], unit: str, bases: Sequence[str]) -> str:
    """A table in Markdown: milliseconds a `unit`, and how many times as long as each of `bases`.

    Everything is a median with quartiles; ratios are taken batch by batch.
    """
    heads = ["", f"ms a {unit}", *(f"times {base}" for base in bases)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, values in seconds.items():
        cells = [name, _cell(1000 * values, 0), *(_cell(values / seconds[base], 2) for base in bases)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Tensor, digits: int) -> str:
    low, middle, high = (f"{value:.{digits}f}" for value in quartiles(values))
    return f"{middle} [{low}, {high}]"
