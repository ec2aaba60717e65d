"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from minbert.training import ranks
from minbert.training.cli import say

_SILENCE = 60.0  # seconds; without a terminal, at least one line is printed in this time


class Progress:
    """Steps, examples per second, time left and the latest mean losses of one run.

    On a terminal they are shown in a bar. Elsewhere (a file, a pipe, a cluster's log) the loop prints them as a line
    of text with each row of the metrics, and in between when `due`. `sentences` is their number per example. With
    several `tasks`, a loss is shown with its task's name.
    """

    def __init__(self, total: int, done: int, sentences: int = 1, tasks: int = 1) -> None:
        self._total, self._first, self._step, self._sentences, self._tasks = total, done, done, sentences, tasks
        terminal = sys.stderr.isatty()
        self._printing = ranks.rank() == 0 and not terminal
        layout = "{percentage:3.0f}% {bar} {n_fmt}/{total_fmt} steps  {remaining} left{postfix}"
        hidden = ranks.rank() != 0 or not terminal
        self._bar = tqdm(total=total, initial=done, dynamic_ncols=True, disable=hidden, bar_format=layout)
        self._examples = 0
        self._begun = self._started = self._said = time.perf_counter()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def advance(self, examples: int) -> None:
        """Count one step of `examples` examples."""
        self._step += 1
        self._examples += examples
        self._bar.update(1)

    def show(self, means: Mapping[str, float]) -> None:
        """Show the mean losses in the bar."""
        if self._examples and means:
            self._bar.set_postfix_str(f"{self._speed()}  {self._losses(means)}", refresh=False)

    @property
    def due(self) -> bool:
        """Whether no line has been printed for a minute; False on a terminal."""
        return self._printing and time.perf_counter() - self._said >= _SILENCE

    def line(self, epoch: str, rate: float, means: Mapping[str, float]) -> None:
        """Print the progress unless a bar shows it; `means` are the mean losses since the last row of the metrics."""
        if not self._printing:
            return
        self._said = time.perf_counter()
        left = (self._said - self._begun) / (self._step - self._first) * (self._total - self._step)
        say(
            f"epoch {epoch}  step {self._step:,}/{self._total:,}  {self._losses(means)}  lr {rate:.3g}  "
            f"{self._speed()}  {tqdm.format_interval(left)} left"
        )

    def times(self) -> dict[str, float]:
        """Seconds and speed since the last call or `restart`, for the metrics."""
        seconds = time.perf_counter() - self._started
        row = {"seconds": round(seconds, 3), "examples_per_second": round(self._examples / seconds, 1)}
        if self._sentences > 1:
            row["sentences_per_second"] = round(self._examples * self._sentences / seconds, 1)
        self.restart()
        return row

    def restart(self) -> None:
        """Restart the measurement of speed, so that it excludes the time of an evaluation."""
        self._examples, self._started = 0, time.perf_counter()

    def evaluated(self, epoch: str, row: Mapping[str, Any]) -> None:
        """Print one line for an evaluation, from its row of the metrics."""
        shown = {name: value for name, value in row.items() if name not in ("score", "best", "seconds")}
        scores = "  ".join(
            f"{name.replace('_', ' ')} {'undefined' if value is None else f'{value:.3f}'}"
            for name, value in shown.items()
        )
        if ranks.rank() == 0:
            with self._bar.external_write_mode():
                say(f"epoch {epoch}  step {self._step:,}  evaluation: {scores}{'  (best so far)' * row['best']}")
        self.restart()

    def _speed(self) -> str:
        speed = self._examples * self._sentences / (time.perf_counter() - self._started)
        return f"{speed:.0f} {'sentences' if self._sentences > 1 else 'examples'}/s"

    def _losses(self, means: Mapping[str, float]) -> str:
        """For example `loss quora 0.612 sst 1.203`, or `loss 2.031  accuracy 0.4` for a single task."""
        parts = []
        for kind in ("loss", "accuracy"):
            found = {key.partition("/")[0]: value for key, value in means.items() if key.endswith(f"/{kind}")}
            shown = [f"{task} {value:.3f}" if self._tasks > 1 else f"{value:.3f}" for task, value in found.items()]
            parts += [" ".join([kind, *shown])] if shown else []
        return "  ".join(parts)
