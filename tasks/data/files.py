"""The data files of a folder under the names that runs look for, each with its set, its split and its reader.

The files of a data set are in its folder (`course`, `nli`, `senteval/downstream`, `zh`) or in the data folder itself.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from minbert.errors import UserError
from tasks.readers import chinese, open_as, senteval
from tasks.readers.layouts import Rows

_TABLES = (
    ("SST", "course", "ids-sst-*.csv", "single", 5),
    ("CFIMDB", "course", "ids-cfimdb-*.csv", "single", 2),
    ("Quora", "course", "quora-*.csv", "pair-class", 2),
    ("course STS", "course", "sts-*.csv", "pair-score", None),
    ("SimCSE triplets", "nli", "nli_for_simcse.csv", "triplet", None),
    ("NLI triplets", "nli", "nli-triplets.csv", "triplet", None),
    ("NLI pairs", "nli", "nli-pairs.tsv", "nli", None),
    ("SNLI", "nli", "snli_1.0/snli_1.0_*.jsonl", "nli", None),
    ("MultiNLI", "nli", "multinli_1.0/multinli_1.0_*.jsonl", "nli", None),
)
"""Set, folder, pattern of the files' names, and kind of rows and number of classes as for `open_as`."""
_SPLIT = re.compile(r"(?<![a-z])(train|dev|test)(?![a-z])")


@dataclass(frozen=True)
class DataFile:
    """A file of a set. `name` is its path for display."""

    set: str
    split: str
    name: str
    read: Callable[[], Rows]


def data_files(data: Path) -> list[DataFile]:
    """All known files under a folder, in a fixed order; raises `UserError` if there are none."""
    files = [*_tables(data), *_senteval(data), *_chinese(data)]
    if not files:
        raise UserError(
            f"--data: {data} holds no data file of a known name; "
            f"python data/get_data.py course --data {data} brings the course's files"
        )
    return files


def split_of(name: str) -> str:
    """The split named last in a file's name: train, dev or test; train if there is none."""
    return _SPLIT.findall(f"train {name}")[-1]


def _file(data: Path, name: str, split: str, path: Path, kind: str, classes: int | None = None) -> DataFile:
    def rows() -> Rows:
        return open_as(path, kind, split, classes=classes).rows

    return DataFile(name, split, path.relative_to(data).as_posix(), rows)


def _tables(data: Path) -> Iterator[DataFile]:
    for name, folder, pattern, kind, classes in _TABLES:
        for path in sorted((data / folder).glob(pattern)) or sorted(data.glob(pattern)):
            yield _file(data, name, split_of(path.name), path, kind, classes)


def _senteval(data: Path) -> Iterator[DataFile]:
    base = senteval.find_root(data)
    if base is None:
        return
    splits = [(name, split) for name in senteval.SCORED for split in senteval.SICK]
    for name, split in splits:
        if split == "test" or name not in senteval.STS:
            for path in senteval.scored_files(base, name, split).values():
                if path.is_file():
                    yield _file(data, name, split, path, "pair-score")
    for name, (kind, parts) in senteval.CLASSIFICATION.items():
        for split, files in parts.items():
            path = base / files[0]
            if not path.is_file() or kind == "nli":  # SICK-E has the rows of SICK
                continue
            if kind == "polarity":
                shown = " + ".join([path.relative_to(data).as_posix(), *(Path(other).suffix for other in files[1:])])
                yield DataFile(name, split, shown, partial(senteval.polarity, *(base / file for file in files)))
            else:
                yield _file(data, name, split, path, kind)


def _chinese(data: Path) -> Iterator[DataFile]:
    for (name, split), path in chinese.files(data).items():
        yield _file(data, f"zh {name}", split, path, "pair-score" if name == "STS-B" else "pair-class")
