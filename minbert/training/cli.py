"""A settings dataclass becomes grouped flags; presets are data; a user's mistake ends in one sentence and exit code 2.

Importing this module loads no torch, so that `--help` answers at once.
"""

import argparse
import errno
import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

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
        print(_list(presets, default))
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


def run(main: Callable[[], None]) -> NoReturn:
    """Run a script: exit code 0, or 2 after a user's mistake, or 130 after Ctrl-C, each with one sentence."""
    from minbert.training.stop import Interrupted

    # OpenMP's threads spin for milliseconds at every barrier; where another program wants a core too, a step then
    # takes many times as long. A shorter spin costs nothing on a free machine. Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        print(f"error: {error.filename or 'a file of this run'}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    except (Interrupted, KeyboardInterrupt) as stop:
        print(str(stop) or "stopped", file=sys.stderr)
        raise SystemExit(130) from None
    raise SystemExit(0)
