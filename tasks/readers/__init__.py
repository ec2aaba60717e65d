"""Readers of data files: `open_as(path, kind)` gives the rows of one of `KINDS`, however the file writes them.

A file's first line says how it is read: `table` cuts it into records, `kinds` finds their columns by the header or a
published layout and reads labels, `rows` makes a `DataFile` of them: the rows kept, in file order, and those skipped,
with line and reason. An invalid row raises `UserError` with `file:line: column: reason`.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from minbert import token_cache
from minbert.errors import UserError
from minbert.files import sha256_of
from minbert.token_cache import Issue, ReaderReport, Row, TokenCache
from minbert.tokenizer import Tokenizer
from tasks.readers import senteval
from tasks.readers.kinds import HEADER_NAMES, KINDS, Request, find_columns, fit, unknown_format
from tasks.readers.rows import DataFile, clean_pair, clean_sentence, read_rows, read_texts_of_lines
from tasks.readers.table import Table, ending, open_table

__all__ = [
    "DataFile",
    "clean_pair",
    "clean_sentence",
    "count_texts",
    "digest",
    "find_file",
    "find_optional_file",
    "is_table",
    "kind_of",
    "open_as",
    "read_texts",
    "text_key",
    "tokenised",
]
_SAMPLE = Path(__file__).parent.parent.parent / "data" / "sample"
_OTHERS = re.compile(r"[\W_]+")  # all but letters and digits


def open_as(path: Path, kind: str, split: str = "", *, classes: int | None = None, original: bool = False) -> DataFile:
    """Read the rows of a file as one of `KINDS`.

    `split` is train, dev or test. It selects the rows of a file with a column `split`; a test file needs no labels. By
    default all rows are read, as training rows. `classes` is the number of classes; by default any for `single` and 2
    for `pair-class`. Labels are classes from 0, scores from 0 to 5, or the index in `kinds.NLI_CLASSES`. `original`
    texts are not preprocessed as the course does. Raises `UserError` for an invalid row, if no row is usable, and if no
    reader fits, with the names that a header may have.
    """
    return _read_first_fit(path, [Request(kind, split, classes, original=original)])


def kind_of(path: Path, kinds: Sequence[str], split: str = "") -> str:
    """The first of some kinds that a file's first line fits; no more than this line is read.

    Raises `UserError` if there is none, with the names that the first kind accepts.
    """
    kind, _ = _first_fit(path, [Request(kind, split) for kind in kinds])
    return kind


def count_texts(path: Path, kind: str) -> int:
    """The number of texts that a header names of a kind: 2 or 3 of triplets; no more than this line is read."""
    columns = find_columns(open_table(path).names, kind)
    return sum(role in columns for role in KINDS[kind].texts)


def read_texts(path: Path, like: str = "") -> DataFile:
    """The rows of a data file without labels, texts and ids as they are written; rows with an empty text are skipped.

    It is read as the first kind that its first line fits: any, or one with as many texts as the kind `like`, `single`
    or a kind of pairs. Raises `UserError` as `open_as` does.
    """
    kinds = ["triplet", "pair-score", "pair-class", "nli", "single", "pair", "lines"]
    if like == "single":
        kinds = ["single", "lines"]
    elif like:
        kinds = ["pair", like]  # first what needs no label
    return _read_first_fit(path, [Request(kind, labelled=False, original=True) for kind in kinds])


def is_table(path: Path) -> bool:
    """Whether a file is a table: it is named .csv, or its first line has tabs, is a JSON object, or names columns."""
    table = open_table(path)
    if ending(path) == ".csv" or table.delimiter in ("\t", "json"):
        return True
    return not HEADER_NAMES.isdisjoint(table.names)


def _read_first_fit(path: Path, requests: Sequence[Request]) -> DataFile:
    """The rows of a file as the first kind that its first line fits; `UserError` for none."""
    _, read = _first_fit(path, requests)
    data = read()
    if not data.rows:
        raise UserError(f"{path}: no usable row")
    return data


def _first_fit(path: Path, requests: Sequence[Request]) -> tuple[str, Callable[[], DataFile]]:
    """The first kind that a file's first line fits, and the function that reads its rows; `UserError` for none."""
    table = open_table(path)
    for request in requests:
        read = _reader(table, request)
        if read is not None:
            return request.kind, read
    # the message is about the kind most of whose texts the header names
    nearest = max(requests, key=lambda request: len(find_columns(table.names, request.kind).keys() - {"id", "label"}))
    raise unknown_format(table, nearest)


def _reader(table: Table, request: Request) -> Callable[[], DataFile] | None:
    """The function that reads a file's rows as a kind; None if the first line does not fit."""
    path = table.path
    if request.kind == "lines":
        return None if is_table(path) else partial(read_texts_of_lines, path)
    # SentEval has two forms that are no tables
    if request.kind == "single" and senteval.is_trec(table):
        return partial(senteval.read_trec, path, labelled=request.labelled)
    if request.kind == "pair-score" and senteval.is_sts_input(path):
        return partial(senteval.read_sts_input, path, labelled=request.labelled)
    fitted = fit(table, request)
    return partial(read_rows, fitted, request) if fitted is not None else None


def digest(path: Path) -> str:
    """Hex SHA-256 of a data file as recorded in manifests; for an STS input, the hash over its and its gold file's."""
    if not senteval.is_sts_input(path):
        return sha256_of(path)
    hashes = [sha256_of(path), sha256_of(senteval.gold_file(path))]
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def tokenised(
    path: Path, kind: str, tokenizer: Tokenizer, split: str = "", *, classes: int | None = None
) -> TokenCache:
    """The rows of a file as read by `open_as`, tokenised once and cached.

    The cache's report says whether the texts are preprocessed as the course does, and how many rows are of other
    splits. A file that is in the cache is opened once, for its hash. Raises `UserError` as `open_as` does.
    """

    def rows() -> Iterator[Row | Issue | ReaderReport]:
        data = open_as(path, kind, split, classes=classes)
        yield {"course": data.is_course}
        if data.other_splits:
            yield {"other_splits": data.other_splits}
        yield from data.rows_and_issues()

    return token_cache.load(path, rows(), f"{kind} {classes} {split}", tokenizer, sha256=digest(path))


def find_optional_file(data: Path, folder: str, names: Sequence[str]) -> Path | None:
    """Find a data file by any of its usual names, in `data/folder` or in `data`; None if it is missing."""
    for parent in (data / folder, data):
        for name in names:
            if (parent / name).is_file():
                return parent / name
    return None


def find_file(data: Path, folder: str, names: Sequence[str]) -> Path:
    """As `find_optional_file`; raises `UserError` if the file is missing."""
    path = find_optional_file(data, folder, names)
    if path is not None:
        return path
    sample = ""
    if any((_SAMPLE / folder / name).is_file() for name in names):
        sample = " (--data data/sample is the small corpus that comes with the project)"
    raise UserError(
        f"neither {data} nor {data / folder} holds {' or '.join(names)}; python data/get_data.py {folder} fetches the "
        f"usual files into data/; give another folder that holds them with --data DIR or $DATA_DIR{sample}"
    )


def text_key(text: str) -> str:
    """A key that is equal for texts of the same letters and digits, whatever their case, width, spaces and punctuation.

    So the raw and the tokenised form of a sentence have the same key. The key of a text without any is its other
    characters.
    """
    return _OTHERS.sub("", unicodedata.normalize("NFKC", text).casefold()) or "".join(text.split())
