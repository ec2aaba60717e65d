"""The data files of a folder by their usual names, each with its set, its split and its reader.

The files of a data set are in its folder (`course`, `nli`, `senteval/downstream`, `zh`) or in the data folder itself.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from minbert.errors import UserError
from tasks.readers import chinese, open_as, senteval
from tasks.readers.layouts import Rows

_SPLIT = re.compile(r"(?<![a-z])(train|dev|trial|valid(?:ation)?|test)(?![a-z])")
_SPLITS = {"trial": "dev", "valid": "dev", "validation": "dev"}
_SENTEVAL = ("senteval/downstream", "senteval", "downstream", "")


@dataclass(frozen=True)
class DataFile:
    """A file of a set. `name` is its path for display; `scored` is true if its labels are scores, not classes."""

    set: str
    split: str
    name: str
    read: Callable[[], Rows]
    scored: bool = False


class _Pattern(NamedTuple):
    """The files of a set; `split` is for a file whose name has none, `classes` and `kind` are for `open_as`."""

    set: str
    glob: str
    kind: str
    classes: int | None = None
    split: str = "all"


_COURSE = (
    _Pattern("SST", "ids-sst-*.csv", "single", 5),
    _Pattern("CFIMDB", "ids-cfimdb-*.csv", "single", 2),
    _Pattern("Quora", "quora-*.csv", "pair-class", 2),
    *(_Pattern("course STS", f"sts-{name}.csv", "pair-score") for name in ("*-student", "train", "dev")),
)
_NLI = (
    _Pattern("SimCSE triplets", "nli_for_simcse.csv", "triplet", split="train"),
    _Pattern("NLI triplets", "nli-triplets.csv", "triplet", split="train"),
    _Pattern("NLI pairs", "nli-pairs.tsv", "nli", split="train"),
    _Pattern("SNLI", "snli_1.0_*", "nli", split="train"),
    _Pattern("SNLI", "snli_1.0/snli_1.0_*", "nli", split="train"),
    _Pattern("MultiNLI", "multinli_1.0_*", "nli", split="train"),
    _Pattern("MultiNLI", "multinli_1.0/multinli_1.0_*", "nli", split="train"),
)
_SCORED = (
    *(
        _Pattern(name, f"{folder}/STS.input.{subset}.txt", "pair-score", split="test")
        for name, (folder, subsets) in senteval.STS.items()
        for subset in subsets
    ),
    *(
        _Pattern("STS-B", f"{folder}/sts-{split}.csv", "pair-score")
        for folder in reversed(senteval.STSB)
        for split in senteval.SICK
    ),
    *(_Pattern("SICK", f"SICK/{file}", "pair-score") for file in senteval.SICK.values()),
    _Pattern("SNLI", "SNLI/s1.*", "nli"),
)


def sources(data: Path) -> list[DataFile]:
    """All known files under a folder, in a fixed order; raises `UserError` if there are none."""
    if not data.is_dir():
        raise UserError(f"--data {data}: no such folder; python data/get_data.py course --data {data} fills one")
    tables = ((("course", ""), _COURSE), (("nli", ""), _NLI), (_SENTEVAL, _SCORED))
    pairs = [(folders, pattern) for folders, patterns in tables for pattern in patterns]
    named = [_source(data, path, pattern) for folders, pattern in pairs for path in _of(data, folders, pattern)]
    files = [*named, *_classification(data), *_chinese(data)]
    if not files:
        raise UserError(
            f"--data: {data} holds no data file of a known name; "
            f"python data/get_data.py course --data {data} brings the course's files"
        )
    return files


def split_of(name: str, otherwise: str = "all") -> str:
    """The split named last in a file's name: train, dev or test; `otherwise` if there is none."""
    words = _SPLIT.findall(name.lower())
    return _SPLITS.get(words[-1], words[-1]) if words else otherwise


def _source(data: Path, path: Path, pattern: _Pattern) -> DataFile:
    split, name = split_of(path.name, pattern.split), pattern.set
    if "mismatched" in path.name:
        name += " mismatched"
    if path.match("STS/STSBenchmark/*") and _files(data, _SENTEVAL, "stsbenchmark/sts-*.csv"):
        name += " tokenised"

    def rows() -> Rows:
        return open_as(path, pattern.kind, split, classes=pattern.classes).rows

    return DataFile(name, split, path.relative_to(data).as_posix(), rows, pattern.kind == "pair-score")


def _of(data: Path, folders: tuple[str, ...], pattern: _Pattern) -> list[Path]:
    """The files of a pattern; of SNLI and MultiNLI, whose .txt and .jsonl files have the same rows, one form."""
    paths = _files(data, folders, pattern.glob)
    if not pattern.glob.endswith("nli_1.0_*"):
        return paths
    return [
        path
        for path in paths
        if path.suffix in (".tsv", ".jsonl") or (path.suffix == ".txt" and path.with_suffix(".jsonl") not in paths)
    ]


def _classification(data: Path) -> Iterator[DataFile]:
    for name, (kind, splits) in senteval.CLASSIFICATION.items():
        for split, files in splits.items():
            for path in _files(data, _SENTEVAL, files[0]):
                if kind == "polarity":
                    shown = f"{path.relative_to(data).as_posix()} + {Path(files[1]).suffix}"
                    yield DataFile(name, split, shown, partial(_both_classes, path.parent.parent, name))
                elif kind != "nli":  # SICK-E has the rows of SICK, which is read for its scores
                    yield _source(data, path, _Pattern(name, files[0], kind, split=split))


def _both_classes(root: Path, name: str) -> Rows:
    return senteval.classification(root, name)["all"]


def _chinese(data: Path) -> Iterator[DataFile]:
    names = [name for folders in chinese.FOLDERS.values() for name in folders]
    inside = _files(data, ("zh",), "*/*") or [path for name in names for path in _files(data, ("",), f"{name}/*")]
    for path in inside:
        if path.suffix in chinese.SUFFIXES:
            folder = path.parent.name
            name = f"zh {folder} cnsd" if path.name.startswith("cnsd") else f"zh {folder}"
            source = _source(data, path, _Pattern(name, path.name, "pair-score"))
            yield replace(source, scored="STS" in folder)


def _files(data: Path, folders: tuple[str, ...], pattern: str) -> list[Path]:
    """The files of the first folder that has any."""
    for folder in folders:
        if paths := sorted(path for path in (data / folder).glob(pattern) if path.is_file()):
            return paths
    return []
