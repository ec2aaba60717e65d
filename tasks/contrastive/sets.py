"""The data sets that stage one knows by name.

| `--texts` | unlabelled texts |
|---|---|
| `sts` | ConSERT's: every pair of STS12-16, STS-B and SICK, train, dev and test: transductive |
| `sts-train` | STS-B train, SICK train and, where it is there, STS12 train (`STS/STS12-en-train`) |
| `chinese` | EdaCSE's: the train files of ATEC, BQ, LCQMC, PAWS-X and STS-B under `zh/`, those that are there |
| a path | any file, one sentence a line |

| `--sts-dev` | scored pairs for evaluation during training | chosen by |
|---|---|---|
| `stsb` | STS-B's own dev set, 1,500 pairs, in SentEval's layout | ConSERT (section 4.1), SimCSE, SBERT's scripts |
| `course` | the course's dev set, 863 pairs of STS-B in the course's own split | |
| `zh` | the Chinese dev sets that are there, of ATEC, BQ, LCQMC, PAWS-X and STS-B | EdaCSE's average, on dev sets |
| a path | any file of scored pairs that `tasks.readers` reads | |
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minbert.errors import UserError, suggestion
from minbert.files import expanded, present
from minbert.seeds import numpy_generator
from minbert.token_cache import Facts, Row, Skipped
from minbert.tokenizer import Tokenizer
from minbert.training import ranks, start
from tasks.contrastive.settings import FileSettings
from tasks.examples import Examples
from tasks.readers import chinese, key, open_as, senteval, tokenised

SOURCES = ("sts", "sts-train", "chinese")
"""The names of texts that need no path."""
DEV_SETS = {
    "stsb": (
        "STS-B's own dev set (STS/STSBenchmark/sts-dev.csv or stsbenchmark/sts-dev.csv, as SentEval has it)",
        "senteval",
    ),
    "course": ("the course's dev set (course/sts-dev.csv)", "course"),
    "zh": (f"a dev file of {', '.join(chinese.FOLDERS)} (in zh/)", "chinese"),
}
"""What `--sts-dev` may name beside a file: what it is, and the set of data/get_data.py that brings it."""
ONE = "sts"
"""The name of a single set in `DevSets.pairs`; the Chinese sets go by their own names."""
_LINE_FEEDS = re.compile(r"[\r\n]+")  # a quoted cell may hold some


@dataclass(frozen=True)
class TextFile:
    """One file that texts are read from; `split` is train, dev, test, or text where it is none of them."""

    path: Path
    split: str
    kind: str = "pair-score"

    def texts(self) -> tuple[list[str], dict[str, Any]]:
        """The texts, and how many rows were read, kept and skipped.

        Of STS12 to 16 rows without a gold score are read too: STS15 and 16 have more of them.
        """
        unscored = self.path.name.startswith("STS.input.")
        rows = open_as(self.path, "pair" if unscored else self.kind).rows
        texts, skipped, kept = [], [], 0
        for row in rows:
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

    files: list[TextFile] = field(default_factory=list)
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


def _source(name: str, data: Path) -> Corpus:
    if name in ("sts", "sts-train"):
        return _english(name, data)
    if name == "chinese":
        found = chinese.files(data)
        train = [TextFile(path, split) for (_, split), path in found.items() if split == "train"]
        if not train:
            raise UserError(
                f"--texts chinese: {chinese.folder(data)}: no train file in {', '.join(chinese.FOLDERS)}; "
                f"python data/get_data.py chinese fetches them into data/"
            )
        absent = [f"{one} train" for one in chinese.FOLDERS if (one, "train") not in found]
        return Corpus(train, [path for (_, split), path in found.items() if split == "test"], absent)
    path = expanded(name)
    if not path.is_file():
        near = suggestion(name, SOURCES)
        raise UserError(f"--texts: {name!r} is neither {', '.join(SOURCES)} nor a file{near}")
    return Corpus([TextFile(path, "text", "lines")])


def _english(name: str, data: Path) -> Corpus:
    """STS12 to 16, STS-B and SICK, in ConSERT's order; for `sts-train` their train files."""
    try:
        base = senteval.root(data)
    except UserError as error:
        raise UserError(f"--texts {name}: {error}") from None
    places = [*((one, "test") for one in senteval.STS), *((one, s) for one in ("STS-B", "SICK") for s in senteval.SICK)]
    every = [TextFile(path, s) for one, s in places for path in senteval.scored_files(base, one, s).values()]
    tests = [file.path for file in every if file.split == "test"]
    if name == "sts":
        return Corpus(every, tests)
    extra = sorted((base / "STS" / "STS12-en-train").glob("STS.input.*.txt"))
    train = [*(TextFile(path, "train") for path in extra), *(file for file in every if file.split == "train")]
    return Corpus(train, tests, [] if extra else ["STS12 train"])


def gather_texts(
    corpus: Corpus, seed: int, limit: int = 0, *, keep_duplicates: bool = False
) -> tuple[list[str], Facts]:
    """The first appearance of each text, `limit` of them by seed (0: all), in file order, and facts about them.

    A smaller sample of the same seed is part of a larger one. `keep_duplicates` keeps every appearance, as ConSERT's
    89,192 texts do. The facts say for each file what was read and skipped, how many texts were duplicates, and
    `transductive`: whether a test file was read. `also_in_test` counts the kept texts that, up to case, blanks and
    punctuation, are in a test file of the same source, by its folder and over all: a train file may
    hold test sentences, as STS-B's was drawn from STS12-16. Raises `UserError` where the files hold no text.
    """
    read = [file.texts() for file in corpus.files]
    texts = [text for found, _ in read for text in found]
    if not texts:
        raise UserError(f"{', '.join(str(file.path) for file in corpus.files)}: no text")
    distinct = list(dict.fromkeys(texts))
    kept = sample(texts if keep_duplicates else distinct, seed, limit)
    tests: dict[str, set[str]] = {}
    for path in corpus.tests:
        tests.setdefault(path.parent.name, set()).update(map(key, TextFile(path, "test").texts()[0]))
    tests["any"] = set().union(*tests.values())
    also = dict.fromkeys(tests, 0)
    for plain in map(key, kept):
        for folder, there in tests.items():
            also[folder] += plain in there
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
        "also_in_test": also,
    }


def sample(texts: list[str], seed: int, limit: int) -> list[str]:
    """A random sample of `limit` texts in their order; all of them for 0."""
    if not 0 < limit < len(texts):
        return texts
    drawn = numpy_generator(seed, "corpus").permutation(len(texts))[:limit]
    return [texts[i] for i in sorted(drawn.tolist())]


@dataclass(frozen=True)
class DevSets:
    """The dev pairs of a run, by set. `name` is that of `--sts-dev`; `also_in` counts pairs by scored set."""

    name: str
    pairs: Mapping[str, Examples]
    absent: tuple[str, ...] = ()
    also_in: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.pairs.values()))

    @property
    def sha256(self) -> str:
        """The hash of the only file, or that of the hashes of all."""
        each = [one.cache.sha256 for one in self.pairs.values()]
        return each[0] if len(each) == 1 else hashlib.sha256(" ".join(each).encode()).hexdigest()

    @property
    def shown(self) -> str:
        """How many pairs of which files, for people to read."""
        if len(self.pairs) == 1:
            (only,) = self.pairs.values()
            named = f" (--sts-dev {self.name})" if self.name in DEV_SETS else ""
            return f"{len(only):,} pairs of {only.cache.source}{named}"
        sets = ", ".join(f"{name} {len(one):,}" for name, one in self.pairs.items())
        return f"{len(self):,} pairs, by the mean over {sets} (--sts-dev {self.name})"

    def account(self) -> dict[str, Any]:
        """For the manifest: what was read of each file, and how many pairs are also in scored sets."""
        about = {"name": self.name, "absent": list(self.absent), "also_in": dict(self.also_in)}
        if len(self.pairs) == 1:
            (only,) = self.pairs.values()
            return only.cache.account() | about
        return about | {"kept": len(self)} | {name: one.cache.account() for name, one in self.pairs.items()}


def find_dev_sets(files: FileSettings) -> tuple[str, dict[str, Path]]:
    """The name that `--sts-dev` says, and the file of each set.

    Raises `UserError` for a set that is not there, with the alternatives, and for a header that cannot be used.
    """
    given = files.sts_dev
    name = given.lower() if given.lower() in DEV_SETS else given
    if name in DEV_SETS:
        folder = start.data_folder(files.data)
        paths = _dev_files(name, folder)
        if not paths:
            raise UserError(_missing(name, folder))
    elif not expanded(given).exists():
        near = suggestion(given, DEV_SETS)
        raise UserError(f"--sts-dev {given}: no such file, and none of the sets {', '.join(DEV_SETS)}{near}")
    else:
        paths = {ONE: present(expanded(given), "--sts-dev")}
    for path in paths.values():
        open_as(path, "pair-score", "dev")
    return name, paths


def read_dev_sets(files: FileSettings, tokenizer: Tokenizer, length: int) -> DevSets:
    """The pairs that `--sts-dev` names. Raises `UserError` as `find_dev_sets` does, and for what cannot be read."""
    name, paths = find_dev_sets(files)
    absent = tuple(one for one in chinese.FOLDERS if one not in paths) if name == "zh" else ()
    if len(paths) == 1:
        paths = {ONE: next(iter(paths.values()))}
    return DevSets(name, {one: _scored_pairs(path, tokenizer, length) for one, path in paths.items()}, absent)


def _scored_pairs(path: Path, tokenizer: Tokenizer, length: int) -> Examples:
    cache = tokenised(path, "pair-score", tokenizer, "dev")
    if not len(cache):
        raise UserError(f"{path}: no usable row")
    return Examples(cache, tokenizer.cls, tokenizer.sep, length)


def also_in(dev: DevSets, folder: Path) -> dict[str, int]:
    """How many of the dev pairs are, in either order, in each scored set of the data folder.

    Two texts are the same by `tasks.readers.key`. The seven English sets and STS-B's dev set are looked into, or for
    `zh` the five Chinese test sets. A set that is there but cannot be read is left out with a warning.
    """
    pairs, found = [pair for one in dev.pairs.values() for pair in pair_keys(one)], {}
    for name, paths in _scored_sets(folder, dev.name).items():
        if not any(path.is_file() for path in paths):
            continue
        try:
            rows = [row for path in paths for row in open_as(present(path), "pair-score").rows]
        except UserError as error:  # a damaged set does not keep an encoder from being trained
            ranks.note(f"{error} (so it is not known how many dev pairs are also in {name})")
            continue
        known = {frozenset(map(key, row.texts)) for row in rows if isinstance(row, Row)}
        found[name] = sum(pair in known for pair in pairs)
    return found


def pair_keys(pairs: Examples) -> list[frozenset[str]]:
    """The texts of each pair, by `tasks.readers.key`, whatever their order."""
    return [frozenset(map(key, row.texts)) for row in pairs.cache.rows()]


def _scored_sets(folder: Path, name: str) -> dict[str, list[Path]]:
    """The files of the scored sets by the names that the STS suite shows; not all of them need exist."""
    if name == "zh":
        tests = {one: path for (one, split), path in chinese.files(folder).items() if split == "test"}
        return {"zh-STS-B" if one == "STS-B" else one: [path] for one, path in tests.items()}
    base = senteval.find_root(folder)
    if base is None:
        return {}
    names = {**dict(zip(senteval.STS, senteval.STS, strict=True)), "SICK-R": "SICK", "STS-B": "STS-B"}
    found = {shown: list(senteval.scored_files(base, one).values()) for shown, one in names.items()}
    return found | ({"STS-B dev": list(_dev_files("stsb", folder).values())} if name != "stsb" else {})


def _dev_files(name: str, data: Path) -> dict[str, Path]:
    """The file of each set that a name of `DEV_SETS` means, those that are there."""
    if name == "zh":
        return {one: path for (one, split), path in chinese.files(data).items() if split == "dev"}
    places = [data / "course" / "sts-dev.csv", data / "sts-dev.csv"]
    if name == "stsb":
        base = senteval.find_root(data)
        places = list(senteval.scored_files(base, "STS-B", "dev").values()) if base else []
    return next(({ONE: path} for path in places if path.is_file()), {})


def _missing(name: str, folder: Path) -> str:
    others = [f"{one} (which is there)" if _dev_files(one, folder) else one for one in DEV_SETS if one != name]
    what, command = DEV_SETS[name]
    return (
        f"--sts-dev {name}: {folder} does not hold {what}; python data/get_data.py {command} fetches the usual files "
        f"into data/; or choose other pairs with --sts-dev: {', '.join(others)}, or a file of scored pairs"
    )
