"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tqdm import tqdm

from minbert.training import ranks


class Progress:
    """The bar of one run: steps, examples a second, time left, and the latest mean losses."""

    def __init__(self, total: int, done: int, sentences: int = 1) -> None:
        self._sentences = sentences  # of an example
        self._bar = tqdm(
            total=total,
            initial=done,
            unit="step",
            dynamic_ncols=True,
            disable=ranks.rank() != 0 or not sys.stderr.isatty(),
            bar_format="{percentage:3.0f}% {bar} {n_fmt}/{total_fmt} steps  {remaining} left{postfix}",
        )
        self._examples = 0
        self._started = time.perf_counter()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()

    def advance(self, examples: int) -> None:
        """One step over so many examples is done."""
        self._examples += examples
        self._bar.update(1)

    def show(self, means: dict[str, float]) -> None:
        """Put the mean losses beside the bar."""
        if not self._examples or not means:
            return
        speed = self._examples * self._sentences / (time.perf_counter() - self._started)
        shown = [f"{_SHOWN[kind](task)} {value:.3f}" for (task, kind), value in _split(means) if kind in _SHOWN]
        self._bar.set_postfix_str("  ".join([f"{speed:.0f} {_unit(self._sentences)}/s", *shown]))

    def times(self) -> dict[str, float]:
        """Seconds and speed since the last call, for the metrics."""
        now = time.perf_counter()
        seconds = now - self._started
        row = {"seconds": round(seconds, 3), "examples_per_second": round(self._examples / seconds, 1)}
        if self._sentences > 1:
            row["sentences_per_second"] = round(self._examples * self._sentences / seconds, 1)
        self._examples, self._started = 0, now
        return row

    def say(self, epoch: int, epochs: int, step: int, numbers: dict[str, Any], gained: bool) -> None:
        """One line for an evaluation."""
        shown = {name: "undefined" if value is None else f"{value:.3f}" for name, value in numbers.items()}
        scores = "  ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
        self._bar.write(f"epoch {epoch}/{epochs}  step {step}  {scores}{'  (best so far)' if gained else ''}")


_SHOWN: dict[str, Callable[[str], str]] = {"loss": lambda task: task, "accuracy": lambda task: "accuracy"}


def _split(means: dict[str, float]) -> list[tuple[tuple[str, str], float]]:
    """The means under (task, number), losses first."""
    split = [((key.partition("/")[0], key.partition("/")[2]), value) for key, value in means.items()]
    return sorted(split, key=lambda item: item[0][1] != "loss")


def _unit(sentences: int) -> str:
    return "sentences" if sentences > 1 else "examples"
