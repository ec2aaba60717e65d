"""Guards: a terminal shows a bar, and standard output is left to results.

python -m pytest --import-mode=importlib tests/training/test_progress.py
"""

import os
import re
import sys
import termios
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
        termios.tcsetwinsize(writer, (40, columns))
        self._content = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self._file = os.fdopen(writer, "w")
        patch.setattr(sys, "stdout", self._file)
        patch.delenv("JPY_PARENT_PID", raising=False)
        for name, value in (("TERM", "xterm"), ("COLUMNS", str(columns)), ("LINES", "40")):
            patch.setenv(name, value)

    def _read(self) -> None:
        while b"\0" not in self._content:
            self._content += os.read(self._reader, 4096)

    def lines(self) -> list[str]:
        self._file.write("\0")
        self._file.flush()
        self._thread.join()
        os.close(self._reader)
        lines = re.split(r"[\r\n]+", CONTROL.sub("", self._content.decode().removesuffix("\0")))
        return [line.rstrip() for line in lines if line]


def test_a_terminal_shows_a_bar_below_the_evaluations(toy: Any, run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        terminal = Terminal(80, patch)
        toy.fit(run, scores=[0.25, 0.75, 0.5])
        lines = terminal.lines()
    assert [line for line in lines if "evaluation" in line] == [
        "epoch 1/3  step 4  evaluation: toy 0.500  (best so far)",
        "epoch 2/3  step 8  evaluation: toy 0.500  (best so far)",
        "epoch 3/3  step 12  evaluation: toy 0.500",
    ]
    bars = [line for line in lines if "/12 [" in line]
    assert bars[0].startswith("1/3:") and any("loss " in line and "score 0.750" in line for line in bars)
    assert not any("lr " in line for line in lines), "no lines beside the bar"


def test_a_bar_leaves_standard_output_to_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SILENCE", 0.0)
    assert list(progress.bar([3, 1, 2], "predicting")) == [3, 1, 2]
    printed = capsys.readouterr()
    assert not printed.out and "predicting" in printed.err
