"""What the data files hold, and which rows they share: `python data/get_data.py check`."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the check: 0 when every file could be read, 2 when one is broken. `UserError` for a wrong flag or folder."""
    from data.check.command import run

    return run(arguments)
