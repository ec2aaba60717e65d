"""Unlabelled texts from files: every text counted, duplicates dropped, a sample drawn by seed, in file order.

| source | texts |
|---|---|
| `sts` | ConSERT's: every pair of STS12-16, STS-B and SICK, train, dev and test: transductive |
| `sts-train` | STS-B train, SICK train and, where it is there, STS12 train (`STS/STS12-en-train`) |
| `chinese` | EdaCSE's: the train files of ATEC, BQ, LCQMC, PAWS-X and STS-B under `zh/`, those that are there |
| a path | any file, one sentence a line |
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import present, sha256_of
from minbert.seeds import numpy_generator
from minbert.token_cache import Row, Skipped
from tasks.readers import chinese, lines, senteval
from tasks.readers.records import records
from tasks.readers.rows import rows
from tasks.readers.texts import key

_PAIR = ("sentence1", "sentence2")
CHINESE = {"ATEC": ("ATEC", "ATEC_CCKS"), **{name: (name,) for name in ("BQ", "LCQMC", "PAWS-X", "STS-B")}}
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "test": "test"}  # word in a file's name -> split
_TABLES = (".csv", ".tsv", ".txt", ".data")
_LINE_FEEDS = re.compile(r"[\r\n]+")  # a quoted cell may hold some; the texts go into a file of one sentence a line


@dataclass(frozen=True)
class File:
    """One file that texts are read from; `split` is train, dev, test, or text where it is none of them."""

    path: Path
    split: str
    read: Callable[[Path], Iterator[Row | Skipped]]


@dataclass(frozen=True)
class Source:
    """The files of a source, the test files that would ideally share no text with it, and what it lacks."""

    files: list[File]
    tests: list[File]
    absent: list[str]


@dataclass(frozen=True)
class Corpus:
    """Texts in file order, and the account of them for the manifest.

    The account says for each file what was read and skipped, which sets of a source are `absent`, how many texts stood
    twice, and `transductive`: whether a test file was read. `also_in_test` counts the kept texts that, up to case,
    blanks and punctuation, stand in a test file of the same source, by its folder (where it is there) and over all: a
    train file is no promise, as STS-B's was drawn from STS12-16.
    """

    texts: tuple[str, ...]
    account: dict[str, Any]


def gather(sources: Sequence[str], *, data: Path, seed: int, limit: int = 0, keep_duplicates: bool = False) -> Corpus:
    """The texts of some sources, the first appearance of each, `limit` of them by seed (0: all), in file order.

    A smaller sample of the same seed is part of a larger one. `keep_duplicates` keeps every appearance, as ConSERT's
    89,192 texts do. Raises `UserError` for a source that is not there.
    """
    chosen = [_source(name, data) for name in sources]
    texts: list[str] = []
    accounts = []
    for file in (file for source in chosen for file in source.files):
        found, account = _read(file)
        accounts.append(account)
        texts += found
    if not texts:
        raise UserError(f"--texts {','.join(sources)}: the files hold no text")
    distinct = tuple(dict.fromkeys(texts))
    kept = sample(tuple(texts) if keep_duplicates else distinct, seed, limit)
    account = {
        "sources": list(sources),
        "files": accounts,
        "absent": [name for source in chosen for name in source.absent],
        "texts": len(texts),
        "duplicates": len(texts) - len(distinct),
        "distinct": len(distinct),
        "duplicates_kept": keep_duplicates,
        "limit": limit,
        "kept": len(kept),
        "order": "file order",
        "transductive": any(one["split"] == "test" for one in accounts),
        "also_in_test": _overlap(kept, [one for source in chosen for one in source.tests if one.path.is_file()]),
    }
    return Corpus(kept, account)


def check(sources: Sequence[str], data: Path) -> None:
    """Raises `UserError` where a source, or a file of one, is not there."""
    for source in (_source(name, data) for name in sources):
        for file in source.files:
            present(file.path)


def sample(texts: tuple[str, ...], seed: int, limit: int) -> tuple[str, ...]:
    """`limit` of the texts, each set of them equally likely, in their order; all of them for 0."""
    if limit < 0:
        raise UserError(f"--limit {limit}: the number of texts cannot be negative")
    if not 0 < limit < len(texts):
        return texts
    drawn = numpy_generator(seed, "corpus").permutation(len(texts))[:limit]
    return tuple(texts[i] for i in sorted(drawn.tolist()))


def pairs_of(texts: Iterable[str], pairs: Iterable[Sequence[str]]) -> int:
    """How many of the pairs have both their texts among `texts`, up to case, blanks and punctuation."""
    known = {key(text) for text in texts}
    return sum(all(key(text) in known for text in pair) for pair in pairs)


def _source(name: str, data: Path) -> Source:
    if name in ("sts", "sts-train"):
        try:
            base = senteval.root(data)
        except UserError as error:
            raise UserError(f"--texts {name}: {error}") from None
        every = _english(base)
        tests = [file for file in every if file.split == "test"]
        if name == "sts":
            return Source(every, tests, [])
        extra = sorted((base / "STS" / "STS12-en-train").glob("STS.input.*.txt"))
        train = [file for file in every if file.split == "train"]
        return Source(
            [File(path, "train", _unscored) for path in extra] + train, tests, [] if extra else ["STS12 train"]
        )
    if name == "chinese":
        found = chinese_files(data)
        if not any(split == "train" for _, split in found):
            raise UserError(
                f"--texts chinese: {_chinese_folder(data)}: no train file in {', '.join(CHINESE)}; "
                f"python data/get_data.py chinese fetches them into data/"
            )
        absent = [f"{one} train" for one in CHINESE if (one, "train") not in found]
        every = [File(path, split, chinese.pairs) for (_, split), path in found.items()]
        files, tests = ([file for file in every if file.split == split] for split in ("train", "test"))
        return Source(files, tests, absent)
    if not Path(name).is_file():
        raise UserError(f"--texts: {name!r} is neither sts, sts-train, chinese nor a file")
    return Source([File(Path(name), "text", lines.sentences)], [], [])


def _english(base: Path) -> list[File]:
    """In ConSERT's order."""
    found = [
        File(base / folder / f"STS.input.{subset}.txt", "test", _unscored)
        for folder, subsets in senteval.STS.values()
        for subset in subsets
    ]
    benchmark = next((base / name for name in senteval.STSB if (base / name).is_dir()), base / senteval.STSB[0])
    found += [File(benchmark / f"sts-{split}.csv", split, senteval.stsb) for split in ("train", "dev", "test")]
    return found + [File(base / "SICK" / name, split, senteval.sick) for split, name in senteval.SICK.items()]


def _unscored(path: Path) -> Iterator[Row | Skipped]:
    """Pairs with or without a gold score: STS15 and 16 have more of the latter."""
    return rows(path, records(path, _PAIR, quotes="none", names=_PAIR), _PAIR)


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


def _read(file: File) -> tuple[list[str], dict[str, Any]]:
    texts: list[str] = []
    skipped: list[dict[str, Any]] = []
    kept = 0
    for row in file.read(file.path):
        if isinstance(row, Skipped):
            skipped.append({"line": row.line, "why": row.why})
        else:
            kept += 1
            texts += [_LINE_FEEDS.sub(" ", text) for text in row.texts]
    account = {"file": str(file.path), "sha256": sha256_of(file.path), "split": file.split, "read": kept + len(skipped)}
    return texts, {**account, "kept": kept, "skipped": skipped, "texts": len(texts)}


def _overlap(texts: Iterable[str], tests: Sequence[File]) -> dict[str, int]:
    known: dict[str, set[str]] = {}
    for file in tests:
        known.setdefault(file.path.parent.name, set()).update(map(key, _read(file)[0]))
    plain = [key(text) for text in texts]
    counts = {folder: sum(text in there for text in plain) for folder, there in known.items()}
    return {**counts, "any": sum(any(text in there for there in known.values()) for text in plain)}
