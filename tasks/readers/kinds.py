"""The kinds of rows: what a header may call their columns, the published layouts without a header, and their labels."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from minbert.errors import UserError, format_list, short_repr
from tasks.readers.table import Table

NLI_CLASSES = ("entailment", "neutral", "contradiction")
POLARITIES = ("negative", "positive")
QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
ParseLabel = Callable[[str], float]
"""From the text of a label to its number; raises `UserError` for an invalid one, saying what is accepted."""
_NAMES_SHOWN = 8  # names of a header in an error message


class Columns(NamedTuple):
    """The names that a header may give to the texts, the label and the id of a row."""

    texts: Mapping[str, tuple[str, ...]]
    label: tuple[str, ...] = ()
    id: tuple[str, ...] = ("id", "pair_ID")


_PAIR = {
    "sentence1": ("sentence1", "text_1", "question1", "sentence_A", "#1 String"),
    "sentence2": ("sentence2", "text_2", "question2", "sentence_B", "#2 String"),
}
KINDS = {
    "lines": Columns({"sentence": ()}),
    "single": Columns({"sentence": ("sentence", "text", "review")}, ("sentiment", "label", "class")),
    "pair-class": Columns(_PAIR, ("is_duplicate", "label", "class", "Quality")),
    "pair-score": Columns(_PAIR, ("similarity", "relatedness_score", "score", "label")),
    "pair": Columns(_PAIR),
    "nli": Columns(
        {
            "sentence1": ("sentence1", "premise", "sentence_A"),
            "sentence2": ("sentence2", "hypothesis", "sentence_B"),
        },
        ("gold_label", "label", "entailment_judgment"),
        id=("pair_ID",),
    ),
    "triplet": Columns(
        {
            "anchor": ("sent0", "anchor"),
            "positive": ("sent1", "positive"),
            "negative": ("hard_neg", "negative", "hard_negative"),
        },
        id=(),
    ),
}
"""The kinds of rows. `pair` has no label; a file of triplets may lack the negative, and a test file its label."""
_COURSE_LABELS = {"single": "sentiment", "pair-class": "is_duplicate", "pair-score": "similarity", "pair": ""}
"""Kind -> what the files of Stanford's CS 224N default project call its label."""
HEADER_NAMES: set[str] = set()
for _kind in KINDS.values():
    HEADER_NAMES.update(*_kind.texts.values(), _kind.label)


class Layout(NamedTuple):
    """Columns of files without a header.

    It fits a first line that has as many cells as `names`, or more if `may_be_wider`, and numbers in the columns
    `numbers`.
    """

    kinds: tuple[str, ...]
    delimiter: str
    names: tuple[str, ...]
    numbers: tuple[str, ...] = ("label",)
    may_be_wider: bool = False


_PAIR_KINDS = ("pair-class", "pair-score")
_NUMBERED = ("number", "sentence1", "sentence2", "label")
LAYOUTS = (
    # SST2 of SentEval
    Layout(("single",), "\t", ("sentence", "label")),
    Layout(("pair",), "\t", ("sentence1", "sentence2"), numbers=()),
    # STS-B of SentEval; some rows name a source after the texts
    Layout(
        ("pair-score",),
        "\t",
        ("genre", "file", "year", "number", "label", "sentence1", "sentence2"),
        may_be_wider=True,
    ),
    # cnsd-sts (STS-B in Chinese), ATEC, then LCQMC; the ids of cnsd-sts are not unique, so the line is the id
    Layout(_PAIR_KINDS, "||", _NUMBERED),
    Layout(_PAIR_KINDS, "\t", _NUMBERED, numbers=("number", "label")),
    Layout(_PAIR_KINDS, "\t", _NUMBERED[1:]),
)


class Request(NamedTuple):
    """What is asked of a file: rows of one of `KINDS`, and how they are read.

    `split` is train, dev or test, or "" for all rows. Without `labelled` the labels are not read. `original` texts are
    not preprocessed as the course does.
    """

    kind: str
    split: str = ""
    classes: int | None = None
    labelled: bool = True
    original: bool = False


def find_columns(names: Sequence[str], kind: str) -> dict[str, str]:
    """Text, `label` or `id` -> the name that a header has for it."""
    accepted = {**KINDS[kind].texts, "label": KINDS[kind].label, "id": KINDS[kind].id}
    columns = {}
    for role, candidates in accepted.items():
        name = next((name for name in candidates if name in names), None)
        if name is not None:
            columns[role] = name
    return columns


def fit(table: Table, request: Request) -> Table | None:
    """The table with the columns of a kind of rows: those of its header, or of a layout without one; None if neither.

    A file is the course's if its header has exactly the course's names.
    """
    kind = request.kind
    if not _missing_column(table.names, request):
        if table.delimiter == "\t" and _is_course(find_columns(table.names, kind), kind):
            return replace(table, quoted=True, is_course=True)
        return table
    for layout in LAYOUTS:
        if kind in layout.kinds and _fits(table.line.split(layout.delimiter), layout):
            return replace(
                table,
                delimiter=layout.delimiter,
                names=layout.names,
                quoted=False,
                has_header=False,
                may_be_wider=layout.may_be_wider,
            )
    return None


def _is_course(columns: Mapping[str, str], kind: str) -> bool:
    """Whether the names of a header, by text, `label` or `id`, are the course's; test files have no label."""
    if kind not in _COURSE_LABELS or "id" not in columns:
        return False
    expected = {role: role for role in columns}
    if "label" in columns:
        expected["label"] = _COURSE_LABELS[kind]
    return columns == expected


def _fits(cells: Sequence[str], layout: Layout) -> bool:
    if len(cells) < len(layout.names) or (len(cells) > len(layout.names) and not layout.may_be_wider):
        return False
    numbers = [cell for name, cell in zip(layout.names, cells, strict=False) if name in layout.numbers]
    return HEADER_NAMES.isdisjoint(cells) and all(map(is_number, numbers))


def _missing_column(names: Sequence[str], request: Request) -> str:
    """The first text, or `label`, that a header lacks; "" if it lacks none.

    A triplet needs no negative, and a row of a test file no label.
    """
    kind = KINDS[request.kind]
    needed = [role for role in kind.texts if role != "negative"]
    if kind.label and request.labelled and request.split != "test":
        needed.append("label")
    columns = find_columns(names, request.kind)
    return next((role for role in needed if role not in columns), "")


def unknown_format(table: Table, request: Request) -> UserError:
    """The error for a file that does not hold rows of a kind: what it is, or what its header must name."""
    path = table.path
    kind = request.kind
    if kind == "lines":
        return UserError(f"{path}: is a table; a file of texts has one on each line")
    by_semicolon = [cell.strip().strip('"') for cell in table.line.split(";")]
    if len(by_semicolon) > 1 and (len(table.names) == 1 or not HEADER_NAMES.isdisjoint(by_semicolon)):
        return UserError(f"{path}:1: the columns are separated by semicolons; separate them by commas or tabs")
    role = _missing_column(table.names, request)
    accepted = KINDS[kind].label if role == "label" else KINDS[kind].texts[role]
    wanted = f"{accepted[0]!r} (or {', '.join(accepted[1:])})"
    # pairs without labels are read to be predicted, and from plain text too
    pairs = ", or hold two texts with a tab between them" if kind == "pair" else ""
    # no column is named by a number; the course's test file of SST has one, beside usual names
    has_number = any(map(is_number, table.names))
    if HEADER_NAMES.isdisjoint(table.names) and (has_number or not table.names):
        return UserError(
            f"{path}:1: the file has no header; its first line must name the columns, one of them {wanted}{pairs}"
        )
    names = format_list(table.names[:_NAMES_SHOWN])
    return UserError(
        f"{path}:1: no column {wanted}: the first line must have the names of the columns, and has {names}{pairs}"
    )


# --- labels


def parse_number(text: str) -> float:
    """The number that a text is; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    return not math.isnan(parse_number(text))


def parse_class(text: str, count: int | None) -> float:
    """A class from 0 to `count` - 1; without a count any whole number from 0."""
    value = parse_number(text)
    if count is None:
        accepted = "a whole number from 0"
        is_class = value >= 0 and value.is_integer()
    else:
        accepted = f"one of {', '.join(map(str, range(count)))}"
        is_class = value in range(count)
    if not is_class:
        raise UserError(f"{short_repr(text)} is not {accepted}")
    return value


def parse_score(text: str, lowest: float = 0, highest: float = 5) -> float:
    """A similarity from `lowest` to `highest`."""
    value = parse_number(text)
    if lowest <= value <= highest:
        return value
    raise UserError(f"{short_repr(text)} is not a number from {lowest:g} to {highest:g}")


def parse_name(text: str, names: Sequence[str]) -> float:
    """The index of a class by its name."""
    if text in names:
        return float(names.index(text))
    raise UserError(f"{short_repr(text)} is not one of {format_list(names)}")


def parse_nli(text: str) -> float:
    """The index in `NLI_CLASSES`; SICK writes the classes in capitals."""
    return parse_name(text.strip().lower(), NLI_CLASSES)


def label_parser(kind: str, column: str, classes: int | None) -> ParseLabel:
    """How the label column of a kind of rows is read; `classes` is the number of classes, if it is known."""
    if column == "relatedness_score":  # SICK's
        return partial(parse_score, lowest=1)
    if kind == "pair-score":
        return parse_score
    if kind == "nli":
        return parse_nli
    if kind == "pair-class" and classes is None:
        classes = 2
    return lambda text: parse_class(text, classes)
