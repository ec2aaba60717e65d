"""The one exception that means "the user can mend this", and the one way to refuse an unknown name."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A user's mistake: the scripts print its message in one line and exit with code 2."""


def one_of(name: str, known: Iterable[str], what: str) -> str:
    """The member of `known` that `name` means, whatever its case.

    Raises `UserError`, which begins with `what`, lists `known` and suggests the nearest of them.
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
    """The words `; did you mean 'x'?` where a known name is like `name`, else nothing."""
    lower = {one.lower(): one for one in known}
    near = get_close_matches(name.strip().lower(), lower, n=1)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""
