"""How a command begins and ends: its parser, its output, its signals and its exit code.

This module does not import torch, so that `--help` is fast.
"""

import argparse
import ctypes.util
import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from minbert.errors import UserError, one_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""The signals by which a user or a cluster ends a run."""
_ONE_NOTICE = 1.0  # seconds in which signals count as one: clusters and launchers send the same one twice

resumable = False
"""Whether the command has a run folder, so that `--resume` goes on with it."""

load_at_start: tuple[float, float] | None = None
"""`load_of_others` at the start of a script that trains."""

_VARIABLES = ("DATA_DIR", "NLTK_DATA", "OMP_NUM_THREADS")  # they change which files are read, or the results


def console_command() -> str:
    """The console command, such as `minbert-train`, that started this process; empty for a script or a module."""
    name = Path(sys.argv[0]).name
    return name if name.startswith("minbert-") else ""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UserError` instead of exiting, and is named for the console command if any."""

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        super().__init__(console_command() or prog, **options)

    def error(self, message: str) -> NoReturn:
        """Raises `UserError`."""
        raise UserError(f"{message} (see --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            label = "/".join(action.option_strings) or action.dest
            name = one_of(str(value), map(str, action.choices), label)
            raise UserError(f"{label}: {value} is spelled {name}")


def demand_writable(out: Path | None, flag: str = "--out") -> None:
    """Raises `UserError` if `out` is a folder, or if no file can be made there; missing folders can be made."""
    if out is None or out.is_char_device() or out.is_fifo():  # these are written to directly
        return
    try:
        folder = next(folder for folder in out.absolute().parents if folder.exists())
        with tempfile.TemporaryFile(dir=folder):  # os.access lets root write where nobody can, as in /proc
            writable = not out.is_dir()
    except OSError:
        writable = False
    if not writable:
        raise UserError(f"{flag} {out}: no file can be written there")


def say(text: str, stream: IO[str] | None = None) -> None:
    """Print a line and flush, to standard output unless `stream` is given; see `discard_if_closed`."""
    stream, tqdm = stream or sys.stdout, sys.modules.get("tqdm")
    with discard_if_closed(stream), tqdm.tqdm.external_write_mode(stream) if tqdm else nullcontext():  # above a bar
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
    process = subprocess.run(
        [sys.executable, "-P", "-m", name, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        message = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        say(f"note: python -m {name} failed: {message.removeprefix('error: ')}", sys.stderr)
    else:
        say(process.stdout.strip())


class Interrupted(BaseException):
    """A signal ended the command; the message says when. Not an `Exception`, so that no library swallows it."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number  # of the signal


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted("stopped", number)


@contextmanager
def catch_signals(handler: Callable[[int, FrameType | None], None] = _interrupt) -> Iterator[None]:
    """Answer each of `SIGNALS` by a handler, which by default raises `Interrupted`.

    A signal that is ignored, such as SIGHUP under nohup, stays ignored.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = {number: before for number, before in handlers.items() if before not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in heeded.items():
            signal.signal(number, before)


@contextmanager
def stop_on_signal() -> Iterator[list[int]]:
    """Defer signals: yield a list, to which the number of the first is added. A second one ends the process at once."""
    received: list[int] = []
    first = 0.0

    def defer(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if received:
            if time.monotonic() - first > _ONE_NOTICE:
                raise SystemExit(128 + number)
            return
        received.append(number)
        first = time.monotonic()
        if os.environ.get("RANK", "0") == "0":
            say("stopping after this step; a second signal stops at once, without a checkpoint", sys.stderr)

    with catch_signals(defer):
        yield received


def resume_command() -> str:
    """The command that resumes the run of this process, with its environment variables and its launcher."""
    variables = [f"{name}={shlex.quote(os.environ[name])}" for name in _VARIABLES if os.environ.get(name)]
    launcher = ["python" if shutil.which("python") == sys.executable else sys.executable]
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        launcher = ["torchrun", "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])]
    extra = [] if "--resume" in sys.argv else ["--resume"]
    return " ".join([*variables, shlex.join([*launcher, *sys.argv, *extra])])


def under_tcmalloc() -> None:
    """Start this process again with tcmalloc as its memory allocator, where Linux has it and nothing is preloaded.

    A training step takes a tenth less time then, and gives the same bits.
    """
    if sys.platform == "linux" and "LD_PRELOAD" not in os.environ:
        library = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
        if library:
            os.environ["LD_PRELOAD"] = library
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def allocator() -> str:
    """The memory allocator of this process, for display."""
    if "tcmalloc" in os.environ.get("LD_PRELOAD", ""):
        return "tcmalloc"
    return "no tcmalloc (install libtcmalloc-minimal4 to save a tenth of the time)"


def load_of_others() -> tuple[float, float]:
    """The time, and for how long other programs have kept the cores of this process busy so far, both in seconds.

    Programs of low priority do not count, unless this one has a low priority too. Only for Linux.
    """
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    busy = 0
    for name, *ticks in (line.split() for line in Path("/proc/stat").read_text().splitlines()):
        if name in cores:
            user, low, system = map(int, ticks[:3])
            busy += user + system + (low if os.nice(0) > 0 else 0)
    return time.monotonic(), busy / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def run(main: Callable[[], None], *, training: bool = False) -> NoReturn:
    """Run a script and exit: code 0, 2 after a user's mistake, or 128 + its number after a signal.

    Every code but 0 comes with one sentence. If the output is a closed pipe, as in `... | head`, the exit code is 0.
    A script for `training` runs `under_tcmalloc`, and observes the load of the machine from here on.
    """
    global load_at_start
    if training:
        under_tcmalloc()
        load_at_start = load_of_others() if Path("/proc/stat").is_file() else None
    # OpenMP's threads spin at every barrier, and keep a core from the thread they wait for if another program needs it
    # too. With a shorter spin a training step takes about half the time then (docs/performance.md). The variable is
    # read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    try:
        with catch_signals():
            code = _outcome(main)
    finally:
        with discard_if_closed(sys.stdout):
            sys.stdout.flush()
    raise SystemExit(code)


def _outcome(main: Callable[[], None]) -> int:
    try:
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
            say(f"{stop}; resume with: {resume_command()}" if resumable else str(stop), sys.stderr)
        return 128 + stop.number
    return 0
