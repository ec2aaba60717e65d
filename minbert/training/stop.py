"""On Ctrl-C or SIGTERM, a run finishes its current step, writes a checkpoint and stops."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The run was stopped by a signal after writing a checkpoint; the message says after which step."""


@contextmanager
def stop_on_signal() -> Iterator[list[int]]:
    """Yield a list of received SIGINT and SIGTERM signals. A second signal raises `KeyboardInterrupt` at once."""
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
