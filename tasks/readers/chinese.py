"""Chinese sentence pairs in every form that is in circulation, recognised by the shape of the first line.

| form | files |
|---|---|
| number, sentence, sentence, label | ATEC: tabs, no header, CRLF, two byte order marks |
| header with `text_1`, `text_2`, `label` | ATEC with CCKS: tabs |
| header with `sentence1`, `sentence2`, `label` | BQ: commas, byte order mark; PAWS-X: tabs and an id |
| sentence, sentence, label | LCQMC, `sts-b-*.txt` and this project's canonical form: tabs, no header |
| id, sentence, sentence, score | `cnsd-sts-*.txt`: two bars, ids that are not unique |
"""

from collections.abc import Iterator
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers.records import Record, first_line, records
from tasks.readers.rows import SCORE, Label, rows

_HEADERS = ({"text_1", "text_2", "label"}, {"sentence1", "sentence2", "label"})
FORMS = "s1<TAB>s2<TAB>label, number<TAB>s1<TAB>s2<TAB>label, id||s1||s2||label, or a header naming the two and label"


def recognise(path: Path, *, headed: bool = True) -> tuple[str, tuple[str, ...], bool] | None:
    """(delimiter, the columns, whether a header names them) by the first line, or None where it fits no form.

    Without `headed` only the forms without a header are tried.
    """
    line = first_line(path)
    for delimiter in ("\t", ",") if headed else ():
        cells = tuple(line.split(delimiter))
        if any(names <= set(cells) for names in _HEADERS):
            return delimiter, cells, True
    for delimiter in ("||", "\t", ","):
        cells = tuple(line.split(delimiter))
        if len(cells) not in (3, 4) or not _number(cells[-1]):
            continue
        if len(cells) == 4 and (delimiter == "||" or _number(cells[0])):
            return delimiter, ("number", "s1", "s2", "label"), False
        if len(cells) == 3 and delimiter != "||":
            return delimiter, ("s1", "s2", "label"), False
    return None


def pairs(path: Path, label: Label = SCORE) -> Iterator[Row | Skipped]:
    """Sentence pairs with their label (by default any number from 0 to 5; `rows.BINARY` for classes).

    The id is the line number, as no form has unique ids but PAWS-X. Raises `UserError` where the first line fits no
    form; rows with an empty sentence are skipped.
    """
    form = recognise(path)
    if form is None:
        raise UserError(f"{path}:1: not a file of Chinese pairs; it may hold {FORMS}")
    delimiter, cells, headed = form
    texts, last = _names(cells)
    quotes = {"||": "none", "\t": "cell", ",": "csv"}[delimiter]
    found: Iterator[Record] = records(
        path, (*texts, last), delimiter=delimiter, quotes=quotes, names=() if headed else cells
    )
    return rows(path, found, texts, label, column=last)


def _names(cells: tuple[str, ...]) -> tuple[tuple[str, str], str]:
    texts = next(pair for pair in (("text_1", "text_2"), ("sentence1", "sentence2"), ("s1", "s2")) if pair[0] in cells)
    return texts, "label"


def _number(text: str) -> bool:
    try:
        float(text.strip("\ufeff\r "))
    except ValueError:
        return False
    return True
