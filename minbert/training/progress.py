"""Progress of a run: a display that is redrawn in place on a terminal, plain lines elsewhere."""

import os
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minbert.training import ranks
from minbert.training.cli import discard_if_closed, say
from minbert.training.plan import Plan

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_SILENCE = 60.0  # seconds; without a display, at least one line is printed in this time
_REDRAW = 0.5  # seconds; one drawing takes some milliseconds


class Progress:
    """Epoch, step, mean losses, score, speed and time left of one run.

    On a terminal they are shown in a display below all other output. Elsewhere (a file, a pipe, a cluster's log, a
    notebook) the loop prints them as a line of text with each row of the metrics, and in between when `due`.
    Evaluations are lines in both. `done` is the step and `best` the best score that the run begins with.
    With several `tasks`, a loss is shown with its task's name.
    """

    def __init__(self, plan: Plan, done: int, best: float | None, tasks: int = 1) -> None:
        self._ends, self._total, self._first, self._step = plan.ends, plan.total, done, done
        self._score, self._best, self._tasks = None, best, tasks
        self._means: dict[str, float] = {}  # the latest of each task
        self._speed = 0.0  # examples per second
        self._live: Live | None = None
        self._printing = ranks.rank() == 0 and not _redraws()  # lines
        self._examples = 0
        self._begun = self._started = self._said = self._drawn = time.perf_counter()

    def __enter__(self) -> "Progress":
        if ranks.rank() == 0 and not self._printing:
            from rich.live import Live  # imported here and in `_display`, as only a terminal needs it

            self._live = Live(get_renderable=self._display, auto_refresh=False, redirect_stderr=sys.stderr.isatty())
            self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            with discard_if_closed(sys.stdout):
                self._live.stop()

    def advance(self, examples: int) -> None:
        """Count one step of `examples` examples."""
        self._step += 1
        self._examples += examples
        self._speed = self._examples / (time.perf_counter() - self._started)
        if time.perf_counter() - self._drawn >= _REDRAW:
            self._draw()

    @property
    def due(self) -> bool:
        """Whether a line is to be printed because none was for a minute; False with a display."""
        return self._printing and time.perf_counter() - self._said >= _SILENCE

    def show(self, rate: float, means: Mapping[str, float], *, line: bool) -> None:
        """Show the mean losses since the last row of the metrics; without a display, if asked for a `line` or `due`."""
        self._means |= means
        if self._printing and (line or self.due):
            losses = "  ".join(f"{kind} {values}" for kind, values in self._losses(means).items())
            step, rest = f"{self._step:,}/{self._total:,}", f"{self._shown_speed}  {self._left} left"
            say(f"epoch {self._epoch}  step {step}  {losses}  lr {rate:.3g}  {rest}")
            self._said = time.perf_counter()

    def times(self) -> dict[str, float]:
        """Seconds and speed since the last call or evaluation, for the metrics."""
        seconds = time.perf_counter() - self._started
        row = {"seconds": round(seconds, 3), "examples_per_second": round(self._examples / seconds, 1)}
        self._restart()
        return row

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """Print one line for an evaluation, from its row of the metrics."""
        self._score = row["score"]
        self._best = self._score if row["best"] else self._best
        numbers = {name: value for name, value in row.items() if name not in ("score", "best", "seconds")}
        shown = "  ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in numbers.items())
        better = "  (best so far)" * row["best"]
        ranks.say(f"epoch {self._epoch}  step {self._step:,}  evaluation: {shown}{better}")
        self._restart()
        self._draw()

    def _restart(self) -> None:
        """Restart the measurement of speed, so that it excludes the time of an evaluation."""
        self._examples, self._started = 0, time.perf_counter()

    def _draw(self) -> None:
        if self._live:
            with discard_if_closed(sys.stdout):
                self._live.refresh()
        self._drawn = time.perf_counter()

    def _display(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        bar = Table.grid(padding=(0, 2), expand=True)
        bar.add_column(ratio=1)
        bar.add_row(ProgressBar(self._total, self._step), f"step {self._step:,}/{self._total:,}", f"{self._left} left")
        best = "" if self._best is None else f"best {_number(self._best)}"
        latest = "" if self._score is None else f"{_number(self._score)}  "
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True, style="bold")
        table.add_column(ratio=1)
        table.add_row(f"epoch {self._epoch}", bar)
        for kind, values in (self._losses(self._means) | {"score": latest + best, "speed": self._shown_speed}).items():
            table.add_row(kind, values)
        return table

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
        minutes, seconds = divmod(int((time.perf_counter() - self._begun) / done * (self._total - self._step)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"

    @property
    def _shown_speed(self) -> str:
        return f"{self._speed:.0f} examples/s"

    def _losses(self, means: Mapping[str, float]) -> dict[str, str]:
        """For example `{"loss": "quora 0.612 sst 1.203"}`, or `{"loss": "2.031", "accuracy": "0.400"}` for one task."""
        shown: dict[str, str] = {}
        for kind in ("loss", "accuracy"):
            found = {key.partition("/")[0]: value for key, value in means.items() if key.endswith(f"/{kind}")}
            if found:
                named = (
                    f"{task} {_number(value)}" if self._tasks > 1 else _number(value) for task, value in found.items()
                )
                shown[kind] = " ".join(named)
        return shown


def _redraws() -> bool:
    """Whether the output is a terminal that can be redrawn; a notebook gives its commands a terminal that cannot."""
    notebook = "JPY_PARENT_PID" in os.environ
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown") and not notebook


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
