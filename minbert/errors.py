"""`UserError`, the exception for a user's mistakes, and the check of a name against the known ones."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A user's mistake: the scripts print its message on one line and exit with code 2."""


def one_of(name: str, known: Iterable[str], what: str) -> str:
    """The member of `known` that equals `name`, ignoring case.

    Raises `UserError` if there is none; the message begins with `what`, lists `known` and suggests the closest match.
    """
    names = list(known)
    if name in names:
        return name
    lower = {one.lower(): one for one in reversed(names)}
    found = lower.get(name.strip().lower())
    if found is None:
        raise UserError(f"{what}: {name!r} is not one of {', '.join(names)}{suggestion(name, names)}")
    return found


def suggestion(name: str, known: Iterable[str]) -> str:
    """The text `; did you mean 'x'?` for the known name closest to `name`, or "" if none is close."""
    lower = {one.lower(): one for one in known}
    near = get_close_matches(name.strip().lower(), lower, n=1)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""
