"""Which reader a file needs: recognised by its first line, for the kind of rows that is asked for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from minbert import token_cache
from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers import chinese, course, lines, nli, senteval
from tasks.readers.columns import KINDS, Kind, choose, parse, read
from tasks.readers.records import first_line, head
from tasks.readers.rows import Label, class_label

Rows = Iterator[Row | Skipped]


class Opened(NamedTuple):
    """A file that is about to be read: its format, how many texts a row has, and its rows."""

    format: str
    texts: int
    rows: Rows


@dataclass(frozen=True)
class File:
    """What is known of a file before it is read: its first line, and its columns if that is a header."""

    path: Path
    split: str
    label: Label
    line: str
    keys: tuple[str, ...]
    delimiter: str

    @property
    def cells(self) -> list[str]:
        """The first line, cut at tabs."""
        return self.line.split("\t")

    def has(self, *names: str) -> bool:
        """Whether the first line is a header with all these names."""
        return set(names) <= set(self.keys)

    def of_course(self, label: str, *texts: str) -> bool:
        """Whether the header is the course's: tabs, an id, the texts, and the label, which a test file may lack."""
        unlabelled = self.split == "test" and not self.has("label")
        return self.delimiter == "\t" and self.has("id", *texts) and (self.has(label) or unlabelled)


@dataclass(frozen=True)
class Format:
    """A form that files of a kind come in."""

    name: str
    form: str  # as a message shows it
    fits: Callable[[File], bool]
    read: Callable[[File], Rows]


# Names that columns go by in files in circulation, for each target.
_ID = ("id", "pair_ID")
_FIRST = ("sentence1", "text_1", "text1", "question1", "sentence_A", "premise", "s1")
_SECOND = ("sentence2", "text_2", "text2", "question2", "sentence_B", "hypothesis", "s2")
ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "single": {"sentence": ("sentence", "text", "review"), "label": ("label", "sentiment", "class"), "id": _ID},
    "pair-class": {
        "sentence1": _FIRST, "sentence2": _SECOND, "label": ("label", "is_duplicate", "class"), "id": _ID,
    },
    "pair-score": {
        "sentence1": _FIRST, "sentence2": _SECOND, "id": _ID,
        "label": ("score", "similarity", "similarity_score", "relatedness_score", "label"),
    },
}  # fmt: skip


def _number(text: str, most: float = float("inf")) -> bool:
    try:
        return 0 <= float(text) <= most
    except ValueError:
        return False


_CHINESE = Format(
    "pairs without a header",
    "s1<TAB>s2<TAB>label without a header, number<TAB>s1<TAB>s2<TAB>label, id||s1||s2||label",
    lambda file: chinese.recognise(file.path, headed=False) is not None,
    lambda file: chinese.pairs(file.path, file.label),
)
FORMATS: dict[str, tuple[Format, ...]] = {
    "lines": (Format("lines", "one sentence a line", lambda file: True, lambda file: lines.sentences(file.path)),),
    "single": (
        Format(
            "course",
            "the course's header id, sentence, sentiment",
            lambda file: file.of_course("sentiment", "sentence"),
            lambda file: course.sentences(file.path, file.split, file.label),
        ),
        Format(
            "text and class",
            "sentence<TAB>class without a header",
            lambda file: len(file.cells) == 2 and file.cells[1].strip().isdigit(),
            lambda file: senteval.text_label(file.path, file.label),
        ),
        Format(
            "TREC",
            "TYPE:detail question",
            lambda file: file.line.split(":")[0] in senteval.QUESTIONS and "\t" not in file.line,
            lambda file: senteval.questions(file.path),
        ),
    ),
    "pair-class": (
        Format(
            "course",
            "the course's header id, sentence1, sentence2, is_duplicate",
            lambda file: file.of_course("is_duplicate", "sentence1", "sentence2"),
            lambda file: course.quora(file.path, file.split),
        ),
        Format(
            "MRPC",
            "MRPC's header Quality, #1 String, #2 String",
            lambda file: file.has("Quality", "#1 String", "#2 String"),
            lambda file: senteval.mrpc(file.path),
        ),
        _CHINESE,
    ),
    "pair-score": (
        Format(
            "course",
            "the course's header id, sentence1, sentence2, similarity",
            lambda file: file.of_course("similarity", "sentence1", "sentence2"),
            lambda file: course.sts(file.path, file.split),
        ),
        Format(
            "STS-B",
            "STS-B's seven columns without a header",
            lambda file: len(file.cells) >= 7 and _number(file.cells[4], 5) and file.cells[2][:1].isdigit(),
            lambda file: senteval.stsb(file.path),
        ),
        Format(
            "STS input",
            "STS.input.X.txt with STS.gs.X.txt beside it",
            lambda file: len(file.cells) == 2 and file.path.name.startswith("STS.input."),
            lambda file: senteval.sts(file.path),
        ),
        _CHINESE,
    ),
}


def open_as(
    path: Path, kind: str, split: str = "train", columns: str | None = None, *, classes: int | None = None
) -> Opened:
    """Recognise a file and begin to read it as `lines`, `single`, `pair-class`, `pair-score`, `nli` or `triplet`.

    `columns` is the value of `--columns`, `classes` the number of classes (any for `single`, 2 for `pair-class`
    unless it is given). Labels: classes from 0, scores 0 to 5, `nli.NAMES` in their order, none for the others.
    Raises `UserError` where the file fits no form of the kind, with the accepted ones, and later for a bad row.
    """
    wanted = KINDS[kind]
    if wanted.label and classes:
        wanted = replace(wanted, label=class_label(classes))
    if columns:
        keys, _ = head(path)
        chosen = choose(path, wanted, split, parse(columns, wanted), keys)
        return Opened("columns", *read(path, wanted, chosen))
    if kind == "nli":
        return Opened("nli", 2, nli.pairs(path, split))
    if kind == "triplet":
        return Opened("triplets", nli.triplet_columns(path), nli.triplets(path, split))
    file = _look(path, split, wanted)
    for one in FORMATS[kind]:
        if one.fits(file):
            return Opened(one.name, len(wanted.texts), one.read(file))
    return Opened("table", *read(path, wanted, _by_alias(file, wanted)))


def companions(path: Path) -> list[Path]:
    """The files that are read along with one: the scores of an STS input, SentEval's sides and labels of SNLI."""
    if path.name.startswith("STS.input."):
        return [senteval.gold(path)]
    return [other for other in nli.aligned(path) if other != path]


def digest(path: Path) -> str:
    """Hex SHA-256 of a data file as manifests record it: its own, or that of its hash and its companions' hashes."""
    return token_cache.digest(path, companions(path))


def _look(path: Path, split: str, kind: Kind) -> File:
    line = first_line(path)
    keys, delimiter = head(path) if kind.name in ALIASES else ([], "")
    return File(path, split, kind.label or class_label(2), line, tuple(keys), delimiter)


def _by_alias(file: File, kind: Kind) -> dict[str, str]:
    """The file's name for each target; `UserError` where one that is needed has none, with all accepted forms."""
    aliases = ALIASES[kind.name]
    found = {target: next((name for name in names if name in file.keys), "") for target, names in aliases.items()}
    missing = [target for target in kind.required(file.split) if not found[target]]
    if missing:
        shown = file.line if len(file.line) <= 60 else file.line[:60] + "..."
        forms = "; ".join(one.form for one in FORMATS[kind.name])
        header = ", ".join(f"{target} ({' or '.join(aliases[target])})" for target in kind.required("train"))
        raise UserError(
            f"{file.path}:1: {shown!r} names no {missing[0]} column and is no row of a file without a header; "
            f"{kind.name} files may be: {forms}; a header or JSON lines with {header}; or say --columns"
        )
    return {target: name for target, name in found.items() if name}
