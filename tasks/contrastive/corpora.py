"""Unlabelled texts, and the corpora that stage one knows by name.

| `--texts` | unlabelled texts |
|---|---|
| `sts` | ConSERT's: every pair of STS12-16, STS-B and SICK, train, dev and test: transductive |
| `sts-train` | STS-B train, SICK train and, if present, STS12 train (`STS/STS12-en-train`) |
| `chinese` | EdaCSE's: the train files of ATEC, BQ, LCQMC, PAWS-X and STS-B under `zh/`, those that are there |
| a path | any file, one sentence a line |
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import data_path, require_file, sha256_of
from minbert.token_cache import ReaderReport, Row
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.plan import random_subset
from minbert.train.settings import DataSettings, flag, names_in
from minbert.train.start import InitialEncoder
from tasks.contrastive.data import TrainingRows, cache_rows, file_of
from tasks.examples import Examples
from tasks.readers import chinese, kind_of, open_as, senteval, text_key

SOURCES = ("sts", "sts-train", "chinese")
"""The names of texts that need no path."""
_BLOCK = 4096  # texts that the tokenizer takes at once


@dataclass(frozen=True)
class TextSettings(DataSettings):
    """The texts to train on."""

    texts: str = flag(
        "",
        "unlabelled texts: sts, sts-train, chinese, or files of one sentence a line, comma-separated",
        metavar="NAMES|FILES",
    )
    keep_duplicates: bool = flag(False, "keep duplicates among the texts")


@dataclass(frozen=True)
class TextFile:
    """One file of texts; `split` is train, dev, test, or text for a file without splits."""

    path: Path
    split: str
    kind: str = "pair-score"

    def texts(self) -> tuple[list[str], dict[str, Any]]:
        """The texts, and how many rows were read, kept and skipped.

        Reads rows of STS12 to 16 without a gold score too; in STS15 and 16 most rows have none.
        """
        kind = "pair" if senteval.is_sts_input(self.path) else self.kind
        data = open_as(self.path, kind)
        texts: list[str] = []
        for row in data.rows:
            texts += row.texts
        counts = {
            "read": len(data.rows) + len(data.skipped),
            "kept": len(data.rows),
            "skipped": [issue.manifest_entry() for issue in data.skipped],
            "texts": len(texts),
        }
        return texts, {"split": self.split, **counts}


@dataclass
class Corpus:
    """The files of some sources, the test files of the same sources, and the names of missing files."""

    files: list[TextFile] = field(default_factory=list)
    tests: list[Path] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def find_texts(texts: str, data: str) -> Corpus:
    """The files of the sources that `--texts` names, in order; `data` is the data folder as `--data` gives it.

    Raises `UserError` for a source that is unknown or has no file.
    """
    names = names_in(texts)
    if not names:
        raise UserError(f"--texts: name {', '.join(SOURCES)}, or files of one sentence a line")
    corpus = Corpus()
    for name in names:
        source = _source(name, data)
        corpus.files += source.files
        corpus.tests += [path for path in source.tests if path.is_file()]
        corpus.absent += source.absent
    for file in corpus.files:
        require_file(file.path)
    return corpus


def _source(name: str, data: str) -> Corpus:
    if name in ("sts", "sts-train"):
        return _english(name, data_path(data))
    if name == "chinese":
        return _chinese(data_path(data))
    path = file_of(name, SOURCES, "--texts")
    kind_of(path, ("lines",))  # a table is an error
    return Corpus([TextFile(path, "text", "lines")])


def _chinese(data: Path) -> Corpus:
    """The train files of the Chinese sets."""
    files = chinese.files(data)
    corpus = Corpus()
    for (_, split), path in files.items():
        if split == "train":
            corpus.files.append(TextFile(path, split))
        elif split == "test":
            corpus.tests.append(path)
    if not corpus.files:
        raise UserError(
            f"--texts chinese: {chinese.folder(data)}: no train file in {', '.join(chinese.FOLDERS)}; "
            f"python data/get_data.py chinese fetches them into data/"
        )
    corpus.absent = [f"{name} train" for name in chinese.FOLDERS if (name, "train") not in files]
    return corpus


def _english(name: str, data: Path) -> Corpus:
    """STS12 to 16, STS-B and SICK, in ConSERT's order; for `sts-train` their train files."""
    base = senteval.root(data)
    subsets = [(year, "test") for year in senteval.STS]
    for corpus in ("STS-B", "SICK"):
        subsets += [(corpus, split) for split in ("train", "dev", "test")]
    files = []
    for corpus, split in subsets:
        files += [TextFile(path, split) for path in senteval.scored_files(base, corpus, split).values()]
    tests = [file.path for file in files if file.split == "test"]
    if name == "sts":
        return Corpus(files, tests)
    # not one of SentEval's sets: its STS12 is the test split alone
    sts12 = sorted((base / "STS" / "STS12-en-train").glob("STS.input.*.txt"))
    train = [TextFile(path, "train") for path in sts12]
    train += [file for file in files if file.split == "train"]
    return Corpus(train, tests, [] if sts12 else ["STS12 train"])


def read_texts(corpus: Corpus, options: TextSettings, seed: int, encoder: InitialEncoder) -> TrainingRows:
    """A sample of `--limit` texts, by seed, of the `corpus` that `find_texts` gives for these options."""
    limit = options.limit
    tokenizer = encoder.tokenizer

    # lazy, as a cache hit reads nothing
    def rows() -> Iterator[Row | ReaderReport]:
        kept, report = gather_texts(corpus, tokenizer, seed, limit, keep_duplicates=options.keep_duplicates)
        for number, text in enumerate(kept, start=1):
            yield Row(str(number), (text,))
        yield report

    tests = [path.name for path in corpus.tests]
    # the seed changes the texts only if a sample is drawn
    rule = [
        "texts distinct by token ids",
        *names_in(options.texts),
        seed if limit else "",
        limit,
        options.keep_duplicates,
        *corpus.absent,
        *tests,
    ]
    paths = [file.path for file in corpus.files]
    # the usual digest of an STS file covers its gold file too, whose scores are not read here
    cache, hashes = cache_rows(paths, rows(), rule, tokenizer, further=corpus.tests, digest=sha256_of)
    files = []
    skipped = []
    for file, counts in zip(hashes, cache.report["files"], strict=True):
        files.append({**file, **counts})
        skipped += [{"file": Path(file["file"]).name, **row} for row in counts["skipped"]]
    entry = {**cache.report, "files": files, "absent": corpus.absent, "skipped": skipped}
    if entry["transductive"]:
        distributed.note("the texts hold test sentences (transductive), which the manifest and the report say as well")
    if corpus.absent:
        distributed.note(f"--texts {options.texts}: without {', '.join(corpus.absent)}, not found in the data")
    return TrainingRows(Examples(cache, tokenizer, encoder.max_length), entry)


def gather_texts(
    corpus: Corpus, tokenizer: Tokenizer, seed: int, limit: int = 0, *, keep_duplicates: bool = False
) -> tuple[list[str], ReaderReport]:
    """The first appearance of each text, `limit` of them by seed (0: all), in file order, and a report on them.

    Texts with the same token ids, such as those that differ in letter case alone, are one text to the encoder.
    A smaller sample of the same seed is part of a larger one. `keep_duplicates` keeps every appearance, as ConSERT's
    89,192 texts do. The report holds, for each file, the rows read and skipped; the number of duplicates; and
    `transductive`: whether a test file was read. `also_in_test` counts the kept texts that `any` test file of the same
    sources holds, whatever their case, white space and punctuation: a train file may hold test sentences, as STS-B's
    was sampled from STS12-16.
    """
    texts: list[str] = []
    files = []
    for file in corpus.files:
        texts_of_file, counts = file.texts()
        texts += texts_of_file
        files.append(counts)
    distinct = distinct_texts(texts, tokenizer)
    candidates = texts if keep_duplicates else distinct
    chosen = random_subset(len(candidates), limit, seed, "corpus")
    kept = [candidates[index] for index in chosen.tolist()]
    test_texts: set[str] = set()
    for path in corpus.tests:
        texts_of_file, _ = TextFile(path, "test").texts()
        test_texts.update(map(text_key, texts_of_file))
    return kept, {
        "files": files,
        "texts": len(texts),
        "duplicates": len(texts) - len(distinct),
        "kept": len(kept),
        "transductive": any(file.split == "test" for file in corpus.files),
        "also_in_test": {"any": sum(text_key(text) in test_texts for text in kept)},
    }


def distinct_texts(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    """The first of all texts with the same token ids."""
    spellings = list(dict.fromkeys(texts))
    kept: dict[tuple[int, ...], str] = {}
    # in blocks: the ids of a whole corpus would take much memory
    for begin in range(0, len(spellings), _BLOCK):
        block = spellings[begin : begin + _BLOCK]
        for text, ids in zip(block, tokenizer.encode(block), strict=True):
            kept.setdefault(tuple(ids), text)
    return list(kept.values())
