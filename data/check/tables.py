"""Numbers and columns as plain text."""

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Lines of columns one blank apart, the first `left` of them flush left; rows may end early."""
    widths = [0] * max(len(row) for row in rows)
    for row in rows:
        if len(row) > 1:
            widths = [max(width, len(cell)) for width, cell in zip(widths, [*row, *[""] * len(widths)], strict=False)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append(" ".join(cells).rstrip() if len(row) > 1 else row[0])
    return lines


def number(value: int | None) -> str:
    """With thousands separators; a dash where there is none."""
    return "-" if value is None else f"{value:,}"


def percent(part: int | None, whole: int) -> str:
    """One decimal, `<.1%` for little and a blank for nothing."""
    if not part:
        return ""
    share = 100 * part / whole
    return "<.1%" if share < 0.05 else f"{share:.1f}%"


def bars(counts: Sequence[int], blocks: str = BLOCKS) -> str:
    """One mark a count, its height in proportion to the largest; a blank for zero."""
    most = max(counts, default=0)
    return "".join(blocks[-(-count * len(blocks) // most) - 1] if count else " " for count in counts)


def short(text: str, width: int) -> str:
    """At most `width` characters, cut with three points."""
    return text if len(text) <= width else text[: width - 3] + "..."
