"""How a command begins and ends: its parser, its output, its signals and its exit code."""

import argparse
import errno
import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from tqdm import tqdm

from minbert.errors import UserError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""The signals by which a user or a cluster ends a run."""

resumable = False
"""Whether the command can be resumed: `RunFolder.open` sets it."""

# seconds in which signals count as one: clusters and launchers send the same one twice
_ONE_NOTICE = 1.0

# environment variables that decide which files are read, or change the results
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "DATA_DIR", "NLTK_DATA", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA")

# what a disk or a network folder reports, sometimes without the name of the file
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)


def console_command() -> str:
    """The console command, such as `minbert-train`, that started this process; empty for a script or a module."""
    name = Path(sys.argv[0]).name
    return name if name.startswith("minbert-") else ""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UserError` instead of exiting, and is named for the console command if any.

    No flag may be abbreviated. The description is the first line of `doc`, the docstring of a module.
    """

    def __init__(self, prog: str | None = None, doc: str | None = None, **options: Any) -> None:
        if doc:
            options["description"] = doc.splitlines()[0]
        super().__init__(console_command() or prog, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raises `UserError`."""
        raise UserError(f"{message.removeprefix('argument ')} (see --help)")


def require_writable(out: Path | None, flag: str = "--out") -> None:
    """Raises `UserError` if `out` is a folder, or if no file can be created there; missing folders can be created."""
    if out is None or out.is_char_device() or out.is_fifo():  # these are written to directly
        return
    writable = not out.is_dir()
    try:
        folder = next(folder for folder in out.absolute().parents if folder.exists())
        # os.access would let root write where nobody can, as in /proc
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        writable = False
    if not writable:
        raise UserError(f"{flag} {out}: no file can be written there")


def say(text: str, stream: IO[str] | None = None) -> None:
    """Print a line above a progress bar, to standard output unless `stream` is given.

    Output whose reader has left (`... | head`, a closed terminal) is discarded: a run has to save all the same.
    """
    stream = stream or sys.stdout
    try:
        tqdm.write(text, file=stream)
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        _discard(stream)


def _discard(stream: IO[str]) -> None:
    """Redirect a stream to the null device, so that neither later lines nor Python's last flush fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def run_module(name: str, *arguments: str) -> None:
    """Run `python -m name` in a process of its own and print its output; if it fails, a note is printed instead."""
    # In another process, as an error in the report must not fail a run that is already saved. Without -P Python would
    # look for the module in the current folder first; PYTHONPATH names the project.
    paths = [str(Path(__file__).parents[2])]
    if "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    process = subprocess.run(
        [sys.executable, "-P", "-m", name, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode == 0:
        say(process.stdout.strip())
        return
    lines = process.stderr.strip().splitlines()
    message = lines[-1] if lines else f"exit code {process.returncode}"
    say(f"note: python -m {name} failed: {message.removeprefix('error: ')}", sys.stderr)


class Interrupted(BaseException):
    """A signal ended the command; the message says when. Not an `Exception`, so that no library swallows it."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number  # of the signal


# The number of the signal that `_interrupt` answered. Python drops an exception that is raised inside a destructor,
# so the training loop asks for the number as well.
_received = 0


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    global _received
    _received = number
    raise Interrupted("stopped", number)


@contextmanager
def catch_signals(handler: Callable[[int, FrameType | None], None] = _interrupt) -> Iterator[None]:
    """Answer each of `SIGNALS` by a handler, which by default raises `Interrupted`.

    A signal that is ignored, such as SIGHUP under nohup, stays ignored. Only the main thread can answer signals: in
    another one they do what they did before.
    """
    global _received
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    replaced = {}
    for number in SIGNALS:
        before = signal.getsignal(number)
        if before not in (signal.SIG_IGN, None):
            replaced[number] = before
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in replaced.items():
            signal.signal(number, before)
        _received = 0


class StopRequest:
    """The signal by which a training loop was asked to stop, which it does after the current step.

    `number` is that of the first signal, 0 without one. A second signal ends the process at once. Inside
    `catch_signals(request.handle)` signals do not raise, but are recorded here.
    """

    def __init__(self) -> None:
        self.number = _received
        self._time = time.monotonic()
        self._at_once = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signals' handler."""
        if self.number:
            if time.monotonic() - self._time > _ONE_NOTICE:
                raise SystemExit(128 + number)
            return
        self.number = number
        self._time = time.monotonic()
        if self._at_once:
            self._raise_if_stopped()
        # every process of torchrun gets the signal; the line cannot be printed if it came in the midst of another
        if os.environ.get("RANK", "0") == "0":
            with suppress(RuntimeError):
                say("stopping after this step; a second signal stops at once, without a checkpoint", sys.stderr)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside this context a signal raises `Interrupted`, as does one that came just before it."""
        self._at_once = True
        try:
            self._raise_if_stopped()
            yield
            self._raise_if_stopped()  # of a signal whose exception was lost inside a destructor
        finally:
            self._at_once = False

    def _raise_if_stopped(self) -> None:
        if self.number:
            raise Interrupted("stopped", self.number)


def resume_command() -> str:
    """The command that resumes the run of this process, with its environment variables and its launcher."""
    # with the interpreter, and `-m` if there was one, as they were typed
    words = [*sys.orig_argv]
    if console_command():
        words = [console_command(), *sys.argv[1:]]
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        processes = os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
        # torchrun of this environment, which need not be the one on PATH
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", processes]
        if console_command():
            launcher.append("--no-python")
        else:
            words = [word for word in words[1:] if word != "-u"]  # torchrun adds interpreter and `-u`
        words = [*launcher, *words]
    if "--resume" not in words:
        words.append("--resume")
    variables = [f"{name}={shlex.quote(os.environ[name])}" for name in _VARIABLES if name in os.environ]
    return " ".join([*variables, shlex.join(words)])


def run(main: Callable[[], None]) -> NoReturn:
    """Run a script and exit: code 0, 2 after a user's mistake or a full disk, or 128 + its number after a signal.

    Every code but 0 comes with one sentence.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal or a pipe may have an encoding that lacks some characters
        sys.stdout.reconfigure(errors="backslashreplace")
    code = 0
    try:
        with catch_signals():
            main()
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has left, as in `... | head`
        _discard(sys.stdout)
    except UserError as error:
        say(f"error: {error}", sys.stderr)
        code = 2
    except OSError as error:
        if error.filename is None and error.errno not in _DISK_ERRORS:
            raise
        say(f"error: {error.filename or 'a file or the output'}: {error.strerror}", sys.stderr)
        code = 2
    except Interrupted as stop:
        # every process of torchrun gets here
        if os.environ.get("RANK", "0") == "0":
            hint = f"; resume with: {resume_command()}" if resumable else ""
            say(f"{stop}{hint}", sys.stderr)
        code = 128 + stop.number
    raise SystemExit(code)
