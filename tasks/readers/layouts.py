"""Table of the layouts of data files: how each is recognised, its columns, and its rules for labels and gaps.

A file is opened as one kind of rows: `lines`, `single`, `pair-class`, `pair-score`, `nli` or `triplet`. It is read
with the first layout of that kind that fits its first line. For any other table with a header, or JSON lines, name the
columns with `--columns sentence1=premise,sentence2=hypothesis`.
"""

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minbert.errors import UserError, listed, quoted
from minbert.token_cache import Row, Skipped
from tasks.readers.splitter import Head, Record, json_records, line_records, side_by_side, split_records

Rows = Iterator[Row | Skipped]
Columns = Mapping[str, tuple[str, ...]]
"""Target (a text, `label` or `id`) -> possible column names."""
NLI_CLASSES = ("entailment", "neutral", "contradiction")
POLARITIES = ("negative", "positive")
QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_QUESTION = re.compile(r"([A-Z]+):\w+ (.*)")
_NOT_TEXTS = ("label", "id")
_MOST = 1024  # most parsed labels kept per column, to bound memory for a column of many different scores


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
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not self.accepts(value):
            raise UserError(f"{quoted(text)} {self.complaint}")
        return value


SCORE = Label(lambda value: 0 <= value <= 5, "is not between 0 and 5")
RELATEDNESS = Label(lambda value: 1 <= value <= 5, "is not between 1 and 5")
BINARY = Label(lambda value: value in (0, 1), "is neither 0 nor 1")
ANY_CLASS = Label(lambda value: value >= 0 and value.is_integer(), "is not a whole number from 0")
NLI = Label(
    lambda value: False,
    f"is not one of {', '.join(NLI_CLASSES)}",
    words={form: float(n) for n, name in enumerate(NLI_CLASSES) for form in (name, name.upper(), str(n))},
    gaps=dict.fromkeys(("-", "-1", "hidden"), "no gold label"),
)
_QUESTION_TYPE = Label(
    lambda value: False, "is not a question type", {name: float(n) for n, name in enumerate(QUESTIONS)}
)


def class_label(count: int) -> Label:
    """Labels 0 to `count` - 1."""
    if count == 2:
        return BINARY
    return Label(lambda value: value in range(count), f"is not one of {', '.join(map(str, range(count)))}")


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
    lower_ids: bool = True,
) -> Rows:
    """Rows from records whose cells are the texts, then the label if `label` is given, then the id if `ids` is true.

    Without ids the line number is the id. `empty` is the treatment of a row with an empty text: "skip", "keep", or
    "refuse" (raises `UserError`). A row whose label is a gap is skipped, or kept without a label if `predicted` is
    true. Raises `UserError` for an invalid label or id; duplicate ids are found at the end of the file, by their
    hashes of 128 bits.
    """
    count, lines, hashes = len(texts), array("q"), bytearray()
    parse = lru_cache(_MOST)(label.parse) if label else None  # there are few different labels, and parsing is slow
    for line, cells in records:
        found, value, note = tuple(map(clean, cells[:count])), math.nan, ""
        if not all(found) and empty != "keep":
            why = f"{texts[found.index('')]}: empty"
            if empty == "refuse":
                raise UserError(f"{path}:{line}: {why}")
            yield Skipped(line, why)
            continue
        if parse is not None:
            try:
                known = parse(cells[count])
            except UserError as error:
                raise UserError(f"{path}:{line}: {column}: {error}") from None
            if isinstance(known, float):
                value = known
            elif predicted:
                note = f"{known}; predicted, not scored"
            else:
                yield Skipped(line, known)
                continue
        name = str(line)
        if ids:
            name = cells[-1].strip().lower() if lower_ids else cells[-1].strip()
            if not name:
                raise UserError(f"{path}:{line}: id: empty")
            lines.append(line)
            hashes += blake2b(name.encode(), digest_size=16).digest()
        yield Row(name, found, value, line, note)
    _demand_distinct(path, lines, np.frombuffer(hashes, dtype="S16"))


def _demand_distinct(path: Path, lines: Sequence[int], hashes: np.ndarray) -> None:
    """Raises `UserError` for the first line whose id is a duplicate; the ids themselves need not be in memory."""
    order = hashes.argsort(kind="stable")
    again = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if len(again):
        pair = again[order[again + 1].argmin()]
        first, second = lines[order[pair]], lines[order[pair + 1]]
        raise UserError(f"{path}:{second}: id: duplicate, first seen on line {first}")


@dataclass(frozen=True)
class Kind:
    """Content of a row: each target with the column names in common use for it."""

    columns: Columns
    label: Label | None = None
    optional: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the text targets."""
        return tuple(target for target in self.columns if target not in _NOT_TEXTS)

    def required(self, split: str) -> list[str]:
        """The targets that a file must have; a test file needs no labels."""
        free = ("id", *self.optional, *(["label"] if split == "test" else []))
        return [target for target in self.columns if target not in free]


_IDS = ("id", "pair_ID")
_PAIR: Columns = {
    "sentence1": ("sentence1", "text_1", "text1", "question1", "sentence_A", "premise", "s1"),
    "sentence2": ("sentence2", "text_2", "text2", "question2", "sentence_B", "hypothesis", "s2"),
}
_NLI_PAIR: Columns = {"sentence1": ("sentence1", "premise"), "sentence2": ("sentence2", "hypothesis")}
_SCORES = ("score", "similarity", "similarity_score", "relatedness_score", "label")
_TRIPLET: Columns = {
    "anchor": ("sent0", "anchor", "query"),
    "positive": ("sent1", "positive", "pos", "entailment"),
    "negative": ("hard_neg", "negative", "neg", "contradiction"),
}
_SENTENCE: Columns = {"sentence": ("sentence", "text", "review"), "label": ("label", "sentiment", "class"), "id": _IDS}
KINDS: dict[str, Kind] = {
    "lines": Kind({"sentence": ("sentence",), "id": ()}),
    "single": Kind(_SENTENCE, ANY_CLASS),
    "pair-class": Kind({**_PAIR, "label": ("label", "is_duplicate", "class"), "id": _IDS}, BINARY),
    "pair-score": Kind({**_PAIR, "label": _SCORES, "id": _IDS}, SCORE),
    "nli": Kind({**_NLI_PAIR, "label": ("gold_label", "label"), "id": ()}, NLI),
    "triplet": Kind({**_TRIPLET, "id": ()}, optional=("negative",)),
}


@dataclass(frozen=True)
class Layout:
    """One layout of files of a kind: a table with a header, unless `names` or `records` is given."""

    name: str
    columns: Columns
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
        if self.records:
            return {target: names[0] for target, names in self.columns.items()}
        there = self.names or head.keys
        chosen = {target: [name for name in names if name in there] for target, names in self.columns.items()}
        return {target: names[0] for target, names in chosen.items() if names}

    def rows(self, head: Head, split: str, label: Label | None, labelled: bool = True) -> tuple[int, Rows]:
        """Number of texts per row, and the rows."""
        found = {target: name for target, name in self.found(head).items() if labelled or target != "label"}
        texts = [name for target, name in found.items() if target not in _NOT_TEXTS]
        rule = self.label or label if "label" in found else None
        if rule is not None and self.gaps:
            rule = replace(rule, gaps={"": f"{found['label']}: empty"})
        return len(texts), checked_rows(
            labels_of(head.path) if self.records else head.path,
            self.records(head.path) if self.records else self._split(head, texts, found, rule),
            texts,
            rule,
            column=found.get("label", ""),
            ids="id" in found,
            clean=self.clean if labelled else str.strip,
            lower_ids=labelled,
            empty="keep" if self.gaps and split == "test" else self.empty,
            predicted=self.gaps and split != "train",
        )

    def _split(self, head: Head, texts: list[str], found: dict[str, str], rule: Label | None) -> Iterator[Record]:
        columns = [*texts, *(found[target] for target in _NOT_TEXTS if target in found)]
        if head.delimiter == "json":
            unlabelled = {found["label"]: "-"} if rule is NLI else None  # a line of NLI may lack its label
            return json_records(head.path, columns, unlabelled)
        delimiter = self.delimiter or head.delimiter
        # In GLUE's copy of SNLI the header names one annotator's label, but rows have five; the gold label is last.
        label = found.get("label", "")
        final = label if self.wider and not self.names and head.keys[-1] == label else ""
        wider = self.wider and bool(self.names or final)
        # By default, quotes inside a cell between tabs are plain characters.
        quotes = "csv" if delimiter == "," else self.quotes or "cell"
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
    ending = path.name.partition(".")[2]
    sides = [path.with_name(f"{one}.{ending}") for one in ("s1", "s2", "labels")]
    return sides if path in sides and any(side.is_file() for side in sides if side != path) else []


def gold_of(path: Path) -> Path:
    """The file of gold scores for `STS.input.X.txt`."""
    return path.with_name(path.name.replace("input", "gs", 1))


def labels_of(path: Path) -> Path:
    """The file that holds the labels of `path`'s rows."""
    return [path, *companions(path)][-1] if not path.name.startswith("labels.") else path


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


def _columns(**names: str) -> Columns:
    return {target: (name,) for target, name in names.items()}


def _sick(label: str) -> Columns:
    return _columns(sentence1="sentence_A", sentence2="sentence_B", label=label, id="pair_ID")


def _course(clean: Callable[[str], str], columns: Columns, *, empty: str = "skip", gaps: bool = False) -> Layout:
    return Layout("course", columns, "\t", "csv", clean=clean, empty=empty, gaps=gaps)


_LABELLED = _columns(sentence="sentence", label="label")
_SCORED = _columns(sentence1="sentence1", sentence2="sentence2", label="score")
_STSB = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")
_BARE = _columns(sentence1="s1", sentence2="s2", label="label")
_FOUR = ("number", "s1", "s2", "label")
# Chinese pairs without a header: cnsd, whose ids are not unique; ATEC, with tabs or commas; LCQMC and STS-B.
_BARE_PAIRS = (
    Layout("two bars", _BARE, "||", "none", names=_FOUR, numbers=("label",)),
    Layout("numbered pairs", _BARE, names=_FOUR, numbers=("number", "label")),
    Layout("pairs", _BARE, names=_FOUR[1:], numbers=("label",)),
)
_LINES = Layout(
    "lines",
    _columns(sentence="sentence"),
    recognised=lambda head: True,
    shown="one sentence a line",
    records=line_records,
)
_TREC = Layout(
    "TREC",
    _LABELLED,
    recognised=lambda head: head.line.split(":")[0] in QUESTIONS and "\t" not in head.line,
    shown="TYPE:detail question",
    records=_questions,
    label=_QUESTION_TYPE,
)
_STS_INPUT = Layout(
    "STS input",
    _SCORED,
    recognised=lambda head: head.path.name.startswith("STS.input."),
    shown="STS.input.X.txt with STS.gs.X.txt beside it",
    records=lambda path: side_by_side((path, 2), (gold_of(path), 1)),
    label=replace(SCORE, gaps={"": "no gold score"}),
)
_SENTEVAL_NLI = Layout(
    "SentEval's NLI",
    _columns(sentence1="sentence1", sentence2="sentence2", label="label"),
    recognised=lambda head: bool(sides_of(head.path)),
    shown="SentEval's s1.X, s2.X, labels.X side by side",
    records=lambda path: side_by_side(*((side, 1) for side in sides_of(path))),
)
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "lines": (_LINES,),
    "single": (
        _course(clean_sentence, _columns(sentence="sentence", label="sentiment", id="id"), empty="refuse"),
        Layout("text and class", _LABELLED, "\t", "none", names=("sentence", "label"), numbers=("label",)),
        _TREC,
        Layout("table", KINDS["single"].columns, optional=("id",)),
    ),
    "pair-class": (
        _course(
            clean_pair,
            _columns(sentence1="sentence1", sentence2="sentence2", label="is_duplicate", id="id"),
            gaps=True,
        ),
        Layout("MRPC", _columns(sentence1="#1 String", sentence2="#2 String", label="Quality"), quotes="none"),
        *_BARE_PAIRS,
        Layout("table", KINDS["pair-class"].columns, optional=("id",)),
    ),
    "pair-score": (
        _course(
            clean_pair,
            _columns(sentence1="sentence1", sentence2="sentence2", label="similarity", id="id"),
            empty="refuse",
        ),
        Layout("STS-B", _SCORED, "\t", "none", names=_STSB, numbers=("score",), wider=True),
        _STS_INPUT,
        Layout("SICK", _sick("relatedness_score"), quotes="none", label=RELATEDNESS),
        *_BARE_PAIRS,
        Layout("table", KINDS["pair-score"].columns, optional=("id",)),
    ),
    "nli": (
        _SENTEVAL_NLI,
        Layout("SICK", _sick("entailment_judgment"), quotes="none"),
        Layout("table", KINDS["nli"].columns, quotes="none", optional=("id",), wider=True),
    ),
    "triplet": (Layout("table", KINDS["triplet"].columns, optional=("negative", "id")),),
}
_HEADER = re.compile(r"\w+([,\t]\w+)+")
_NAMES = {
    name for kind in ("single", "pair-class", "pair-score") for names in KINDS[kind].columns.values() for name in names
}
_SENTENCES = replace(_LINES, recognised=lambda head: "\t" not in head.line and not _HEADER.fullmatch(head.line.strip()))
_TWO_TEXTS = Layout(
    "two texts",
    _columns(sentence1="s1", sentence2="s2"),
    quotes="none",
    names=("s1", "s2"),
    recognised=lambda head: head.line.count("\t") == 1 and _NAMES.isdisjoint(head.keys),
    shown="<TAB> between two sentences",
)
_UNLABELLED = {"single": (_SENTENCES,), "pair-class": (_TWO_TEXTS,), "pair-score": (_TWO_TEXTS,)}


class Opened(NamedTuple):
    """An opened file: name of its layout, number of texts per row, and an iterator over its rows."""

    layout: str
    texts: int
    rows: Rows


def open_as(
    path: Path,
    kind: str,
    split: str = "train",
    columns: str = "",
    *,
    classes: int | None = None,
    labelled: bool = True,
) -> Opened:
    """Recognise the layout of a file and open it as one of `KINDS`.

    Unless `labelled`, labels are not read, texts and ids stay as written, and the file may also have one sentence a
    line (`single`) or two separated by a tab (pairs).
    `columns` is the value of `--columns`. `classes` is the number of classes; by default any for `single` and 2 for
    `pair-class`. Labels are classes from 0, scores from 0 to 5, or the index in `NLI_CLASSES`; `lines` and `triplet`
    have none. Raises `UserError` with the possible layouts if none fits, and during iteration for an invalid row.
    """
    known, head = KINDS[kind], Head.of(path)
    label = class_label(classes) if known.label and classes else known.label
    if columns:
        layout = Layout("columns", _named_columns(head, kind, split, columns))
    else:
        layouts = LAYOUTS[kind] if labelled else (*LAYOUTS[kind], *_UNLABELLED[kind])
        split = split if labelled else "test"
        layout = next((one for one in layouts if one.fits(head, split)), None) or _unknown(head, kind, split)
    return Opened(layout.name, *layout.rows(head, split, label, labelled))


def _unknown(head: Head, kind: str, split: str) -> Layout:
    known = KINDS[kind]
    missing = next(target for target in known.required(split) if set(known.columns[target]).isdisjoint(head.keys))
    raise UserError(
        f"{head.path}:1: {quoted(head.line)} names no {missing} column and is no row of a file without a header; "
        f"{kind} files may be: {'; '.join(one.form for one in LAYOUTS[kind])}; or say --columns {missing}=..."
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
    given, there = parse_columns(spec, kind), f"the file has {listed(head.keys)}"
    for target, name in given.items():
        if name not in head.keys:
            raise UserError(f"{head.path}:1: no column {name!r} for --columns {target}={name}; {there}")
    chosen = {target: (given.get(target, target),) for target in KINDS[kind].columns}
    for target in KINDS[kind].required(split):
        if chosen[target][0] not in head.keys:
            raise UserError(f"{head.path}:1: no column {target!r}; name one with --columns {target}=...; {there}")
    return chosen
