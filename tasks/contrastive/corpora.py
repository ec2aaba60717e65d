"""What stage one trains on besides triplets, and its dev pairs: unlabelled texts, files of a data folder, the cache.

| `--texts` | unlabelled texts |
|---|---|
| `sts` | ConSERT's: every pair of STS12-16, STS-B and SICK, train, dev and test: transductive |
| `sts-train` | STS-B train, SICK train and, if present, STS12 train (`STS/STS12-en-train`) |
| `chinese` | EdaCSE's: the train files of ATEC, BQ, LCQMC, PAWS-X and STS-B under `zh/`, those that are there |
| a path | any file, one sentence a line |
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from minbert import token_cache
from minbert.errors import UserError, suggestion
from minbert.files import data_folder, data_path, expand_user, require_file, sha256_of
from minbert.seeds import numpy_generator
from minbert.token_cache import Issue, ReaderReport, Row, TokenCache
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.run import InputFiles
from minbert.train.settings import flag, names_in
from minbert.train.start import InitialEncoder
from tasks import readers
from tasks.contrastive import dev
from tasks.contrastive.dev import DevSets
from tasks.examples import Examples
from tasks.manifests import manifests_behind
from tasks.readers import chinese, is_table, open_as, senteval, text_key

SOURCES = ("sts", "sts-train", "chinese")
"""The names of texts that need no path."""


@dataclass(frozen=True)
class TextSettings:
    """Unlabelled texts."""

    texts: str = flag(
        "",
        "unlabelled texts: sts, sts-train, chinese, or files of one sentence a line, comma-separated",
        metavar="NAMES|FILES",
    )
    keep_duplicates: bool = flag(False, "keep duplicates among the texts")


class TrainingRows(NamedTuple):
    """The rows to train on, and the manifest's entry about their files."""

    examples: Examples
    entry: dict[str, Any]


@dataclass(frozen=True)
class Data:
    """Examples to train and to evaluate on, and the manifest's entry about their files."""

    train: Examples
    dev: DevSets
    entry: dict[str, Any]

    @property
    def inputs(self) -> InputFiles:
        """The files and their hashes, by their role."""
        train = " or ".join(file["file"] for file in self.entry["train"]["files"])
        dev = " or ".join(str(examples.cache.source) for examples in self.dev.pairs.values())
        return {"train": (train, self.train.cache.sha256), "sts_dev": (dev, self.dev.sha256)}


def with_dev_pairs(
    rows: TrainingRows, settings: Any, encoder: InitialEncoder, *, noun: str, form: str = "bi", unlabelled: bool = False
) -> Data:
    """The training rows together with the dev pairs that `--sts-dev` names; warns about what a reader should know.

    noun: what the rows are called, such as "triplets".
    form: how a row is read, `bi` (each text by itself) or `cross` (a pair as one input).
    unlabelled: whether the rows are texts without labels, which may hold the texts of dev pairs.
    Raises `UserError` if no row is usable, and as `dev.read` does.
    """
    train, entry = rows
    if not len(train):
        raise UserError(f"{train.cache.source}: no usable row")
    length, limit = encoder.max_length, settings.data.limit
    pairs = dev.read(settings.files, encoder.tokenizer, length, settings.data.limit_eval)
    if settings.training.selects_by_dev:
        pairs = replace(pairs, also_in=dev.count_in_scored_sets(pairs, data_path(settings.files.data)))
    if limit > len(train):
        distributed.note(f"--limit {limit:,}: there are only {len(train):,} {noun}")
    if _transductive(settings.encoder.weights):
        distributed.note(f"--weights {settings.encoder.weights}: come from a run on test sentences (transductive)")
        entry["weights_transductive"] = True
    if unlabelled:
        entry["dev_pairs_seen"] = dev.count_in_training(train, pairs)
    _warn(train, pairs, entry, length, form)
    return Data(train, pairs, {"train": entry, "sts_dev": pairs.manifest_entry()})


def cache_rows(
    paths: Sequence[Path],
    rows: Iterable[Row | Issue | ReaderReport],
    rule: Sequence[object],
    tokenizer: Tokenizer,
    *,
    further: Sequence[Path] = (),
    digest: Callable[[Path], str] = readers.digest,
) -> tuple[TokenCache, list[dict[str, str]]]:
    """The token cache of the rows that a rule makes of several files, and each file with its hash.

    The key covers the rule, the files, and `further` files that the rows depend on.
    """
    entries = [{"file": str(path), "sha256": digest(path)} for path in paths]
    content = [*(file["sha256"] for file in entries), *map(sha256_of, further), *map(str, rule)]
    sha256 = hashlib.sha256("\x1f".join(content).encode()).hexdigest()
    return token_cache.load(paths[0], rows, str(rule[0]), tokenizer, sha256=sha256), entries


def training_files(names: str, data: str, *defaults: str) -> list[Path]:
    """The files of a comma-separated list, or the first of the usual names in the folder `nli` of the data."""
    return [require_file(expand_user(name)) for name in names_in(names)] or [
        readers.find_file(data_folder(data), "nli", defaults)
    ]


def _transductive(source: str) -> bool:
    """Whether the run that an encoder comes from, or one before it, trained on test sentences."""
    folder = expand_user(source)
    behind = manifests_behind(folder) if folder.is_dir() else []  # a name of the hub has no parent
    parts = [manifest["data"].get("train") or {} for _, manifest in behind]
    return any(part.get(name) for part in parts for name in ("transductive", "weights_transductive"))


def _warn(train: Examples, pairs: DevSets, entry: dict[str, Any], length: int, form: str) -> None:
    """Warn about dev sets, truncated inputs and skipped rows; `form` is how the training rows are read."""
    if pairs.absent:
        distributed.note(
            f"--sts-dev {pairs.name}: without {', '.join(pairs.absent)}, of which the data has no dev file"
        )
    if shared := ", ".join(f"{count:,} in {name}" for name, count in pairs.also_in.items() if count):
        distributed.note(f"of the {len(pairs):,} pairs that choose the encoder some are also in scored sets: {shared}")
    sources, skipped = entry["files"], entry["skipped"]
    named = [(train, sources[0]["file"] if len(sources) == 1 else "the training texts", form)]
    named += [(examples, str(examples.cache.source), "bi") for examples in pairs.pairs.values()]
    for examples, source, input_form in named:
        cut, texts = examples.truncated(input_form)
        if cut:
            inputs = "sentences" if input_form == "bi" else "pairs"
            distributed.note(
                f"{source}: {cut:,} of {texts:,} {inputs} are longer than {length} tokens and are truncated"
            )
    if skipped:
        example = f"{skipped[0].get('file', '')} line {skipped[0]['line']}".strip()
        distributed.note(
            f"{len(skipped):,} rows skipped, such as {example}, {skipped[0]['why']} (listed in manifest.json)"
        )


def read_texts(options: TextSettings, settings: Any, encoder: InitialEncoder) -> TrainingRows:
    """A sample of `--limit` texts, by seed. Raises `UserError` for what is missing or holds no text."""
    seed = settings.training.seed
    limit = settings.data.limit
    names = names_in(options.texts)
    corpus = find_texts(names, settings.files.data)

    def rows() -> Iterator[Row | ReaderReport]:
        kept, report = gather_texts(corpus, seed, limit, keep_duplicates=options.keep_duplicates)
        for number, text in enumerate(kept, start=1):
            yield Row(str(number), (text,))
        yield report

    tests = [path.name for path in corpus.tests]
    rule = ["texts", *names, seed if limit else "", limit, options.keep_duplicates, *corpus.absent, *tests]
    paths = [file.path for file in corpus.files]
    tokenizer = encoder.tokenizer
    cache, hashes = cache_rows(paths, rows(), rule, tokenizer, further=corpus.tests, digest=token_cache.digest)
    files = [{**file, **counts} for file, counts in zip(hashes, cache.report["files"], strict=True)]
    entry = {**cache.report, "files": files, "absent": corpus.absent}
    entry["skipped"] = [{"file": Path(file["file"]).name, **row} for file in files for row in file["skipped"]]
    if entry["transductive"]:
        distributed.note("the texts hold test sentences (transductive), which the manifest and the report say as well")
    if corpus.absent:
        distributed.note(f"--texts {options.texts}: without {', '.join(corpus.absent)}, not found in the data")
    return TrainingRows(Examples(cache, tokenizer.cls, tokenizer.sep, encoder.max_length), entry)


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
        unscored = self.path.name.startswith("STS.input.")
        data = open_as(self.path, "pair" if unscored else self.kind)
        texts = [text for row in data.rows for text in row.texts]
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


def find_texts(sources: Sequence[str], data: str) -> Corpus:
    """The files of some sources, in order, those with a name in the data folder `data`, as `--data` gives it.

    Raises `UserError` for a source that is unknown or has no file.
    """
    if not sources:
        raise UserError(f"--texts: name {', '.join(SOURCES)}, or files of one sentence a line")
    corpus = Corpus()
    for name in sources:
        source = _source(name, data)
        corpus.files += source.files
        corpus.tests += [path for path in source.tests if path.is_file()]
        corpus.absent += source.absent
    for file in corpus.files:
        require_file(file.path)
    return corpus


def _source(name: str, data: str) -> Corpus:
    if name in ("sts", "sts-train"):
        return _english(name, data_folder(data))
    if name == "chinese":
        folder = data_folder(data)
        files = chinese.files(folder)
        train = [TextFile(path, split) for (_, split), path in files.items() if split == "train"]
        if not train:
            raise UserError(
                f"--texts chinese: {chinese.folder(folder)}: no train file in {', '.join(chinese.FOLDERS)}; "
                f"python data/get_data.py chinese fetches them into data/"
            )
        absent = [f"{corpus} train" for corpus in chinese.FOLDERS if (corpus, "train") not in files]
        return Corpus(train, [path for (_, split), path in files.items() if split == "test"], absent)
    path = expand_user(name)
    if not path.is_file():
        near = suggestion(name, SOURCES)
        raise UserError(f"--texts: {name!r} is neither {', '.join(SOURCES)} nor a file{near}")
    if is_table(path):
        raise UserError(f"--texts {path}: is a table; a file of texts has one on each line")
    return Corpus([TextFile(path, "text", "lines")])


def _english(name: str, data: Path) -> Corpus:
    """STS12 to 16, STS-B and SICK, in ConSERT's order; for `sts-train` their train files."""
    try:
        base = senteval.root(data)
    except UserError as error:
        raise UserError(f"--texts {name}: {error}") from None
    subsets = [(year, "test") for year in senteval.STS]
    subsets += [(corpus, split) for corpus in ("STS-B", "SICK") for split in senteval.SICK]
    paths = [(path, split) for corpus, split in subsets for path in senteval.scored_files(base, corpus, split).values()]
    files = [TextFile(path, split) for path, split in paths]
    tests = [file.path for file in files if file.split == "test"]
    if name == "sts":
        return Corpus(files, tests)
    extra = sorted((base / "STS" / "STS12-en-train").glob("STS.input.*.txt"))
    train = [*(TextFile(path, "train") for path in extra), *(file for file in files if file.split == "train")]
    return Corpus(train, tests, [] if extra else ["STS12 train"])


def gather_texts(
    corpus: Corpus, seed: int, limit: int = 0, *, keep_duplicates: bool = False
) -> tuple[list[str], ReaderReport]:
    """The first appearance of each text, `limit` of them by seed (0: all), in file order, and a report on them.

    A smaller sample of the same seed is part of a larger one. `keep_duplicates` keeps every appearance, as ConSERT's
    89,192 texts do. The report holds, for each file, the rows read and skipped; the number of duplicates; and
    `transductive`: whether a test file was read. `also_in_test` counts the kept texts that `any` test file of the same
    sources holds, whatever their case, white space and punctuation: a train file may hold test sentences, as STS-B's
    was sampled from STS12-16. Raises `UserError` if the files hold no text.
    """
    contents = [file.texts() for file in corpus.files]
    texts = [text for file_texts, _ in contents for text in file_texts]
    if not texts:
        raise UserError(f"{', '.join(str(file.path) for file in corpus.files)}: no text")
    distinct = list(dict.fromkeys(texts))
    kept = sample(texts if keep_duplicates else distinct, seed, limit)
    tests = {text_key(text) for path in corpus.tests for text in TextFile(path, "test").texts()[0]}
    return kept, {
        "files": [entry for _, entry in contents],
        "texts": len(texts),
        "duplicates": len(texts) - len(distinct),
        "kept": len(kept),
        "transductive": any(file.split == "test" for file in corpus.files),
        "also_in_test": {"any": sum(text_key(text) in tests for text in kept)},
    }


def sample(texts: list[str], seed: int, limit: int) -> list[str]:
    """A random sample of `limit` texts in their order; all of them for 0."""
    if not 0 < limit < len(texts):
        return texts
    chosen = numpy_generator(seed, "corpus").permutation(len(texts))[:limit]
    return [texts[i] for i in sorted(chosen.tolist())]
