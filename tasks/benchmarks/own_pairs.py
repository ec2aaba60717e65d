"""A user's own sentence pairs, from a file of any form that the project reads: with or without a score."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from minbert.token_cache import Row, Skipped
from tasks.readers import open_as
from tasks.readers.layouts import KINDS
from tasks.readers.splitter import BOM, first_line, open_text

_NAMES = {
    name for kind in ("single", "pair-class", "pair-score") for names in KINDS[kind].columns.values() for name in names
}
_TABLE = re.compile(r"\w+(,\w+)+")  # a header: names with commas and no blanks between


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs, and their gold score where the file has one: `gold` is None without.

    `skipped` counts the rows of the file that make no pair.
    """

    name: str
    texts: list[tuple[str, str]]
    gold: np.ndarray | None
    skipped: int = 0


def read(path: Path, *, seed: int) -> Pairs:
    """Pairs with a score, a class or neither, in any form of `readers.open_as`; two columns; or one sentence a line.

    Sentences without partners are joined at random by the seed. Rows that are left out are counted on standard error.
    Raises `UserError` where the file is none of these, or holds fewer than two sentences.
    """
    known = _known(path)
    found = list(known if known is not None else _bare(path))
    kept = [row for row in found if isinstance(row, Row) and all(row.texts)]
    if len(kept) < len(found):
        why = next((f", such as line {row.line}: {row.why}" for row in found if isinstance(row, Skipped)), "")
        print(f"note: {path}: {len(found) - len(kept):,} of {len(found):,} rows left out{why}", file=sys.stderr)
    texts = [row.texts for row in kept]
    if not texts or (len(texts[0]) == 1 and len(texts) < 2):
        raise UserError(f"{path}: neither pairs in two columns nor two sentences or more, one a line")
    if len(texts[0]) == 1:
        order = numpy_generator(seed, "partners", path.name).permutation(len(texts)).tolist()
        partners = zip(order, [*order[1:], order[0]], strict=True)
        return Pairs(path.name, [(texts[one][0], texts[two][0]) for one, two in partners], None, len(found) - len(kept))
    gold = np.array([row.label for row in kept], dtype=np.float64)
    scored = None if np.isnan(gold).any() else gold
    return Pairs(path.name, [(one, two) for one, two in texts], scored, len(found) - len(kept))


def _known(path: Path) -> Iterator[Row | Skipped] | None:
    """The rows by the first form that fits: scored, of two classes, or without a label; None where none does."""
    first_line(path)  # a file that is empty or not there fits none, and that is no reason to look further
    for kind, split in (("pair-score", "train"), ("pair-class", "train"), ("pair-class", "test")):
        try:
            return open_as(path, kind, split).rows
        except UserError:
            continue
    return None


def _bare(path: Path) -> Iterator[Row | Skipped]:
    """Two columns divided by a tab, or sentences; `UserError` where the file has some other structure."""
    first = first_line(path)
    head = [cell.strip() for cell in first.split("\t")]
    header = len(head) > 1 and any(cell.lower() in _NAMES for cell in head)
    other = first.lstrip().startswith("{") or "||" in first or _TABLE.fullmatch(first.strip())
    if header or other or len(head) > 2 or head[-1].replace(".", "", 1).isdigit():
        shown = first if len(first) <= 60 else first[:60] + "..."
        raise UserError(f"{path}:1: {shown!r} begins no file of sentence pairs, and none of one sentence a line")
    with open_text(path) as file:
        for line, text in enumerate(file, 1):
            cells = tuple(cell.strip(f" \r\n{BOM}") for cell in text.split("\t"))
            if not any(cells):
                yield Skipped(line, "blank line")
            elif len(cells) != len(head):
                raise UserError(f"{path}:{line}: {len(cells)} columns, the first line has {len(head)}")
            else:
                yield Row(str(line), cells) if all(cells) else Skipped(line, "a sentence is empty")
