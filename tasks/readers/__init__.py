"""Readers of data files: rows in file order, columns by name, every row either kept or listed as skipped.

An invalid row raises `UserError` with `file:line: column: reason`. Only the known gaps of each layout (such as missing
labels) are skipped, and counted.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from minbert import token_cache
from minbert.errors import UserError
from minbert.files import require_file
from minbert.token_cache import TokenCache
from minbert.tokenizer import Tokenizer
from tasks.readers.layouts import clean_pair, clean_sentence, companions, is_table, kind_of, open_as, read_texts

__all__ = [
    "clean_pair",
    "clean_sentence",
    "companions",
    "digest",
    "find_file",
    "is_table",
    "kind_of",
    "open_as",
    "read_texts",
    "text_key",
    "tokenised",
]
_SAMPLE = Path(__file__).parent.parent.parent / "data" / "sample"
_OTHERS = re.compile(r"[\W_]+")  # all but letters and digits


def digest(path: Path) -> str:
    """Hex SHA-256 of a data file as recorded in manifests; for an STS input, the hash over its and its gold file's."""
    return token_cache.digest(path, companions(path))


def tokenised(
    path: Path, kind: str, tokenizer: Tokenizer, split: str = "train", *, classes: int | None = None
) -> TokenCache:
    """The rows of a file as read by `open_as`, tokenised once and cached. Raises `UserError` as `open_as` does.

    The cache's report says whether the texts are preprocessed as the course does.
    """
    opened = open_as(require_file(path), kind, split, classes=classes)
    rows, reader_name = chain([{"course": opened.course}], opened.rows), f"{kind} {classes} {split}"
    return token_cache.load(path, rows, reader_name, opened.texts, tokenizer, sha256=digest(path))


def find_file(data: Path, folder: str, names: Sequence[str]) -> Path:
    """Find a data file by any of its usual names, in `data/folder` or in `data`; raises `UserError` if missing."""
    for parent in (data / folder, data):
        for name in names:
            if (parent / name).is_file():
                return parent / name
    helps = any((_SAMPLE / folder / name).is_file() for name in names)
    sample = " (--data data/sample is the small corpus that comes with the project)" if helps else ""
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
