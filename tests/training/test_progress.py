"""Guards: what a terminal shows fits it, and a run goes on when its terminal is closed.

python -m pytest --import-mode=importlib tests/training/test_progress.py
"""

import os
import re
import sys
import threading
from typing import Any

import pytest

from minbert.training import progress
from minbert.training.run import RunDir

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal as standard output, and what was written to it."""

    def __init__(self, columns: int, patch: pytest.MonkeyPatch) -> None:
        self._reader, writer = os.openpty()
        self._content = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self._file = os.fdopen(writer, "w")
        patch.setattr(sys, "stdout", self._file)
        patch.setattr(progress, "_REDRAW", 0)
        patch.delenv("JPY_PARENT_PID", raising=False)
        for name, value in (("TERM", "xterm"), ("COLUMNS", str(columns)), ("LINES", "40")):
            patch.setenv(name, value)

    def _read(self) -> None:
        while b"\0" not in self._content:
            self._content += os.read(self._reader, 4096)

    def hang_up(self, *_: Any) -> None:
        self._file.write("\0")
        self._file.flush()
        self._thread.join()
        os.close(self._reader)

    def lines(self) -> list[str]:
        self.hang_up()
        lines = re.split(r"[\r\n]+", CONTROL.sub("", self._content.decode().removesuffix("\0")))
        return [line.rstrip() for line in lines if line]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_shows_a_display_below_the_evaluations(
    toy: Any, run: RunDir, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        terminal = Terminal(columns, patch)
        toy.fit(run, scores=[0.25, 0.75, 0.5])
        lines = terminal.lines()
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if "evaluation" in line] == [
        "epoch 1/3  step 4  evaluation: toy 0.500  (best so far)",
        "epoch 2/3  step 8  evaluation: toy 0.500  (best so far)",
        "epoch 3/3  step 12  evaluation: toy 0.500",
    ]
    steps = [line.partition(" step ")[2].split()[0] for line in lines if "epoch" in line and " left" in line]
    assert list(dict.fromkeys(steps)) == [f"{step}/12" for step in range(13)]
    epoch, loss, score, speed = (line.split() for line in lines[-4:])
    assert epoch[:2] == ["epoch", "3/3"] and epoch[-1] == "left" and score == ["score", "0.500", "best", "0.750"]
    assert loss[0] == "loss" and float(loss[1]) > 0 and speed[0] == "speed" and int(speed[1]) > 0
    assert not any("lr " in line for line in lines), "no lines beside the display"


def test_a_run_whose_terminal_is_closed_trains_to_its_end(
    toy: Any, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        terminal = Terminal(80, patch)
        _, state, _ = toy.fit(run, objective=toy.Objective(after={5: terminal.hang_up}))
    assert state.finished and len(run.metrics()) == 6


@pytest.mark.parametrize(("name", "value"), [("JPY_PARENT_PID", "1"), ("TERM", "dumb")])
def test_what_cannot_be_redrawn_gets_lines(
    toy: Any, run: RunDir, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        terminal = Terminal(80, patch)
        patch.setenv(name, value)
        toy.fit(run)
        lines = terminal.lines()
    assert (
        len([line for line in lines if re.match(r"epoch ./3  step \d+/12  loss \d\.\d{3}  lr 0\.1  \d+ ex", line)]) == 3
    )
