"""The one exception that means "the user can mend this"."""


class UserError(ValueError):
    """A user's mistake: the scripts print its message in one line and exit with code 2."""
