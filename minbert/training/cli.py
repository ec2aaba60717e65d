"""A settings dataclass becomes grouped flags; presets are data; a user's mistake ends in one sentence and exit code 2.

Importing this module loads no torch, so that `--help` answers at once.
"""

import argparse
import errno
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, Generic, NoReturn, TypeVar

from minbert.errors import UserError, one_of

S = TypeVar("S")
Presets = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Name -> (what it is, the settings it changes)."""


def flag(
    default: Any,
    text: str,
    *,
    group: str,
    choices: Sequence[str] = (),
    least: float | None = None,
    most: float | None = None,
    place: bool = False,
) -> Any:
    """A dataclass field that is a flag. `place` marks paths and the like, which don't change what is computed."""
    metadata = {"help": text, "group": group, "choices": choices, "least": least, "most": most, "place": place}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Parsed(Generic[S]):
    """What a command line said."""

    settings: S
    preset: str
    overrides: dict[str, Any]
    command: str


_GROUPS = (
    *("encoder", "data", "model", "objective", "curriculum", "views", "augmentation", "schedule", "training"),
    *("evaluation", "run", "output"),
)
"""The groups of flags, in the order in which `--help` shows them."""


_OnOff = argparse.BooleanOptionalAction


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are a user's mistake, not an exit."""

    def error(self, message: str) -> NoReturn:
        """Raises `UserError`."""
        raise UserError(f"{message} (see --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or action.dest
            one_of(str(value), map(str, action.choices), name)


def parse(
    kind: type[S], presets: Presets, arguments: Sequence[str], *, program: str, about: str, default: str
) -> Parsed[S]:
    """Read a command line. Flags override the preset (`default` unless one is named), which overrides the dataclass.

    `--a-b` and `--a_b` are alike. Raises `UserError`; prints and exits for `--help` and `--list-presets`.
    """
    options = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    parser = _parser(options, presets, program, about, default)
    given = vars(parser.parse_args([_with_dashes(word) for word in arguments]))
    if given.pop("list_presets", False):
        say(_list(presets, default))
        raise SystemExit(0)
    preset = one_of(given.pop("preset", default), presets, "--preset")
    given = {name: _checked(options[name], value) for name, value in given.items()}
    settings = kind(**{**presets[preset][1], **given})
    return Parsed(settings, preset, given, shlex.join([program, *arguments]))


def _with_dashes(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _parser(
    options: Mapping[str, Field[Any]], presets: Presets, program: str, about: str, default: str
) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description=about,
        epilog="Flags may be written with - or _.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36, width=110),
    )
    parser.add_argument("--preset", metavar="NAME", help=f"a named set of settings (default: {default})")
    parser.add_argument("--list-presets", action="store_true", help="print the presets and what they set, and stop")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for item in sorted(options.values(), key=lambda item: _GROUPS.index(item.metadata["group"])):
        title = item.metadata["group"]
        group = groups.setdefault(title, parser.add_argument_group(title))
        _add(group, item)
    return parser


def _add(group: argparse._ArgumentGroup, item: Field[Any]) -> None:
    name, text = f"--{item.name.replace('_', '-')}", item.metadata["help"].replace("%", "%%")
    if isinstance(item.default, bool):
        # what a preset may turn on can be turned off again
        text += f" (default: {'on' if item.default else 'off'})"
        group.add_argument(name, action="store_true" if item.metadata["place"] else _OnOff, help=text)
        return
    assert item.default is not MISSING
    shown = f" (default: {item.default})" if item.default not in ("", None) else ""
    metavar = {int: "N", float: "X"}.get(_kind(item), "PATH" if item.metadata["place"] else "NAME")
    choices = item.metadata["choices"]
    metavar = "{" + ",".join(filter(None, choices)) + "}" if choices else metavar
    group.add_argument(name, type=_converter(_kind(item)), metavar=metavar, help=text + shown)


def _kind(item: Field[Any]) -> type:
    return float if item.default is None else type(item.default)


def _converter(kind: type) -> Callable[[str], Any]:
    names = {int: "a whole number", float: "a number"}

    def convert(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {names[kind]}") from None

    return convert


def _checked(item: Field[Any], value: Any) -> Any:
    """The value, in the spelling of the field's choices; `UserError` where the field does not take it."""
    name, rules = f"--{item.name.replace('_', '-')}", item.metadata
    if rules["choices"]:
        return one_of(value, rules["choices"], name)
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name}: {value} is not a finite number")
    if rules["least"] is not None and value < rules["least"]:
        raise UserError(f"{name}: {value} is less than {rules['least']}")
    if rules["most"] is not None and value > rules["most"]:
        raise UserError(f"{name}: {value} is more than {rules['most']}")
    return value


def _list(presets: Presets, default: str) -> str:
    lines = []
    for name, (text, values) in presets.items():
        lines.append(f"{name}{' (default)' if name == default else ''}: {text}")
        for key, value in values.items():
            said = "" if isinstance(value, bool) else f" {shlex.quote(str(value)) if value != '' else '(to be given)'}"
            lines.append(f"    {spelled(key, value)}{said}")
    return "\n".join(lines)


def spelled(name: str, value: Any) -> str:
    """The flag of a setting as it is typed: `--max-length`, or `--projection` and `--no-projection` by a yes or no."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"


def identity(settings: Any) -> dict[str, Any]:
    """The settings that decide what is computed: two runs that agree in them are the same run."""
    return {item.name: getattr(settings, item.name) for item in fields(settings) if not item.metadata["place"]}


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
