"""Table of the layouts of data files: how each is recognised, its columns, and its rules for labels and gaps.

A file is opened as one kind of rows: `lines`, `single`, `pair-class`, `pair-score`, `nli` or `triplet`. It is read
with the first layout of that kind that fits its first line. For any other table with a header, or JSON lines, name the
columns with `--columns sentence1=premise,sentence2=hypothesis`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers.rows import ANY_CLASS, BINARY, NLI, RELATEDNESS, SCORE, Label, checked_rows, class_label
from tasks.readers.splitter import (
    Head,
    Record,
    json_records,
    line_records,
    quoting_of,
    side_by_side,
    split_records,
)

Rows = Iterator[Row | Skipped]
Columns = Mapping[str, tuple[str, ...]]
QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_QUESTION = re.compile(r"([A-Z]+):\w+ (.*)")


def clean_sentence(text: str) -> str:
    """The course's preprocessing of a single sentence: lower case, surrounding white space removed."""
    return text.lower().strip()


def clean_pair(text: str) -> str:
    """The course's preprocessing of a sentence of a pair: lower case, a space before . ? , ', single spaces."""
    spaced = text.lower().replace(".", " .").replace("?", " ?").replace(",", " ,").replace("'", " '")
    return " ".join(spaced.split())


@dataclass(frozen=True)
class Kind:
    """Content of a row: each target (a text, `label` or `id`) with the column names in common use for it."""

    columns: Columns
    label: Label | None = None
    optional: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the text targets."""
        return tuple(target for target in self.columns if target not in ("label", "id"))

    def required(self, split: str) -> list[str]:
        """The targets that a file must have; a test file needs no labels."""
        free = ("id", *self.optional, *(["label"] if split == "test" else []))
        return [target for target in self.columns if target not in free]


_IDS = ("id", "pair_ID")
_FIRST = ("sentence1", "text_1", "text1", "question1", "sentence_A", "premise", "s1")
_SECOND = ("sentence2", "text_2", "text2", "question2", "sentence_B", "hypothesis", "s2")
_SCORES = ("score", "similarity", "similarity_score", "relatedness_score", "label")
_TRIPLET: Columns = {
    "anchor": ("sent0", "anchor", "query"),
    "positive": ("sent1", "positive", "pos", "entailment"),
    "negative": ("hard_neg", "negative", "neg", "contradiction"),
}
KINDS: dict[str, Kind] = {
    "lines": Kind({"sentence": ("sentence",), "id": ()}),
    "single": Kind(
        {"sentence": ("sentence", "text", "review"), "label": ("label", "sentiment", "class"), "id": _IDS}, ANY_CLASS
    ),
    "pair-class": Kind(
        {"sentence1": _FIRST, "sentence2": _SECOND, "label": ("label", "is_duplicate", "class"), "id": _IDS}, BINARY
    ),
    "pair-score": Kind({"sentence1": _FIRST, "sentence2": _SECOND, "label": _SCORES, "id": _IDS}, SCORE),
    "nli": Kind(
        {
            "sentence1": ("sentence1", "premise"),
            "sentence2": ("sentence2", "hypothesis"),
            "label": ("gold_label", "label"),
            "id": (),
        },
        NLI,
    ),
    "triplet": Kind({**_TRIPLET, "id": ()}, optional=("negative",)),
}


@dataclass(frozen=True)
class Layout:
    """One layout of files of a kind: a table with a header, unless `names` or `records` is given."""

    name: str
    columns: Columns  # target -> possible column names
    delimiter: str = ""  # default: detected from the first line
    quotes: str = ""  # quoting, as in `split_records`; default: by delimiter
    names: tuple[str, ...] = ()  # all columns in order, for files without a header
    numbers: tuple[str, ...] = ()  # those of `names` that hold numbers, used to recognise the layout
    optional: tuple[str, ...] = ()  # targets that a file may lack
    wider: bool = False  # rows may have more cells than the header
    records: Callable[[Path], Iterator[Record]] | None = None  # reads a file that is not a table
    recognised: Callable[[Head], bool] | None = None  # replaces the usual test in `fits`
    shown: str = ""  # description in error messages; default: from the names
    label: Label | None = None  # default: that of the kind
    labels_in: Callable[[Path], Path] = lambda path: path  # the file named in errors about labels
    clean: Callable[[str], str] = str.strip
    empty: str = "skip"  # rows with an empty text: "skip", or "refuse" with an error
    gaps: bool = False  # as in the published Quora files: empty labels are gaps, and test rows are kept

    @property
    def form(self) -> str:
        """Description of the layout for error messages."""
        if self.names and not self.shown:
            return f"{(self.delimiter or '<TAB>').join(self.names)} without a header"
        needed = [" or ".join(names) for target, names in self.columns.items() if target not in self.optional]
        return self.shown or f"a header or JSON lines with {', '.join(needed)}"

    def fits(self, head: Head, split: str) -> bool:
        """Whether the first line of a file fits this layout; a test file may have no label column."""
        if self.recognised:
            return self.recognised(head)
        if self.names:
            cells = head.line.split(self.delimiter or head.delimiter)
            wide = len(cells) == len(self.names) or (self.wider and len(cells) > len(self.names))
            return wide and all(_is_number(cells[self.names.index(name)]) for name in self.numbers)
        free = (*self.optional, "label") if split == "test" and "label" not in head.keys else self.optional
        known = {*self.found(head), *free}
        return self.delimiter in ("", head.delimiter) and known >= self.columns.keys()

    def found(self, head: Head) -> dict[str, str]:
        """Target -> the file's column, for the targets that the file has."""
        there = self.names or head.keys
        chosen = {target: [name for name in names if name in there] for target, names in self.columns.items()}
        return {target: names[0] for target, names in chosen.items() if names}

    def rows(self, head: Head, split: str, label: Label | None) -> tuple[int, Rows]:
        """Number of texts per row, and the rows."""
        found = self.found(head)
        texts = [name for target, name in found.items() if target not in ("label", "id")]
        rule = self.label or label if "label" in found else None
        if rule is not None and self.gaps:
            rule = replace(rule, gaps={"": f"{found['label']}: empty"})
        return len(texts), checked_rows(
            self.labels_in(head.path),
            self.records(head.path) if self.records else self._split(head, texts, found, rule),
            texts,
            rule,
            column=found.get("label", ""),
            ids="id" in found,
            clean=self.clean,
            empty="keep" if self.gaps and split == "test" else self.empty,
            predicted=self.gaps and split != "train",
        )

    def _split(self, head: Head, texts: list[str], found: dict[str, str], rule: Label | None) -> Iterator[Record]:
        columns = [*texts, *(found[target] for target in ("label", "id") if target in found)]
        if head.delimiter == "json":
            unlabelled = {found["label"]: "-"} if rule is NLI else None  # a line of NLI may lack its label
            return json_records(head.path, columns, unlabelled)
        delimiter = self.delimiter or head.delimiter
        # In GLUE's copy of SNLI the header names one annotator's label, but rows have five; the gold label is last.
        label = found.get("label", "")
        final = label if self.wider and not self.names and head.keys[-1] == label else ""
        quotes = self.quotes if self.quotes and delimiter != "," else quoting_of(delimiter)
        wider = self.wider and bool(self.names or final)
        return split_records(
            head.path, columns, delimiter=delimiter, quotes=quotes, names=self.names, wider=wider, final=final
        )


def _is_number(text: str) -> bool:
    try:
        float(text.strip("\ufeff\r "))
    except ValueError:
        return False
    return True


def sides_of(path: Path) -> list[Path]:
    """SentEval's files `s1.X`, `s2.X` and `labels.X` if `path` is one of them and another one exists, else empty."""
    part, _, ending = path.name.partition(".")
    parts = ("s1", "s2", "labels")
    if part not in parts or not any(path.with_name(f"{other}.{ending}").is_file() for other in parts if other != part):
        return []
    return [path.with_name(f"{one}.{ending}") for one in parts]


def gold_of(path: Path) -> Path:
    """The file of gold scores for `STS.input.X.txt`."""
    return path.with_name(path.name.replace("input", "gs", 1))


def companions(path: Path) -> list[Path]:
    """The files read together with `path`: gold scores of an STS input, or SentEval's other SNLI files."""
    if path.name.startswith("STS.input."):
        return [gold_of(path)]
    return [other for other in sides_of(path) if other != path]


def _questions(path: Path) -> Iterator[Record]:
    for line, (text,) in line_records(path, "latin-1"):
        match = _QUESTION.fullmatch(text)
        if not match or match[1] not in QUESTIONS:
            raise UserError(f"{path}:{line}: label: the line does not begin with a type such as DESC:manner")
        yield line, (match[2], match[1])


def _pair(first: str, second: str, **others: str) -> Columns:
    return {"sentence1": (first,), "sentence2": (second,), **{target: (name,) for target, name in others.items()}}


_LABELLED: Columns = {"sentence": ("sentence",), "label": ("label",)}
_SCORED = _pair("sentence1", "sentence2", label="score")
_STSB = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")
_FOUR = ("number", "s1", "s2", "label")
# Chinese pairs without a header: cnsd, whose ids are not unique; ATEC, with tabs or commas; LCQMC and STS-B.
_BARE_PAIRS = (
    Layout("two bars", _pair("s1", "s2", label="label"), "||", "none", names=_FOUR, numbers=("label",)),
    Layout("numbered pairs", _pair("s1", "s2", label="label"), names=_FOUR, numbers=("number", "label")),
    Layout("pairs", _pair("s1", "s2", label="label"), names=_FOUR[1:], numbers=("label",)),
)
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "lines": (
        Layout(
            "lines",
            {"sentence": ("sentence",)},
            names=("sentence",),
            recognised=lambda head: True,
            shown="one sentence a line",
            records=line_records,
        ),
    ),
    "single": (
        Layout(
            "course",
            {"sentence": ("sentence",), "label": ("sentiment",), "id": ("id",)},
            "\t",
            "csv",
            clean=clean_sentence,
            empty="refuse",
        ),
        Layout("text and class", _LABELLED, "\t", "none", names=("sentence", "label"), numbers=("label",)),
        Layout(
            "TREC",
            _LABELLED,
            names=("sentence", "label"),
            recognised=lambda head: head.line.split(":")[0] in QUESTIONS and "\t" not in head.line,
            shown="TYPE:detail question",
            records=_questions,
            label=Label(
                lambda value: False, "is not a question type", {name: float(n) for n, name in enumerate(QUESTIONS)}
            ),
        ),
        Layout("table", KINDS["single"].columns, optional=("id",)),
    ),
    "pair-class": (
        Layout(
            "course",
            _pair("sentence1", "sentence2", label="is_duplicate", id="id"),
            "\t",
            "csv",
            clean=clean_pair,
            gaps=True,
        ),
        Layout("MRPC", _pair("#1 String", "#2 String", label="Quality"), quotes="none"),
        *_BARE_PAIRS,
        Layout("table", KINDS["pair-class"].columns, optional=("id",)),
    ),
    "pair-score": (
        Layout(
            "course",
            _pair("sentence1", "sentence2", label="similarity", id="id"),
            "\t",
            "csv",
            clean=clean_pair,
            empty="refuse",
        ),
        Layout("STS-B", _SCORED, "\t", "none", names=_STSB, numbers=("score",), wider=True),
        Layout(
            "STS input",
            _SCORED,
            names=("sentence1", "sentence2", "score"),
            recognised=lambda head: head.path.name.startswith("STS.input."),
            shown="STS.input.X.txt with STS.gs.X.txt beside it",
            records=lambda path: side_by_side((path, 2), (gold_of(path), 1)),
            label=replace(SCORE, gaps={"": "no gold score"}),
            labels_in=gold_of,
        ),
        Layout(
            "SICK",
            _pair("sentence_A", "sentence_B", label="relatedness_score", id="pair_ID"),
            quotes="none",
            label=RELATEDNESS,
        ),
        *_BARE_PAIRS,
        Layout("table", KINDS["pair-score"].columns, optional=("id",)),
    ),
    "nli": (
        Layout(
            "SentEval's NLI",
            _pair("sentence1", "sentence2", label="label"),
            names=("sentence1", "sentence2", "label"),
            recognised=lambda head: bool(sides_of(head.path)),
            shown="SentEval's s1.X, s2.X, labels.X side by side",
            records=lambda path: side_by_side(*((side, 1) for side in sides_of(path))),
            labels_in=lambda path: sides_of(path)[-1],
        ),
        Layout("SICK", _pair("sentence_A", "sentence_B", label="entailment_judgment", id="pair_ID"), quotes="none"),
        Layout("table", KINDS["nli"].columns, quotes="none", optional=("id",), wider=True),
    ),
    "triplet": (Layout("table", KINDS["triplet"].columns, optional=("negative", "id")),),
}


class Opened(NamedTuple):
    """An opened file: name of its layout, number of texts per row, and an iterator over its rows."""

    layout: str
    texts: int
    rows: Rows


def open_as(path: Path, kind: str, split: str = "train", columns: str = "", *, classes: int | None = None) -> Opened:
    """Recognise the layout of a file and open it as one of `KINDS`.

    `columns` is the value of `--columns`. `classes` is the number of classes; by default any for `single` and 2 for
    `pair-class`. Labels are classes from 0, scores from 0 to 5, or the index in `NLI_CLASSES`; `lines` and `triplet`
    have none. Raises `UserError` with the possible layouts if none fits, and during iteration for an invalid row.
    """
    known, head = KINDS[kind], Head.of(path)
    label = class_label(classes) if known.label and classes else known.label
    if columns:
        layout = Layout("columns", _named_columns(head, kind, split, columns))
    else:
        layout = next((one for one in LAYOUTS[kind] if one.fits(head, split)), None) or _unknown(head, kind, split)
    return Opened(layout.name, *layout.rows(head, split, label))


def _unknown(head: Head, kind: str, split: str) -> Layout:
    known = KINDS[kind]
    missing = next(target for target in known.required(split) if set(known.columns[target]).isdisjoint(head.keys))
    shown = head.line if len(head.line) <= 60 else head.line[:60] + "..."
    raise UserError(
        f"{head.path}:1: {shown!r} names no {missing} column and is no row of a file without a header; {kind} files "
        f"may be: {'; '.join(one.form for one in LAYOUTS[kind])}; or say --columns {missing}=..."
    )


def parse_columns(spec: str, kind: str) -> dict[str, str]:
    """`target=name,target=name` as {target: column name}; raises `UserError` for a malformed or unknown target."""
    chosen: dict[str, str] = {}
    for part in spec.split(","):
        target, _, name = (piece.strip() for piece in part.partition("="))
        if not (target and name):
            raise UserError(f"--columns {spec}: {part.strip()!r} is not of the form target=name")
        if target not in KINDS[kind].columns:
            raise UserError(f"--columns {spec}: {target!r} is not one of {', '.join(KINDS[kind].columns)}")
        if target in chosen:
            raise UserError(f"--columns {spec}: {target!r} is named twice")
        chosen[target] = name
    return chosen


def _named_columns(head: Head, kind: str, split: str, spec: str) -> Columns:
    """The columns of a user's own table: those named by `--columns`, else columns named like their target.

    Raises `UserError` if a given column is not in the file, or a required target has no column.
    """
    given, there = parse_columns(spec, kind), f"the file has {', '.join(map(repr, head.keys))}"
    for target, name in given.items():
        if name not in head.keys:
            raise UserError(f"{head.path}:1: no column {name!r} for --columns {target}={name}; {there}")
    chosen = {target: (given.get(target, target),) for target in KINDS[kind].columns}
    for target in KINDS[kind].required(split):
        if chosen[target][0] not in head.keys:
            raise UserError(f"{head.path}:1: no column {target!r}; name one with --columns {target}=...; {there}")
    return chosen
