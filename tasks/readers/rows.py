"""From records to rows: what a label may be, which gaps are skipped, whose id is whose."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers.records import Record

_MOST = 4096  # labels remembered of one column: scores without end must not fill the memory


@dataclass(frozen=True)
class Label:
    """What a column of labels may hold: numbers that `accepts` takes, `words` for numbers, and known `gaps`.

    A gap is a text that stands for no label, with the reason a row is skipped for it.
    """

    accepts: Callable[[float], bool]
    complaint: str
    words: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)

    def read(self, place: str, text: str) -> float | str:
        """The number, or why the row is skipped; `UserError` at `place` (file:line: column) for anything else."""
        word = text.strip()
        if word in self.gaps:
            return self.gaps[word]
        if word in self.words:
            return self.words[word]
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not self.accepts(value):
            raise UserError(f"{place}: {text!r} {self.complaint}")
        return value


class Known(dict[str, float | str]):
    """Labels of one column that have been read, by their text: there are few, and reading a number takes long."""

    def __init__(self, label: Label, path: Path, column: str) -> None:
        super().__init__()
        self._label, self._path, self._column = label, path, column

    def learn(self, line: int, text: str) -> float | str:
        """A label that is not known yet; `UserError` with its line where it is not allowed."""
        value = self._label.read(f"{self._path}:{line}: {self._column}", text)
        if len(self) < _MOST:
            self[text] = value
        return value


SCORE = Label(lambda value: 0 <= value <= 5, "is not between 0 and 5")
BINARY = Label(lambda value: value in (0, 1), "is neither 0 nor 1")


def class_label(count: int) -> Label:
    """Labels 0 to `count` - 1."""
    if count == 2:
        return BINARY
    numbers = ", ".join(map(str, range(count)))
    return Label(lambda value: value in range(count), f"is not one of {numbers}")


ANY_CLASS = Label(lambda value: value >= 0 and value == int(value) if math.isfinite(value) else False,
                  "is not a whole number from 0")  # fmt: skip


def rows(
    path: Path,
    records: Iterable[Record],
    texts: Sequence[str],
    label: Label | None = None,
    *,
    column: str = "label",
    ident: bool = False,
) -> Iterator[Row | Skipped]:
    """Rows of records whose cells are the texts, then the label if there is one, then the id if `ident`.

    A row with an empty text is skipped. Without `ident` the id is the line number: unique, and nothing to remember.
    """
    count, seen = len(texts), dict[str, int]()
    known = Known(label, path, column) if label else None
    value = math.nan
    for line, cells in records:
        found = tuple(map(str.strip, cells[:count]))
        if known is not None:
            label_or_why = known.get(cells[count])
            if label_or_why is None:
                label_or_why = known.learn(line, cells[count])
            if isinstance(label_or_why, str):
                yield Skipped(line, label_or_why)
                continue
            value = label_or_why
        if not all(found):
            yield Skipped(line, f"{texts[found.index('')]}: empty")
            continue
        yield Row(unique(path, line, cells[-1], seen) if ident else str(line), found, value)


def unique(path: Path, line: int, text: str, seen: dict[str, int]) -> str:
    """An id, stripped and in lower case; `UserError` where it is empty or stands on an earlier line of `seen`."""
    name = text.strip().lower()
    if not name:
        raise UserError(f"{path}:{line}: id: empty")
    if seen.setdefault(name, line) != line:
        raise UserError(f"{path}:{line}: id: {name!r} stands on line {seen[name]} already")
    return name
