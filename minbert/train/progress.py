"""Progress of a run: tqdm's bar on a terminal, plain lines elsewhere (a file, a pipe, a cluster's log, a notebook)."""

import os
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

from minbert.train import distributed
from minbert.train.cli import say
from minbert.train.plan import Plan

_SILENCE = 60.0  # seconds; without a bar, at least one line is printed in this time

T = TypeVar("T")


class _Bar(tqdm):  # type: ignore[misc]
    monitor_interval = 0  # no thread of its own


def bar(items: Sequence[T], label: str) -> Iterable[T]:
    """The items one by one, with a bar named `label` on standard error, on the first rank only.

    Standard output is left to results. Where standard error is no terminal, a line is printed once a minute.
    """
    if not _redraws(sys.stderr):
        return _with_lines(items, label)
    options = {"file": sys.stderr, "leave": False, "dynamic_ncols": True, "disable": bool(distributed.rank())}
    return _Bar(items, desc=label, **options)


def _with_lines(items: Sequence[T], label: str) -> Iterator[T]:
    last_line = time.perf_counter()
    for number, item in enumerate(items):
        if distributed.rank() == 0 and time.perf_counter() - last_line >= _SILENCE:
            say(f"{label}: {number:,} of {len(items):,}", sys.stderr)
            last_line = time.perf_counter()
        yield item


class Progress:
    """Epoch, step, mean losses, score, speed and time left of one run.

    On a terminal a bar shows them, below all other output. Elsewhere the loop prints them as a line of text with each
    row of the metrics, and in between when `due`. Evaluations are lines in both. `done` is the step that the run
    begins with. With several `tasks`, a loss is shown with its task's name. `keeps_best` marks the best
    evaluation so far in its line.
    """

    def __init__(self, plan: Plan, done: int, tasks: int = 1, *, keeps_best: bool = True) -> None:
        self._ends, self._total, self._first, self._step = plan.ends, plan.total, done, done
        self._tasks, self._keeps_best = tasks, keeps_best
        self._means: dict[str, float] = {}  # the latest of each task
        self._score = ""
        self._bar: _Bar | None = None
        self._printing = distributed.rank() == 0 and not _redraws(sys.stdout)  # lines
        self._examples, self._speed = 0, 0.0  # examples a second
        self._begun = self._started = self._last_line = time.perf_counter()

    def __enter__(self) -> "Progress":
        if distributed.rank() == 0 and not self._printing:
            options = {"file": sys.stdout, "dynamic_ncols": True, "leave": False, "unit": "step"}
            self._bar = _Bar(total=self._total, initial=self._step, desc=self._epoch, **options)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, examples: int) -> None:
        """Count one step of `examples` examples."""
        self._step += 1
        self._examples += examples
        self._speed = self._examples / (time.perf_counter() - self._started)
        if self._bar is not None:
            self._bar.set_description_str(self._epoch, refresh=False)
            self._bar.update()

    @property
    def due(self) -> bool:
        """Whether to print a line because there was none for a minute; False with a bar."""
        return self._printing and time.perf_counter() - self._last_line >= _SILENCE

    def show(self, rate: float, means: Mapping[str, float], *, line: bool) -> None:
        """Show the mean losses since the last row of the metrics; without a bar, only for a `line` or if `due`."""
        self._means |= means
        if self._bar is not None:
            self._bar.set_postfix_str("  ".join(filter(None, [self._losses(self._means), self._score])))
        elif self._printing and (line or self.due):
            step, speed = f"{self._step:,}/{self._total:,}", f"{self._speed:.0f} examples/s"
            losses = self._losses(means)
            say(f"epoch {self._epoch}  step {step}  {losses}  lr {rate:.3g}  {speed}  {self._left} left")
            self._last_line = time.perf_counter()

    def times(self) -> dict[str, float]:
        """Seconds and speed since the last call or evaluation, for the metrics."""
        seconds = time.perf_counter() - self._started
        row = {"seconds": round(seconds, 3), "examples_per_second": round(self._examples / seconds, 1)}
        self._restart()
        return row

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """Print one line for an evaluation, from its row of the metrics."""
        self._score = f"score {_number(row['score'])}"
        numbers = {name: value for name, value in row.items() if name not in ("score", "best", "seconds")}
        shown = "  ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in numbers.items())
        better = "  (best so far)" * (row["best"] and self._keeps_best)
        distributed.say(f"epoch {self._epoch}  step {self._step:,}  evaluation: {shown}{better}")
        self._restart()

    def _restart(self) -> None:
        """Restart the measurement of speed, so that it excludes the time of an evaluation."""
        self._examples, self._started = 0, time.perf_counter()

    @property
    def _epoch(self) -> str:
        """The epoch of the latest step, and the number of epochs."""
        return f"{bisect_left(self._ends, max(self._step, 1)) + 1}/{len(self._ends)}"

    @property
    def _left(self) -> str:
        """Time left at the mean speed so far, evaluations included, as 1:02:03."""
        done = self._step - self._first
        if not done:
            return "-"
        return tqdm.format_interval((time.perf_counter() - self._begun) / done * (self._total - self._step))

    def _losses(self, means: Mapping[str, float]) -> str:
        """For example `loss quora 0.612 sst 1.203`, or `loss 2.031  accuracy 0.400` for one task."""
        shown = []
        for kind in ("loss", "accuracy"):
            values = {key.partition("/")[0]: value for key, value in means.items() if key.endswith(f"/{kind}")}
            if values:
                named = self._tasks > 1
                each = (f"{task} {_number(value)}" if named else _number(value) for task, value in values.items())
                shown.append(f"{kind} {' '.join(each)}")
        return "  ".join(shown)


def _redraws(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can be redrawn; a notebook gives its commands a terminal that cannot."""
    notebook = "JPY_PARENT_PID" in os.environ
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown") and not notebook


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
