"""From records to rows: labels are validated, known gaps are skipped, and ids must be unique."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers.splitter import Record

_MOST = 4096  # most parsed labels kept per column, to bound memory for a column of many different scores


@dataclass(frozen=True)
class Label:
    """Valid content of a label column: numbers for which `accepts` is true, `words` (text -> number) and `gaps`.

    A gap is a text that means "no label"; `gaps` gives the reason reported for skipping its row.
    """

    accepts: Callable[[float], bool]
    complaint: str
    words: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)

    def parse(self, place: str, text: str) -> float | str:
        """The label's number, or the reason to skip the row.

        Raises `UserError`, with `place` (file:line: column) in its message, for an invalid label.
        """
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
            raise UserError(f"{place}: {text if len(text) <= 80 else text[:80] + '...'!r} {self.complaint}")
        return value


NLI_CLASSES = ("entailment", "neutral", "contradiction")
SCORE = Label(lambda value: 0 <= value <= 5, "is not between 0 and 5")
RELATEDNESS = Label(lambda value: 1 <= value <= 5, "is not between 1 and 5")
BINARY = Label(lambda value: value in (0, 1), "is neither 0 nor 1")
ANY_CLASS = Label(
    lambda value: math.isfinite(value) and value >= 0 and value.is_integer(), "is not a whole number from 0"
)
NLI = Label(
    lambda value: False,
    f"is not one of {', '.join(NLI_CLASSES)}",
    words={form: float(n) for n, name in enumerate(NLI_CLASSES) for form in (name, name.upper(), str(n))},
    gaps=dict.fromkeys(("-", "-1", "hidden"), "no gold label"),
)


def class_label(count: int) -> Label:
    """Labels 0 to `count` - 1."""
    if count == 2:
        return BINARY
    return Label(lambda value: value in range(count), f"is not one of {', '.join(map(str, range(count)))}")


class _Labels(dict[str, float | str]):
    """Cache of parsed labels of one column, by their text: there are few different ones, and parsing is slow."""

    def __init__(self, label: Label, path: Path, column: str) -> None:
        super().__init__()
        self._label, self._place, self._column = label, path, column

    def at(self, line: int, text: str) -> float | str:
        """`Label.parse` of a text, cached."""
        found = self.get(text)
        if found is None:
            found = self._label.parse(f"{self._place}:{line}: {self._column}", text)
            if len(self) < _MOST:
                self[text] = found
        return found


def checked_rows(
    path: Path,
    records: Iterable[Record],
    texts: Sequence[str],
    label: Label | None = None,
    *,
    column: str = "label",
    ids: bool = False,
    clean: Callable[[str], str] = str.strip,
    empty: str = "skip",
    predicted: bool = False,
) -> Iterator[Row | Skipped]:
    """Rows from records whose cells are the texts, then the label if `label` is given, then the id if `ids` is true.

    Without ids the line number is the id, which needs no memory to check that it is unique. `empty` is the treatment
    of a row with an empty text: "skip", "keep", or "refuse" (raises `UserError`). A row whose label is a gap is
    skipped, or kept without a label if `predicted` is true. Raises `UserError` for an invalid label or id.
    """
    count, seen = len(texts), dict[str, int]()
    labels = _Labels(label, path, column) if label else None
    for line, cells in records:
        found, value, note = tuple(map(clean, cells[:count])), math.nan, ""
        if not all(found) and empty != "keep":
            why = f"{texts[found.index('')]}: empty"
            if empty == "refuse":
                raise UserError(f"{path}:{line}: {why}")
            yield Skipped(line, why)
            continue
        if labels is not None:
            known = labels.at(line, cells[count])
            if isinstance(known, float):
                value = known
            elif predicted:
                note = f"{known}; predicted, not scored"
            else:
                yield Skipped(line, known)
                continue
        name = _unique_id(path, line, cells[-1], seen) if ids else str(line)
        yield Row(name, found, value, line if note else 0, note)


def _unique_id(path: Path, line: int, text: str, seen: dict[str, int]) -> str:
    """An id, stripped and lower-cased; raises `UserError` if it is empty or a duplicate of one in `seen`."""
    name = text.strip().lower()
    if not name:
        raise UserError(f"{path}:{line}: id: empty")
    if seen.setdefault(name, line) != line:
        raise UserError(f"{path}:{line}: id: duplicate {name!r}, first seen on line {seen[name]}")
    return name
