"""The course's files: tab-separated with csv's quoting, columns by name, text cleaned as the course cleans it."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers.records import Record, header, records
from tasks.readers.rows import BINARY, SCORE, Known, Label, class_label, unique

_SAMPLE = Path(__file__).parent.parent.parent / "data" / "sample"
_DUPLICATE = Label(BINARY.accepts, "is neither 0.0 nor 1.0")
_FIVE = class_label(5)


def clean_sentence(text: str) -> str:
    """The course's preprocessing of a single sentence: lower case, no blanks at the ends."""
    return text.lower().strip()


def clean_pair(text: str) -> str:
    """The course's preprocessing of a sentence of a pair: lower case, a space before . ? , ' and white space folded."""
    spaced = text.lower().replace(".", " .").replace("?", " ?").replace(",", " ,").replace("'", " '")
    return " ".join(spaced.split())


def sst(path: Path, split: str) -> Iterator[Row | Skipped]:
    """Sentences with a class from 0 to 4."""
    return sentences(path, split, _FIVE)


def cfimdb(path: Path, split: str) -> Iterator[Row | Skipped]:
    """Film reviews with class 0 or 1; `<br />` and quotes stay in the text, as in the course's code."""
    return sentences(path, split, BINARY)


def quora(path: Path, split: str) -> Iterator[Row | Skipped]:
    """Question pairs with label 0.0 or 1.0. The files have gaps, as published.

    Without a sentence, a row of train or dev is skipped, one of test is kept: every id needs a prediction. Without a
    label, a row of train is skipped, one of dev is kept, to be predicted and not scored.
    """
    return _pairs(path, "is_duplicate", _DUPLICATE, split, gaps=True)


def sts(path: Path, split: str) -> Iterator[Row | Skipped]:
    """Sentence pairs with a similarity from 0 to 5."""
    return _pairs(path, "similarity", SCORE, split, gaps=False)


def sentences(path: Path, split: str, label: Label) -> Iterator[Row | Skipped]:
    """Sentences with a class in the column `sentiment`, as `label` allows; a test file may lack it."""
    seen: dict[str, int] = {}
    found, labelled = _records(path, ("id", "sentence"), "sentiment", split)
    known = Known(label, path, "sentiment")
    for line, cells in found:
        name, text = unique(path, line, cells[0], seen), clean_sentence(cells[1])
        if not text:
            raise UserError(f"{path}:{line}: sentence: empty")
        yield Row(name, (text,), _number(known, line, cells[2]) if labelled else math.nan)


def _pairs(path: Path, column: str, label: Label, split: str, *, gaps: bool) -> Iterator[Row | Skipped]:
    seen: dict[str, int] = {}
    found, labelled = _records(path, ("id", "sentence1", "sentence2"), column, split)
    known = Known(label, path, column)
    for line, cells in found:
        name = unique(path, line, cells[0], seen)
        texts = first, second = clean_pair(cells[1]), clean_pair(cells[2])
        if not (first and second):
            empty = f"sentence{2 if first else 1}: empty"
            if not gaps:
                raise UserError(f"{path}:{line}: {empty}")
            if split != "test":
                yield Skipped(line, empty)
                continue
        if labelled and gaps and not cells[3].strip():
            if split == "train":
                yield Skipped(line, f"{column}: empty")
            else:
                yield Row(name, texts, line=line, note=f"{column}: empty; predicted, not scored")
        else:
            yield Row(name, texts, _number(known, line, cells[3]) if labelled else math.nan)


def _records(path: Path, columns: Sequence[str], label: str, split: str) -> tuple[Iterator[Record], bool]:
    """Records with their label last, which a test file may lack; and whether they have it."""
    labelled = split != "test" or label in header(path, "\t")
    return records(path, (*columns, label) if labelled else columns), labelled


def _number(known: Known, line: int, text: str) -> float:
    value = known.get(text)
    if value is None:
        value = known.learn(line, text)
    assert isinstance(value, float)  # the course's labels know no words and no gaps
    return value


def find(data: Path, folder: str, names: Sequence[str]) -> Path:
    """A data file by its usual names, in `data/folder` or in `data` itself; `UserError` says how to get it."""
    for parent in (data / folder, data):
        for name in names:
            if (parent / name).is_file():
                return parent / name
    helps = any((_SAMPLE / folder / name).is_file() for name in names)
    sample = " (--data data/sample is the small corpus that comes with the project)" if helps else ""
    raise UserError(
        f"neither {data} nor {data / folder} holds {' or '.join(names)}; python data/get_data.py "
        f"{'chinese' if folder == 'zh' else folder} fetches the usual files into data/; give another folder that holds "
        f"them with --data DIR or $DATA_DIR{sample}"
    )
