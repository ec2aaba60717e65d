"""What every command line shares: a user's mistake ends in one sentence and exit code 2, and Ctrl-C in 130.

Importing this module loads no torch, so that `--help` answers at once.
"""

import argparse
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

from minbert.errors import UserError, one_of


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are a user's mistake, not an exit."""

    def error(self, message: str) -> NoReturn:
        """Raises `UserError`."""
        raise UserError(f"{message} (see --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or action.dest
            one_of(str(value), map(str, action.choices), name)


def demand_writable(out: Path | None) -> None:
    """`UserError` where `--out` is given, and is a folder or lies in none."""
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UserError(f"--out {out}: no file can be written there")


def say(text: str, stream: IO[str] | None = None) -> None:
    """Print a line at once, to standard output unless `stream` is given.

    Where its reader has gone, as in `... | head`, this line and all later ones are dropped, and the work goes on.
    """
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        _discard(stream)


def _discard(stream: IO[str]) -> None:
    """Send everything that is still to be written to a stream to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


_VARIABLES = ("DATA_DIR", "NLTK_DATA", "OMP_NUM_THREADS")
"""Environment variables without which a command reads other files or gives other bits."""


def to_resume() -> str:
    """The command that goes on with the run of this process, with the variables and the launcher it was given."""
    variables = [f"{name}={shlex.quote(os.environ[name])}" for name in _VARIABLES if os.environ.get(name)]
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        launcher = ["torchrun", "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])]
    else:
        launcher = [_python()]
    more = [] if "--resume" in sys.argv else ["--resume"]
    return " ".join([*variables, shlex.join([*launcher, *sys.argv, *more])])


def _python() -> str:
    """What to type for the interpreter that runs."""
    if shutil.which("python") == sys.executable:
        return "python"
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def run(main: Callable[[], None]) -> NoReturn:
    """Run a script: exit code 0, or 2 after a user's mistake, or 130 after Ctrl-C, each with one sentence.

    A reader of the output who leaves early, as in `... | head`, is no mistake: the exit code is 0.
    """
    try:
        code = _outcome(main)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _discard(sys.stdout)
    raise SystemExit(code)


def _outcome(main: Callable[[], None]) -> int:
    """The exit code of a script; its last sentence is said."""
    from minbert.training.stop import Interrupted

    # OpenMP's threads spin for milliseconds at every barrier; where another program wants a core too, a step then
    # takes many times as long. A shorter spin costs nothing on a free machine. Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
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
        if os.environ.get("RANK", "0") == "0":  # each process of torchrun comes here
            say(f"{stop}; to go on: {to_resume()}", sys.stderr)
        return 130
    except KeyboardInterrupt:
        say("stopped", sys.stderr)
        return 130
    return 0
