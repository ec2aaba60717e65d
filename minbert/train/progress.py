"""Progress of a run: tqdm's bar on a terminal, plain lines elsewhere (a file, a pipe, a cluster's log, a notebook)."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

from minbert.train import distributed
from minbert.train.cli import say
from minbert.train.plan import Plan

_SILENCE = 60.0  # seconds; without a terminal, progress is printed at least once in this time

NOT_METRICS = ("kind", "step", "epoch", "score", "best", "seconds")
"""What a row of an evaluation holds besides its metrics."""

T = TypeVar("T")


class _Bar(tqdm):  # type: ignore[misc]
    monitor_interval = 0  # no thread of its own


def bar(items: Sequence[T], label: str) -> Iterable[T]:
    """The items one by one, with a bar named `label` on standard error, on the first rank only.

    Standard output is left to results. Where standard error is no terminal, the bar is printed once a minute.
    """
    pause = 0.1 if _can_redraw(sys.stderr) else _SILENCE
    hidden = distributed.rank() > 0
    return _Bar(
        items,
        desc=label,
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
        mininterval=pause,
        maxinterval=pause,
        delay=pause,
        disable=hidden,
    )


class Progress:
    """Epoch, step, mean losses, score, speed and time left of one run.

    On a terminal a bar shows them, below all other output. Elsewhere the loop prints them as a line of text with each
    row of the metrics, and in between when `due`. Evaluations are lines in both. `done` is the step that the run
    begins with. With `num_tasks` above 1, a loss is shown with its task's name. `keeps_best` marks the best
    evaluation so far in its line.
    """

    def __init__(self, plan: Plan, done: int, num_tasks: int, *, keeps_best: bool) -> None:
        self._plan = plan
        self._first_step = done
        self._step = done
        self._several_tasks = num_tasks > 1
        self._keeps_best = keeps_best
        self._means: dict[str, float] = {}  # the latest of each task
        self._score = ""
        first_rank = distributed.rank() == 0
        self._prints_lines = first_rank and not _can_redraw(sys.stdout)
        self._bar: _Bar | None = None
        if first_rank and not self._prints_lines:
            self._bar = _Bar(
                total=plan.total,
                initial=done,
                desc=self._epoch,
                file=sys.stdout,
                dynamic_ncols=True,
                leave=False,
                unit="step",
            )
        now = time.perf_counter()
        self._run_started = now
        self._last_line = now
        # the measurement of speed
        self._timing_started = now
        self._examples = 0

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def advance(self, examples: int) -> None:
        """Count one step of `examples` examples."""
        self._step += 1
        self._examples += examples
        if self._bar is not None:
            self._bar.set_description_str(self._epoch, refresh=False)
            self._bar.update()

    @property
    def due(self) -> bool:
        """Whether to print a line because there was none for a minute; False with a bar."""
        return self._prints_lines and time.perf_counter() - self._last_line >= _SILENCE

    def show(self, rate: float, means: Mapping[str, float], *, line: bool) -> None:
        """Show the mean losses since the last row of the metrics; without a bar, only for a `line` or if `due`."""
        self._means |= means
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._format_losses(self._means)}  {self._score}".rstrip())
        elif self._prints_lines and (line or self.due):
            step = f"step {self._step:,}/{self._plan.total:,}"
            losses = self._format_losses(means)
            now = time.perf_counter()
            speed = self._examples / (now - self._timing_started)
            # the time left includes the coming evaluations, at the mean over all of this run's time so far
            seconds_a_step = (now - self._run_started) / (self._step - self._first_step)
            left = tqdm.format_interval(seconds_a_step * (self._plan.total - self._step))
            say(f"epoch {self._epoch}  {step}  {losses}  lr {rate:.3g}  {speed:.0f} examples/s  {left} left")
            self._last_line = now

    def times(self) -> dict[str, float]:
        """Seconds and speed since the last call or evaluation, for the metrics."""
        seconds = time.perf_counter() - self._timing_started
        row = {"seconds": round(seconds, 3), "examples_per_second": round(self._examples / seconds, 1)}
        self._restart()
        return row

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """Print one line for an evaluation, from its row of the metrics."""
        self._score = f"score {format_score(row['score'])}"
        metrics = {name: value for name, value in row.items() if name not in NOT_METRICS}
        best = "  (best so far)" if row["best"] and self._keeps_best else ""
        measured = format_metrics(metrics, "  ")
        distributed.say(f"epoch {self._epoch}  step {self._step:,}  evaluation: {measured}{best}")
        self._restart()

    def _restart(self) -> None:
        """Restart the measurement of speed, so that it excludes the time of an evaluation."""
        self._examples = 0
        self._timing_started = time.perf_counter()

    @property
    def _epoch(self) -> str:
        """The epoch of the latest step, and the number of epochs."""
        latest = max(self._step - 1, 0)
        return f"{self._plan.epoch_of(latest) + 1}/{len(self._plan.lengths)}"

    def _format_losses(self, means: Mapping[str, float]) -> str:
        """For example `loss quora 0.6120 sst 1.2030`, or `loss 2.0310  accuracy 0.4000` for one task."""
        kinds = []
        for kind in ("loss", "accuracy"):
            values = []
            for key, value in means.items():
                task, _, name = key.partition("/")
                if name == kind:
                    label = f"{task} " if self._several_tasks else ""
                    values.append(f"{label}{format_score(value)}")
            if values:
                kinds.append(" ".join([kind, *values]))
        return "  ".join(kinds)


def _can_redraw(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can be redrawn; in a notebook it claims to be one but cannot be redrawn."""
    in_notebook = "JPY_PARENT_PID" in os.environ
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown") and not in_notebook


def format_metrics(metrics: Mapping[str, float | None], separator: str = ", ") -> str:
    """The metrics of an evaluation for the terminal."""
    parts = [f"{name.replace('_', ' ')} {format_score(value)}" for name, value in metrics.items()]
    return separator.join(parts) or "nothing is measured"


def format_score(score: float | None) -> str:
    """A score or a loss for the terminal."""
    return "undefined" if score is None else f"{score:.4f}"
