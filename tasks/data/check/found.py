"""The data files found under their usual names and places, each with its set, its split and its reader.

The files of a data set are in its folder (`course`, `nli`, `senteval/downstream`, `zh`) or in the data folder itself.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers import open_as, senteval

Rows = Iterator[Row | Skipped]
_SPLIT = re.compile(r"(?<![a-z])(train|dev|trial|valid(?:ation)?|test)(?![a-z])")
_ZH = ("ATEC", "ATEC_CCKS", "BQ", "LCQMC", "PAWS-X")
_SPLITS = {"trial": "dev", "valid": "dev", "validation": "dev"}


@dataclass(frozen=True)
class Source:
    """A file of a set. `name` is its path for display; `scored` is true if its labels are scores, not classes."""

    set: str
    split: str
    name: str
    read: Callable[[], Rows]
    scored: bool = False


def sources(data: Path) -> list[Source]:
    """All known files under a folder, in a fixed order; raises `UserError` if there are none."""
    if not data.is_dir():
        raise UserError(f"--data: {data} is no folder; python data/get_data.py course --data {data} fills one")
    known = [*_course(data), *_nli(data), *_senteval(data), *_chinese(data)]
    if not known:
        raise UserError(
            f"--data: {data} holds no data file of a known name; "
            f"python data/get_data.py course --data {data} brings the course's files"
        )
    return known


def split_of(name: str) -> str:
    """train, dev or test, by the last such word in a file's name; `all` if there is none."""
    words = _SPLIT.findall(name.lower())
    return _SPLITS.get(words[-1], words[-1]) if words else "all"


def _course(data: Path) -> Iterator[Source]:
    kinds = (
        ("ids-sst-*.csv", "SST", "single", 5),
        ("ids-cfimdb-*.csv", "CFIMDB", "single", 2),
        ("quora-*.csv", "Quora", "pair-class", 2),
        ("sts-*-student.csv", "course STS", "pair-score", None),
        ("sts-train.csv", "course STS", "pair-score", None),
        ("sts-dev.csv", "course STS", "pair-score", None),
    )
    for pattern, name, kind, classes in kinds:
        for path in _files(data, ("course", ""), pattern):
            yield _source(name, split_of(path.name), data, path, kind, classes)


def _source(name: str, split: str, data: Path, path: Path, kind: str, classes: int | None = None) -> Source:
    def rows() -> Rows:
        return open_as(path, kind, split, classes=classes).rows

    return Source(name, split, path.relative_to(data).as_posix(), rows, kind == "pair-score")


def _nli(data: Path) -> Iterator[Source]:
    for pattern, name in (("nli_for_simcse.csv", "SimCSE triplets"), ("nli-triplets.csv", "NLI triplets")):
        for path in _files(data, ("nli", ""), pattern):
            yield _source(name, "train", data, path, "triplet")
    kinds = (
        ("nli-pairs.tsv", "NLI pairs"),
        ("snli_1.0_*", "SNLI"),
        ("snli_1.0/snli_1.0_*", "SNLI"),
        ("multinli_1.0_*", "MultiNLI"),
        ("multinli_1.0/multinli_1.0_*", "MultiNLI"),
    )
    for pattern, name in kinds:
        originals = [path for path in _files(data, ("nli", ""), pattern) if path.suffix in (".tsv", ".jsonl", ".txt")]
        for path in originals:
            if path.suffix == ".txt" and path.with_suffix(".jsonl") in originals:
                continue  # the .jsonl file has the same rows
            split = split_of(path.name)
            split = "train" if split == "all" else split
            shown = f"{name} mismatched" if "mismatched" in path.name else name
            yield _source(shown, split, data, path, "nli")


def _senteval(data: Path) -> Iterator[Source]:
    roots = ("senteval/downstream", "senteval", "downstream", "")
    for name, (folder, subsets) in senteval.STS.items():
        for subset in subsets:
            for path in _files(data, roots, f"{folder}/STS.input.{subset}.txt"):
                yield _source(name, "test", data, path, "pair-score")
    raw = bool(_files(data, roots, "stsbenchmark/sts-*.csv"))
    for folder in reversed(senteval.STSB):
        name = "STS-B tokenised" if raw and folder != "stsbenchmark" else "STS-B"
        for split in senteval.SICK:
            for path in _files(data, roots, f"{folder}/sts-{split}.csv"):
                yield _source(name, split, data, path, "pair-score")
    for split, file in senteval.SICK.items():
        for path in _files(data, roots, f"SICK/{file}"):
            yield _source("SICK", split, data, path, "pair-score")
    for path in _files(data, roots, "SNLI/s1.*"):
        yield _source("SNLI", split_of(path.name), data, path, "nli")
    yield from _classification(data, roots)


def _classification(data: Path, roots: tuple[str, ...]) -> Iterator[Source]:
    for name, known in senteval.CLASSIFICATION.items():
        for split, files in known.splits.items():
            for path in _files(data, roots, files[0]):
                if known.kind == "polarity":
                    shown = f"{path.relative_to(data).as_posix()} + {Path(files[1]).suffix}"
                    yield Source(name, split, shown, partial(_halves, path.parent.parent, name, split))
                elif known.kind != "nli":  # SICK-E has the rows of SICK, which is read for its scores
                    yield _source(name, split, data, path, known.kind)


def _halves(root: Path, name: str, split: str) -> Rows:
    return senteval.classification(root, name)[split]


def _chinese(data: Path) -> Iterator[Source]:
    inside = _files(data, ("zh",), "*/*") or [path for name in _ZH for path in _files(data, ("",), f"{name}/*")]
    for path in inside:
        if path.suffix in (".csv", ".tsv", ".txt", ".data"):
            folder = path.parent.name
            name = f"zh {folder} cnsd" if path.name.startswith("cnsd") else f"zh {folder}"
            one = _source(name, split_of(path.name), data, path, "pair-score")
            yield replace(one, scored="STS" in folder)


def _files(data: Path, folders: tuple[str, ...], pattern: str) -> list[Path]:
    """The files of the first folder that has any."""
    for folder in folders:
        if found := sorted(path for path in (data / folder).glob(pattern) if path.is_file()):
            return found
    return []
