"""Runs the cells of a study, several at once, as subprocesses of the public scripts and suites.

A stopped run is resumed; a failed one is listed, and the others continue. Ctrl-C reaches every run once: it finishes
its step, writes a checkpoint and ends.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ablations.cells import ROOT, Cell, Command, shown
from minbert.errors import UserError
from minbert.training.cli import Interrupted, say
from tasks.tables import duration

_SAY_EVERY = 60.0  # seconds


@dataclass
class Runner:
    """Runs cells, `jobs` at once, until all are finished or failed, or Ctrl-C."""

    cells: Sequence[Cell]
    jobs: int = 1
    failed: dict[str, str] = field(default_factory=dict)  # name of a cell -> why
    stopped: int = 0  # the number of the signal that stopped it
    _running: dict[Path, tuple[str, "subprocess.Popen[bytes]"]] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Each run's share of the cores."""
        return max(1, len(os.sched_getaffinity(0)) // self.jobs)

    def run(self) -> None:
        """Run the cells. Raises `Interrupted` after a signal, when every run has ended."""
        say(self.summary())
        done: dict[Path, Future[bool]] = {}
        with ThreadPoolExecutor(self.jobs) as pool, self._forwarded():
            for cell in self.cells:  # what another starts from comes before it, so waiting for it always ends
                done[cell.folder] = pool.submit(self._finish, cell, done.get(cell.upstream or Path()))
            while (left := wait(done.values(), timeout=_SAY_EVERY)).not_done:
                for cell in self.cells:
                    if running := self._running.get(cell.folder):
                        say(f"{cell.name}: {running[0] or cell.progress}")
                say(f"{len(left.done)} of {len(done)} runs are finished; {self._time_left(len(left.not_done))}")
        for future in done.values():
            future.result()  # an error that is none of the cell's
        if self.stopped:
            raise Interrupted("stopped; the same command continues", self.stopped)

    def summary(self) -> str:
        """How many runs are finished, and the time left."""
        count = sum(cell.finished for cell in self.cells)
        return f"{count} of {len(self.cells)} runs are finished; {self._time_left(len(self.cells) - count)}"

    def _time_left(self, count: int) -> str:
        """The time that `count` runs take, by the mean of the finished ones."""
        seconds = [cell.seconds for cell in self.cells if cell.seconds]
        if not count or not seconds:
            return "a time not known yet is left" if count else "nothing is left"
        return f"about {duration(count * sum(seconds) / len(seconds) / self.jobs)} left"

    def _finish(self, cell: Cell, before: "Future[bool] | None") -> bool:
        """Run the commands of a cell after the cell that it starts from; whether it is finished."""
        if before is not None and not before.result():
            return bool(self.stopped) or self._fail(cell, f"{cell.arm.upstream} seed {cell.seed} failed")
        try:
            while not self.stopped and (command := next(cell.commands(), None)):
                code = self._call(cell, command)
                if code and self.stopped:
                    say(f"{cell.name}: stopped; the same command resumes it")
                elif code or next(cell.commands(), None) == command:
                    return self._fail(cell, f"exit code {code}: {_last_line(cell)} ({cell.log})")
        except UserError as error:
            return self._fail(cell, str(error))
        return not self.stopped

    def _call(self, cell: Cell, command: Command) -> int:
        """The exit code of one command, which gets a process group of its own, so that it gets no second Ctrl-C."""
        suite, words = command
        say(f"{cell.name}{' ' * bool(suite)}{suite}: {shown(words, self.threads)}")
        begun = time.monotonic()
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        with open(cell.log, "ab") as log:
            options = {"stdout": log, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            process = subprocess.Popen(  # type: ignore[call-overload]
                [sys.executable, *words], env=environment(self.threads), start_new_session=True, **options
            )
            self._running[cell.folder] = suite, process
            if self.stopped:
                os.killpg(process.pid, signal.SIGINT)
            code = int(process.wait())
        del self._running[cell.folder]
        if not code:
            say(f"{cell.name}{' ' * bool(suite)}{suite}: finished in {duration(time.monotonic() - begun)}")
        return code

    def _fail(self, cell: Cell, why: str) -> bool:
        """Note a failed cell."""
        self.failed[cell.name] = why
        say(f"{cell.name}: failed: {why}")
        return False

    @contextmanager
    def _forwarded(self) -> Iterator[None]:
        """Pass SIGINT and SIGTERM on to the runs; a second one ends them at once, without a checkpoint."""

        def stop(number: int, frame: object) -> None:
            self.stopped = self.stopped or number
            for _, process in list(self._running.values()):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def environment(threads: int) -> dict[str, str]:
    """The environment of a command: its threads, and this project's modules."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": paths}


def _last_line(cell: Cell) -> str:
    lines = cell.log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "nothing printed")
