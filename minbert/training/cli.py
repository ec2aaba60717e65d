"""How a command begins and ends: its parser, its output, its signals and its exit code.

This module does not import torch, so that `--help` is fast.
"""

import argparse
import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from minbert.errors import UserError, one_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""With these a user or a cluster announces the end of a run."""
_ONE_NOTICE = 1.0  # seconds in which signals count as one: clusters and launchers send the same one twice

at_end = ExitStack()
"""What is undone when the command ends, for whatever reason but a kill."""

_VARIABLES = ("DATA_DIR", "NLTK_DATA", "OMP_NUM_THREADS")  # they change which files are read, or the results


def console_command() -> str:
    """The console command, such as `minbert-train`, that started this process; empty for a script or a module."""
    name = Path(sys.argv[0]).name
    return name if name.startswith("minbert-") else ""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UserError` instead of exiting, and is named for the console command if any."""

    def __init__(self, prog: str | None = None, **how: Any) -> None:
        super().__init__(console_command() or prog, **how)

    def error(self, message: str) -> NoReturn:
        """Raises `UserError`."""
        raise UserError(f"{message} (see --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            one_of(str(value), map(str, action.choices), "/".join(action.option_strings) or action.dest)


def demand_writable(out: Path | None, flag: str = "--out") -> None:
    """Raises `UserError` if `out` is a folder, or if no file can be made in its parent folder."""
    if out is not None and (out.is_dir() or not os.access(out.absolute().parent, os.W_OK)):
        raise UserError(f"{flag} {out}: no file can be written there")


def say(text: str, stream: IO[str] | None = None) -> None:
    """Print a line and flush, to standard output unless `stream` is given; see `discard_if_closed`."""
    stream = stream or sys.stdout
    with discard_if_closed(stream):
        print(text, file=stream, flush=True)


@contextmanager
def discard_if_closed(stream: IO[str]) -> Iterator[None]:
    """Inside this context `stream` is written to; if its reader has left, all its output is discarded without an error.

    The reader is a pipe, as in `... | head`, or a terminal that was closed.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        _discard(stream)


def _discard(stream: IO[str]) -> None:
    """Redirect a stream to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def run_module(name: str, *arguments: str) -> None:
    """Run `python -m name` in a process of its own and print its output; if it fails, a note is printed instead."""
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-m", name, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        say(f"note: python -m {name} failed: {why.removeprefix('error: ')}", sys.stderr)
    else:
        say(done.stdout.strip())


class Interrupted(Exception):
    """The run was stopped by a signal after writing a checkpoint; the message says after which step."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number  # of the signal


@contextmanager
def stop_on_signal() -> Iterator[list[int]]:
    """Yield a list, to which the number of the first of `SIGNALS` is added. A second signal ends the process at once.

    A signal that is ignored, such as SIGHUP under nohup, stays ignored.
    """
    received: list[int] = []
    first = 0.0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if received and time.monotonic() - first > _ONE_NOTICE:
            raise SystemExit(128 + number)
        if not received:
            received.append(number)
            first = time.monotonic()

    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def to_resume() -> str:
    """The command that resumes the run of this process, with its environment variables and its launcher."""
    variables = [f"{name}={shlex.quote(os.environ[name])}" for name in _VARIABLES if os.environ.get(name)]
    launcher = ["python" if shutil.which("python") == sys.executable else sys.executable]
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        launcher = ["torchrun", "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])]
    more = [] if "--resume" in sys.argv else ["--resume"]
    return " ".join([*variables, shlex.join([*launcher, *sys.argv, *more])])


def run(main: Callable[[], None]) -> NoReturn:
    """Run a script and exit: code 0, 2 after a user's mistake, or 128 + its number after a signal.

    All but the first print one sentence. If the output is a closed pipe, as in `... | head`, the exit code is 0.
    """
    # OpenMP's threads spin for milliseconds at every barrier. If another program needs the same cores, a training step
    # then takes many times as long. A shorter spin costs nothing on an idle machine. It is read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        with at_end:
            code = _outcome(main)
    finally:
        with discard_if_closed(sys.stdout):
            sys.stdout.flush()
    raise SystemExit(code)


def _demand_utf8() -> None:
    """Raises `UserError` for a word of the command, or a variable, that is not UTF-8: no manifest can hold it."""
    for word in (*sys.argv, *(os.environ.get(name, "") for name in _VARIABLES)):
        if any("\ud800" <= character <= "\udfff" for character in word):  # so Python holds such bytes
            raise UserError(f"{word!r}: not UTF-8")


def _outcome(main: Callable[[], None]) -> int:
    try:
        _demand_utf8()
        main()
    except UserError as error:
        say(f"error: {error}", sys.stderr)
        return 2
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        say(f"error: {error.filename or 'a file of this run'}: {error.strerror}", sys.stderr)
        return 2
    except Interrupted as stop:
        if os.environ.get("RANK", "0") == "0":  # every process of torchrun gets here
            say(f"{stop}; resume with: {to_resume()}", sys.stderr)
        return 128 + stop.number
    except KeyboardInterrupt:
        say("stopped", sys.stderr)
        return 130
    return 0
