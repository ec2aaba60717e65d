"""Runs the cells of a study, several at once, as subprocesses of the public scripts and suites.

A stopped run is resumed; a failed one is listed, and the others continue. Ctrl-C reaches every run once: it finishes
its step, writes a checkpoint and ends.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ablations.cells import ROOT, Cell, Command, shown
from minbert.errors import UserError
from minbert.train.cli import Interrupted, catch_signals, say
from tasks.tables import duration

_SAY_EVERY = 60.0  # seconds


@dataclass
class Runner:
    """Runs cells, `jobs` at once, until all are finished or failed, or Ctrl-C."""

    cells: Sequence[Cell]
    jobs: int = 1
    failed: dict[str, str] = field(default_factory=dict)  # name of a cell -> why
    stopped: int = 0  # the number of the signal that stopped it
    _running: set["subprocess.Popen[bytes]"] = field(default_factory=set)
    _begun: tuple[float, int] = (0.0, 0)  # the time when `run` began, and how many cells were finished then

    @property
    def threads(self) -> int:
        """Each run's share of the cores."""
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return max(1, cores // self.jobs)

    def run(self) -> None:
        """Run the cells. Raises `Interrupted` after a signal, when every run has ended."""
        self._begun = time.monotonic(), self._finished
        say(self.summary())
        finished: dict[Path, Future[bool]] = {}
        with ThreadPoolExecutor(self.jobs) as pool, catch_signals(self._stop):
            for cell in self.cells:  # what another starts from comes before it, so waiting for it always ends
                finished[cell.folder] = pool.submit(self._finish, cell, finished.get(cell.upstream or Path()))
            while wait(finished.values(), timeout=_SAY_EVERY).not_done:
                with suppress(UserError):  # a cell's folder was changed meanwhile, which `_finish` reports
                    say(self.summary())
        for future in finished.values():
            future.result()  # an error that is none of the cell's
        if self.stopped:
            raise Interrupted("stopped; the same command continues", self.stopped)

    def summary(self) -> str:
        """How many runs are finished with their suites, and the time left at the rate since the start."""
        finished, (begun, before) = self._finished, self._begun
        left, text = len(self.cells) - finished, f"{finished} of {len(self.cells)} runs are finished"
        if begun and left and finished > before:
            return f"{text}; about {duration(left * (time.monotonic() - begun) / (finished - before))} left"
        return text if left else f"{text}; nothing is left"

    @property
    def _finished(self) -> int:
        return sum(cell.finished for cell in self.cells)

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
        name, begun = f"{cell.name} {suite}".rstrip(), time.monotonic()
        say(f"{name}: {shown(words, self.threads)}")
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with open(cell.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words],
                env=os.environ | {"OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": paths},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
            if self.stopped:
                os.killpg(process.pid, signal.SIGINT)
            code = process.wait()
        self._running.remove(process)
        if not code:
            say(f"{name}: finished in {duration(time.monotonic() - begun)}")
        return code

    def _fail(self, cell: Cell, why: str) -> bool:
        self.failed[cell.name] = why
        say(f"{cell.name}: failed: {why}")
        return False

    def _stop(self, number: int, frame: object) -> None:
        """Pass a signal on to the runs; a second one ends them at once, without a checkpoint."""
        self.stopped = self.stopped or number
        for process in list(self._running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)


def _last_line(cell: Cell) -> str:
    lines = cell.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing printed"
