"""Unlabelled texts from files: every text counted, duplicates dropped, a sample drawn by seed, in file order.

| source | texts |
|---|---|
| `sts` | ConSERT's: every pair of STS12-16, STS-B and SICK, train, dev and test: transductive |
| `sts-train` | STS-B train, SICK train and, where it is there, STS12 train (`STS/STS12-en-train`) |
| `chinese` | EdaCSE's: the train files of ATEC, BQ, LCQMC, PAWS-X and STS-B under `zh/`, those that are there |
| a path | any file, one sentence a line |
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minbert.errors import UserError, suggestion
from minbert.files import present
from minbert.seeds import numpy_generator
from minbert.token_cache import Facts, Row, Skipped
from tasks.readers import key, open_as, senteval
from tasks.readers.layouts import checked_rows
from tasks.readers.splitter import side_by_side

CHINESE = {"ATEC": ("ATEC", "ATEC_CCKS"), **{name: (name,) for name in ("BQ", "LCQMC", "PAWS-X", "STS-B")}}
SOURCES = ("sts", "sts-train", "chinese")
"""The names of texts that need no path."""
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "test": "test"}  # word in a file's name -> split
_TABLES = (".csv", ".tsv", ".txt", ".data")
_LINE_FEEDS = re.compile(r"[\r\n]+")  # a quoted cell may hold some; the texts go into a file of one sentence a line


@dataclass(frozen=True)
class File:
    """One file that texts are read from; `split` is train, dev, test, or text where it is none of them."""

    path: Path
    split: str
    kind: str = "pair-score"

    def rows(self) -> Iterator[Row | Skipped]:
        """The file's rows: of STS12 to 16 with or without a gold score, as STS15 and 16 have more of the latter."""
        if self.path.name.startswith("STS.input."):
            return checked_rows(self.path, side_by_side((self.path, 2)), ("sentence1", "sentence2"))
        return open_as(self.path, self.kind).rows

    def texts(self) -> tuple[list[str], dict[str, Any]]:
        """The texts, and how many rows were read, kept and skipped."""
        texts, skipped, kept = [], [], 0
        for row in self.rows():
            if isinstance(row, Skipped):
                skipped.append({"line": row.line, "why": row.why})
            else:
                kept += 1
                texts += [_LINE_FEEDS.sub(" ", text) for text in row.texts]
        counts = {"read": kept + len(skipped), "kept": kept, "skipped": skipped, "texts": len(texts)}
        return texts, {"split": self.split, **counts}


@dataclass
class Corpus:
    """The files of some sources, the test files of the same sources, and the names of missing files."""

    files: list[File] = field(default_factory=list)
    tests: list[Path] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def find_texts(sources: Sequence[str], data: Path) -> Corpus:
    """The files of some sources in their order. `UserError` for a source that is not there, or without a file."""
    found = Corpus()
    for name in sources:
        one = _source(name, data)
        found.files += one.files
        found.tests += [path for path in one.tests if path.is_file()]
        found.absent += one.absent
    for file in found.files:
        present(file.path)
    return found


def gather_texts(
    corpus: Corpus, seed: int, limit: int = 0, *, keep_duplicates: bool = False
) -> tuple[list[str], Facts]:
    """The first appearance of each text, `limit` of them by seed (0: all), in file order, and what is said of them.

    A smaller sample of the same seed is part of a larger one. `keep_duplicates` keeps every appearance, as ConSERT's
    89,192 texts do. The facts say for each file what was read and skipped, how many texts were duplicates, and
    `transductive`: whether a test file was read. `also_in_test` counts the kept texts that, up to case, blanks and
    punctuation, are in a test file of the same source, by its folder and over all: a train file is no promise, as
    STS-B's was drawn from STS12-16. Raises `UserError` where the files hold no text.
    """
    read = [file.texts() for file in corpus.files]
    texts = [text for found, _ in read for text in found]
    if not texts:
        raise UserError(f"{', '.join(str(file.path) for file in corpus.files)}: no text")
    distinct = list(dict.fromkeys(texts))
    kept = sample(texts if keep_duplicates else distinct, seed, limit)
    tests: dict[str, set[str]] = {}
    for path in corpus.tests:
        tests.setdefault(path.parent.name, set()).update(map(key, File(path, "test").texts()[0]))
    plain = [key(text) for text in kept]
    also = {folder: sum(text in there for text in plain) for folder, there in tests.items()}
    every = set().union(*tests.values())
    return kept, {
        "files": [account for _, account in read],
        "texts": len(texts),
        "duplicates": len(texts) - len(distinct),
        "distinct": len(distinct),
        "duplicates_kept": keep_duplicates,
        "limit": limit,
        "kept": len(kept),
        "order": "file order",
        "transductive": any(file.split == "test" for file in corpus.files),
        "also_in_test": also | {"any": sum(text in every for text in plain)},
    }


def sample(texts: list[str], seed: int, limit: int) -> list[str]:
    """A random sample of `limit` texts in their order; all of them for 0."""
    if not 0 < limit < len(texts):
        return texts
    drawn = numpy_generator(seed, "corpus").permutation(len(texts))[:limit]
    return [texts[i] for i in sorted(drawn.tolist())]


def _source(name: str, data: Path) -> Corpus:
    if name in ("sts", "sts-train"):
        try:
            base = senteval.root(data)
        except UserError as error:
            raise UserError(f"--texts {name}: {error}") from None
        every = _english(base)
        tests = [file.path for file in every if file.split == "test"]
        if name == "sts":
            return Corpus(every, tests)
        extra = sorted((base / "STS" / "STS12-en-train").glob("STS.input.*.txt"))
        train = [*(File(path, "train") for path in extra), *(file for file in every if file.split == "train")]
        return Corpus(train, tests, [] if extra else ["STS12 train"])
    if name == "chinese":
        found = chinese_files(data)
        train = [File(path, split) for (_, split), path in found.items() if split == "train"]
        if not train:
            raise UserError(
                f"--texts chinese: {_chinese_folder(data)}: no train file in {', '.join(CHINESE)}; "
                f"python data/get_data.py chinese fetches them into data/"
            )
        absent = [f"{one} train" for one in CHINESE if (one, "train") not in found]
        return Corpus(train, [path for (_, split), path in found.items() if split == "test"], absent)
    if not Path(name).is_file():
        near = suggestion(name, SOURCES)
        raise UserError(f"--texts: {name!r} is neither {', '.join(SOURCES)} nor a file{near}")
    return Corpus([File(Path(name), "text", "lines")])


def _english(base: Path) -> list[File]:
    """In ConSERT's order."""
    found = [
        File(base / folder / f"STS.input.{subset}.txt", "test")
        for folder, subsets in senteval.STS.values()
        for subset in subsets
    ]
    benchmark = next((base / name for name in senteval.STSB if (base / name).is_dir()), base / senteval.STSB[0])
    found += [File(benchmark / f"sts-{split}.csv", split) for split in ("train", "dev", "test")]
    return found + [File(base / "SICK" / name, split) for split, name in senteval.SICK.items()]


def chinese_files(data: Path) -> dict[tuple[str, str], Path]:
    """The file of each split (train, dev, test) of each Chinese set that is there, by set and split.

    Where a folder has a split in two forms it is the last by name.
    """
    base = _chinese_folder(data)
    found: dict[tuple[str, str], Path] = {}
    for name, folders in CHINESE.items():
        for path in (path for folder in reversed(folders) for path in sorted((base / folder).glob("*"))):
            split = next((split for word, split in _SPLITS.items() if word in path.stem.lower()), "")
            if split and path.suffix in _TABLES:
                found[name, split] = path
    return found


def _chinese_folder(data: Path) -> Path:
    return data / "zh" if (data / "zh").is_dir() else data
