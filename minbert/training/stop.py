"""Ctrl-C and SIGTERM end a run after the step in hand, with a checkpoint."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The user stopped the run, and its checkpoint is written; the message says after which step."""


@contextmanager
def stop_on_signal() -> Iterator[list[int]]:
    """A list that fills when the user presses Ctrl-C or the system asks to end; a second time ends at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
