"""Runs the cells of a study, several at once, as subprocesses of the public scripts and suites.

A stopped run is resumed; a failed one is listed, and the others continue. Ctrl-C reaches every run once: it finishes
its step, writes a checkpoint and ends.
"""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablations.cells import ROOT, Cell, shown
from ablations.estimate import Estimates
from minbert.errors import UserError
from minbert.training.cli import say
from tasks.tables import duration

_TICK, _SAY_EVERY = 0.2, 60.0  # seconds


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass
class _Running:
    """A running command of a cell, and the cell's lock, which the command holds too."""

    cell: Cell
    suite: str
    process: "subprocess.Popen[bytes]"
    held: ExitStack
    lock: int
    begun: float = field(default_factory=time.monotonic)


@dataclass
class Runner:
    """Runs cells until all are finished or failed, the deadline (of `time.monotonic`) has come, or Ctrl-C."""

    cells: Sequence[Cell]
    estimates: Estimates
    jobs: int = 1
    deadline: float = math.inf
    failed: dict[str, str] = field(default_factory=dict)  # name of a cell -> why
    stopped: bool = False  # by the budget or a signal
    signals: list[int] = field(default_factory=list)
    watch: Callable[[Cell], bool] = lambda cell: False  # whether a running cell is to be pruned
    pruned: set[Path] = field(default_factory=set)
    _running: list[_Running] = field(default_factory=list)
    _open: dict[Path, Cell] = field(default_factory=dict)  # what is not finished, by folder

    @property
    def threads(self) -> int:
        """Each run's share of the cores."""
        return max(1, cores() // self.jobs)

    def run(self) -> None:
        """Run the cells. Raises `KeyboardInterrupt` after a signal, when every run has ended."""
        waiting = [cell for cell in self.cells if not cell.finished]
        self._open = {cell.folder: cell for cell in waiting}
        say(f"{len(self.cells) - len(waiting)} of {len(self.cells)} runs are finished; {self.left(waiting)}")
        said = time.monotonic()
        with self.forwarded():
            while waiting or self._running:
                waiting = [] if self.stopped else [cell for cell in waiting if not self.started(cell)]
                self.look()
                now = time.monotonic()
                if now > self.deadline and not self.stopped:
                    say("the budget is spent: the runs are stopped after their step")
                    self.stop(signal.SIGINT)
                if now - said > _SAY_EVERY:
                    said = now
                    self.say_progress(waiting)
                time.sleep(_TICK)
        if self.signals:
            raise KeyboardInterrupt

    def left(self, waiting: Sequence[Cell]) -> str:
        """The estimated time left, as text."""
        each = [self.estimates.left(cell) for cell in [*waiting, *(one.cell for one in self._running)]]
        return f"{_about(sum(each) / self.jobs if all(each) else 0)} left" if each else "nothing is left"

    def started(self, cell: Cell) -> bool:
        """Start a waiting cell if possible. True if it no longer waits: it runs, is finished, or cannot be run."""
        before = self._open.get(cell.upstream) if cell.upstream else None
        if before is not None and before.name in self.failed:
            self.fail(cell, f"{before.name} failed")
            return True
        if before is not None or len(self._running) >= self.jobs:
            return False
        held = ExitStack()
        lock = held.enter_context(cell.lock())
        if lock is None:  # another runner has it
            held.close()
            return False
        command = self.todo(cell)
        if command is not None:
            self.start(cell, command, held, lock.fileno())
            return True
        held.close()
        if cell.name not in self.failed:
            del self._open[cell.folder]
            say(f"{cell.name}: finished by another runner")
        return True

    def todo(self, cell: Cell) -> tuple[str, list[str]] | None:
        """The next command of a cell; None if it is finished, or has failed because its folder holds another run."""
        try:
            return next(cell.commands(), None)
        except UserError as error:
            self.fail(cell, str(error))
            return None

    def start(self, cell: Cell, command: tuple[str, list[str]], held: ExitStack, lock: int) -> None:
        """Start one command of a cell in a process group of its own, so that it gets no second Ctrl-C."""
        suite, words = command
        say(f"{cell.name}{' ' * bool(suite)}{suite}: {shown(words, self.threads)}")
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": paths}
        how: Any = {"stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL, "start_new_session": True}
        with open(cell.log, "a", encoding="utf-8") as log:
            process = subprocess.Popen([sys.executable, *words], stdout=log, env=environment, pass_fds=[lock], **how)
        self._running.append(_Running(cell, suite, process, held, lock))

    def look(self) -> None:
        """Stop pruned runs, and start the next command of each cell whose command has ended."""
        for one in self._running:
            if one.cell.folder not in self.pruned and self.watch(one.cell):
                self.pruned.add(one.cell.folder)
                os.killpg(one.process.pid, signal.SIGINT)
        for one in [one for one in self._running if one.process.poll() is not None]:
            self._running.remove(one)
            code, cell = one.process.returncode, one.cell
            command = self.todo(cell)
            what = f"{cell.name}{' ' * bool(one.suite)}{one.suite}"
            if cell.folder in self.pruned:
                say(f"{what}: pruned")
            elif code and self.stopped:
                say(f"{what}: stopped; the same command resumes it")
            elif code or (command and command[0] == one.suite):
                self.fail(cell, f"exit code {code}: {_last_line(cell)} ({cell.log})")
            else:
                say(f"{what}: finished in {duration(time.monotonic() - one.begun)}")
                if command and not self.stopped:
                    self.start(cell, command, one.held, one.lock)
                    continue
                if not command and cell.name not in self.failed:
                    del self._open[cell.folder]
            one.held.close()

    def fail(self, cell: Cell, why: str) -> None:
        """Note a failed cell."""
        self.failed[cell.name] = why
        say(f"{cell.name}: failed: {why}")

    def say_progress(self, waiting: Sequence[Cell]) -> None:
        """A line for each run, and the time left of the study."""
        for one in self._running:
            step, total = one.cell.reached
            where = one.suite or (f"step {step:,} of {total:,}" if total else "starting")
            say(f"{one.cell.name}: {where}, {_about(self.estimates.left(one.cell))} left")
        say(f"{len(waiting)} runs wait; {self.left(waiting)}")

    def stop(self, number: int) -> None:
        """Start no more commands, and pass a signal on to the running ones."""
        self.stopped = True
        for one in self._running:
            if one.process.poll() is None:
                os.killpg(one.process.pid, number)

    @contextmanager
    def forwarded(self) -> Iterator[None]:
        """Pass SIGINT and SIGTERM on to the runs; a second one ends them at once, without a checkpoint."""

        def note(number: int, frame: object) -> None:
            self.signals.append(number)
            self.stop(signal.SIGINT)

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _about(seconds: float) -> str:
    return f"about {duration(seconds)}" if seconds else "a time not known yet"


def _last_line(cell: Cell) -> str:
    lines = cell.log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "nothing printed")
