"""The kinds of rows of data files, and the layouts of files, recognised from their first line.

A file is opened as one kind of rows, of `KINDS`: a table whose header has names that the kind accepts, JSON lines with
such keys, or a published layout without a header. An invalid row raises `UserError`; only known gaps are skipped.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from minbert.errors import UserError, format_list, short_repr
from minbert.token_cache import Row, Skipped
from tasks.readers.records import (
    FirstLine,
    Record,
    first_line_of,
    json_records,
    line_records,
    scored_records,
    table_records,
)

Rows = Iterator[Row | Skipped]
NLI_CLASSES = ("entailment", "neutral", "contradiction")
POLARITIES = ("negative", "positive")
QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_QUESTION = re.compile(r"([A-Z]+):\w+ (.*)")
_NAMES_SHOWN = 8  # names of a header in an error message


def clean_sentence(text: str) -> str:
    """The course's preprocessing of a single sentence: lower case, surrounding white space removed."""
    return text.lower().strip()


def clean_pair(text: str) -> str:
    """The course's preprocessing of a sentence of a pair: lower case, a space before . ? , ', single spaces."""
    spaced = text.lower().replace(".", " .").replace("?", " ?").replace(",", " ,").replace("'", " '")
    return " ".join(spaced.split())


@dataclass(frozen=True)
class Label:
    """Valid content of a label column: numbers for which `accepts` is true, `words` (text -> number) and `gaps`.

    A gap is a text that means "no label"; `gaps` gives the reason reported for skipping its row.
    """

    accepts: Callable[[float], bool]
    complaint: str
    words: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)

    def parse(self, text: str) -> float | str:
        """The label's number, or the reason to skip the row. Raises `UserError` for an invalid label."""
        word = text.strip()
        if word in self.gaps:
            return self.gaps[word]
        if word in self.words:
            return self.words[word]
        value = _number(word)
        if not self.accepts(value):
            raise UserError(f"{short_repr(text)} {self.complaint}")
        return value


def _number(text: str) -> float:
    """The number that a text is; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _names(names: Sequence[str], complaint: str) -> Label:
    """Labels that are names: their indices."""
    return Label(lambda value: False, complaint, {name: float(index) for index, name in enumerate(names)})


SCORE = Label(lambda value: 0 <= value <= 5, "is not between 0 and 5")
RELATEDNESS = Label(lambda value: 1 <= value <= 5, "is not between 1 and 5")
BINARY = Label(lambda value: value in (0, 1), "is neither 0 nor 1")
ANY_CLASS = Label(lambda value: value >= 0 and value.is_integer(), "is not a whole number from 0")
NLI = replace(_names(NLI_CLASSES, f"is not one of {', '.join(NLI_CLASSES)}"), gaps={"-": "no gold label"})
SICK = _names([name.upper() for name in NLI_CLASSES], NLI.complaint)
_QUESTION_TYPE = _names(QUESTIONS, "is not a question type")
_BY_COLUMN = {"relatedness_score": RELATEDNESS, "entailment_judgment": SICK}  # instead of the kind's


def class_label(count: int) -> Label:
    """Labels 0 to `count` - 1."""
    if count == 2:
        return BINARY
    return Label(lambda value: value in range(count), f"is not one of {', '.join(map(str, range(count)))}")


class Bare(NamedTuple):
    """A published table without a header: its columns in order, and those of them that hold numbers."""

    delimiter: str
    columns: tuple[str, ...]
    numbers: tuple[str, ...] = ("label",)
    wider: bool = False  # rows may have more cells


class Kind(NamedTuple):
    """The texts, the label and the id of a row, each with the names that a header may give it."""

    texts: Mapping[str, tuple[str, ...]]
    label: tuple[str, ...] = ()
    rule: Label | None = None
    id: tuple[str, ...] = ("id", "pair_ID")
    bare: tuple[Bare, ...] = ()


_PAIR = {
    "sentence1": ("sentence1", "text_1", "question1", "sentence_A", "#1 String"),
    "sentence2": ("sentence2", "text_2", "question2", "sentence_B", "#2 String"),
}
_STSB = ("genre", "file", "year", "number", "label", "sentence1", "sentence2")
_FOUR = ("number", "sentence1", "sentence2", "label")
# Chinese pairs: cnsd, whose ids are not unique; ATEC; LCQMC and STS-B.
_BARE_PAIRS = (
    Bare("||", _FOUR),
    Bare("\t", _FOUR, ("number", "label")),
    Bare("\t", _FOUR[1:]),
)
KINDS = {
    "lines": Kind({"sentence": ()}),
    "single": Kind(
        {"sentence": ("sentence", "text", "review")},
        ("sentiment", "label", "class"),
        ANY_CLASS,
        bare=(Bare("\t", ("sentence", "label")),),
    ),
    "pair-class": Kind(_PAIR, ("is_duplicate", "label", "class", "Quality"), BINARY, bare=_BARE_PAIRS),
    "pair-score": Kind(
        _PAIR,
        ("similarity", "relatedness_score", "score", "label"),
        SCORE,
        bare=(Bare("\t", _STSB, wider=True), *_BARE_PAIRS),
    ),
    "pair": Kind(_PAIR, bare=(Bare("\t", ("sentence1", "sentence2"), ()),)),
    "nli": Kind(
        {
            "sentence1": ("sentence1", "premise", "sentence_A"),
            "sentence2": ("sentence2", "hypothesis", "sentence_B"),
        },
        ("gold_label", "label", "entailment_judgment"),
        NLI,
        id=("pair_ID",),
    ),
    "triplet": Kind(
        {
            "anchor": ("sent0", "anchor"),
            "positive": ("sent1", "positive"),
            "negative": ("hard_neg", "negative"),
        },
        id=(),
    ),
}
"""The kinds of rows. `pair` has no label; a file of triplets may lack the negative, and a test file its label."""
_HEADER_NAMES = {name for kind in KINDS.values() for names in (*kind.texts.values(), kind.label) for name in names}
_COURSE = {
    "single": ("sentiment", clean_sentence),
    "pair-class": ("is_duplicate", clean_pair),
    "pair-score": ("similarity", clean_pair),
    "pair": (None, clean_pair),
}
"""Kind -> the course's name of the label, and its preprocessing."""


class Layout(NamedTuple):
    """How the rows of a file are made from its records.

    A record's cells are the `texts`, then the `label` if it has a rule, then the id if there are `ids`; without ids the
    line is the id. `empty` says what to do with a row with an empty text: "skip", "keep", or "refuse" with an error. A
    row without a label is skipped, or kept if `keep_unlabelled`.
    """

    texts: Sequence[str]
    label: str | None = None
    rule: Label | None = None
    ids: bool = False
    lower_ids: bool = True
    records: Iterator[Record] = iter(())
    clean: Callable[[str], str] = str.strip
    empty: str = "skip"
    keep_unlabelled: bool = False


class Opened(NamedTuple):
    """An opened file: number of texts per row, an iterator over its rows, and whether it is the course's.

    The texts of the course's files are preprocessed as the course does.
    """

    texts: int
    rows: Rows
    course: bool


def open_as(path: Path, kind: str, split: str = "train", *, classes: int | None = None, clean: bool = True) -> Opened:
    """Recognise the layout of a file and open it as one of `KINDS`.

    `classes` is the number of classes; by default any for `single` and 2 for `pair-class`. Labels are classes from 0,
    scores from 0 to 5, or the index in `NLI_CLASSES`. If not `clean`, the course's texts are read as they are written.
    Raises `UserError` with the names that a header may have if no layout fits, and during iteration for an invalid row.
    """
    _, layout = _recognise(path, (kind,), split, class_label(classes) if classes else KINDS[kind].rule)
    if not clean:
        layout = layout._replace(clean=str.strip)
    labels_of = [*companions(path), path][0]
    return Opened(len(layout.texts), _rows(labels_of, layout), layout.clean is not str.strip)


def kind_of(path: Path, kinds: Sequence[str]) -> str:
    """The first of some kinds that a file's first line fits.

    Raises `UserError` if there is none, with the names that the first kind accepts.
    """
    return _recognise(path, kinds, "train", None)[0]


def is_table(path: Path) -> bool:
    """Whether a file's first line has tabs, is a JSON object, or names columns."""
    return _is_table(path, first_line_of(path))


def read_texts(path: Path, like: str = "") -> Rows:
    """The rows of a data file without labels, texts and ids as they are written; rows with an empty text are skipped.

    It is opened as the first kind that its first line fits: any, or one with as many texts as the kind `like`, `single`
    or a kind of pairs. Raises `UserError` as `open_as` does.
    """
    every = ("triplet", "pair-score", "pair-class", "nli", "single", "pair", "lines")
    kinds = {"": every, "single": ("single", "lines")}.get(like, ("pair", like))  # first what needs no label
    _, layout = _recognise(path, kinds, "test", None)
    return _rows(path, layout._replace(rule=None, clean=str.strip, lower_ids=False, empty="skip"))


def _is_table(path: Path, head: FirstLine) -> bool:
    named = path.suffix.lower() == ".csv" or not _HEADER_NAMES.isdisjoint(head.names)
    return head.delimiter in ("\t", "json") or named


def _recognise(path: Path, kinds: Sequence[str], split: str, rule: Label | None) -> tuple[str, Layout]:
    """The first of some kinds that the first line of a file fits, and its layout; `UserError` if there is none."""
    head = first_line_of(path)
    for kind in kinds:
        if layout := _layout(path, head, kind, split, rule):
            return kind, layout
    raise _unknown(path, head, kinds[0], split)


def _layout(path: Path, head: FirstLine, kind: str, split: str, rule: Label | None) -> Layout | None:
    """The first layout of a kind that fits the first line of a file; `lines` fits what is no table."""
    if kind == "lines":
        return None if _is_table(path, head) else Layout(("sentence",), records=line_records(path))
    if kind == "single" and head.delimiter == "," and head.line.split(":")[0] in QUESTIONS:
        return Layout(("sentence",), "label", _QUESTION_TYPE, records=_questions(path))
    if kind == "pair-score" and path.name.startswith("STS.input."):
        rule, records = replace(SCORE, gaps={"": "no gold score"}), scored_records(path, *companions(path))
        return Layout(("sentence1", "sentence2"), "score", rule, records=records)
    return _with_header(path, head, kind, split, rule) or _without_header(path, head, kind, rule)


def _with_header(path: Path, head: FirstLine, kind: str, split: str, rule: Label | None) -> Layout | None:
    """A table whose header has the names of a kind, or JSON lines; the course's if it has the course's names."""
    columns = _columns(head, kind)
    if _missing(columns, kind, split):
        return None
    texts = [columns[text] for text in KINDS[kind].texts if text in columns]
    label, id_column = columns.get("label"), columns.get("id")
    rule = _BY_COLUMN.get(label, rule) if label else None
    cells = [*texts, *([label] if label and rule else []), *([id_column] if id_column else [])]
    layout = Layout(texts, label, rule, bool(id_column))
    if head.delimiter == "json":
        return layout._replace(records=json_records(path, cells))
    quoted = head.delimiter == "," or head.line.startswith('"')
    if _is_course(head, kind, texts, label, id_column):
        quoted, empty = True, "refuse" if kind in ("single", "pair-score") else "skip"
        layout = layout._replace(clean=_COURSE[kind][1], empty=empty)
        if kind == "pair-class":  # the published Quora files have gaps
            gaps, empty = {"": f"{label}: empty"}, "keep" if split == "test" else empty
            layout = layout._replace(
                rule=rule and replace(rule, gaps=gaps), empty=empty, keep_unlabelled=split != "train"
            )
    records = table_records(path, cells, head.names, head.delimiter, quoted=quoted, header=True)
    return layout._replace(records=records)


def _is_course(head: FirstLine, kind: str, texts: list[str], label: str | None, id_column: str | None) -> bool:
    """Whether a header has exactly the course's names, apart from the label, which its test files lack."""
    tabs = kind in _COURSE and head.delimiter == "\t"
    return tabs and texts == [*KINDS[kind].texts] and id_column == "id" and label in (_COURSE[kind][0], None)


def _without_header(path: Path, head: FirstLine, kind: str, rule: Label | None) -> Layout | None:
    """A published table without a header, by the number of cells and by which of them are numbers."""
    for bare in KINDS[kind].bare:
        cells = head.line.split(bare.delimiter)
        fits = len(cells) == len(bare.columns) or (bare.wider and len(cells) > len(bare.columns))
        numbers = [cell for name, cell in zip(bare.columns, cells, strict=False) if name in bare.numbers]
        if fits and _HEADER_NAMES.isdisjoint(cells) and not any(math.isnan(_number(text)) for text in numbers):
            texts = [*KINDS[kind].texts]
            columns = [*texts, *(["label"] if rule else [])]
            records = table_records(path, columns, bare.columns, bare.delimiter, wider=bare.wider)
            return Layout(texts, "label", rule, records=records)
    return None


def _columns(head: FirstLine, kind: str) -> dict[str, str]:
    """Text, `label` or `id` -> the name that the header has for it."""
    accepted = {**KINDS[kind].texts, "label": KINDS[kind].label, "id": KINDS[kind].id}
    matches = {target: next((name for name in names if name in head.names), "") for target, names in accepted.items()}
    return {target: name for target, name in matches.items() if name}


def _missing(columns: Mapping[str, str], kind: str, split: str) -> str:
    """The first text or label that a header lacks, or ""; a test file needs no label, a triplet no negative."""
    needed = [*KINDS[kind].texts, *(["label"] if KINDS[kind].label and split != "test" else [])]
    return next((target for target in needed if target not in columns and target != "negative"), "")


def _unknown(path: Path, head: FirstLine, kind: str, split: str) -> UserError:
    if kind == "lines":
        return UserError(f"{path}: is a table; a file of texts has one on each line")
    target = _missing(_columns(head, kind), kind, split)
    first, *alternatives = KINDS[kind].label if target == "label" else KINDS[kind].texts[target]
    shown = format_list(head.names[:_NAMES_SHOWN])
    return UserError(f"{path}:1: no column {first!r} (or {', '.join(alternatives)}): rename the header's, {shown}")


def _questions(path: Path) -> Iterator[Record]:
    for line, (text,) in line_records(path, "latin-1"):
        match = _QUESTION.fullmatch(text)
        if not match or match[1] not in QUESTIONS:
            raise UserError(f"{path}:{line}: label: the line does not begin with a type such as DESC:manner")
        yield line, (match[2], match[1])


def _rows(path: Path, layout: Layout) -> Rows:
    """The rows of a layout; `path` is the file that holds the labels, which errors name."""
    count, lines = len(layout.texts), dict[str, int]()
    for line, cells in layout.records:
        texts, label, note = tuple(map(layout.clean, cells[:count])), math.nan, ""
        if not all(texts) and layout.empty != "keep":
            reason = f"{layout.texts[texts.index('')]}: empty"
            if layout.empty == "refuse":
                raise UserError(f"{path}:{line}: {reason}")
            yield Skipped(line, reason)
            continue
        if layout.rule:
            try:
                value = layout.rule.parse(cells[count])
            except UserError as error:
                raise UserError(f"{path}:{line}: {layout.label}: {error}") from None
            if isinstance(value, float):
                label = value
            elif layout.keep_unlabelled:
                note = f"{value}; predicted, not scored"
            else:
                yield Skipped(line, value)
                continue
        name = str(line)
        if layout.ids:
            name = cells[-1].strip().lower() if layout.lower_ids else cells[-1].strip()
            if not name:
                raise UserError(f"{path}:{line}: id: empty")
            if lines.setdefault(name, line) != line:
                raise UserError(f"{path}:{line}: id: duplicate, first seen on line {lines[name]}")
        yield Row(name, texts, label, line, note)


def companions(path: Path) -> list[Path]:
    """The file read together with `path`: the gold scores of `STS.input.X.txt`, which are its rows' labels."""
    return [path.with_name(path.name.replace("input", "gs", 1))] if path.name.startswith("STS.input.") else []
