"""What stage one reads: the rows that a command trains on, and scored pairs to evaluate on.

| `--sts-dev` | scored pairs for evaluation during training | used by |
|---|---|---|
| `stsb` | STS-B's own dev set, 1,500 pairs, in SentEval's layout | ConSERT (section 4.1), SimCSE, SBERT's scripts |
| `course` | the course's dev set, 863 pairs of STS-B in the course's own split | |
| `zh` | the Chinese dev sets that are there, of ATEC, BQ, LCQMC, PAWS-X and STS-B | EdaCSE's average, on dev sets |
| a path | any file of scored pairs that `tasks.readers` reads | |
| `none` | no pairs: nothing is measured on them, and `--keep last` is needed | |
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from minbert import token_cache
from minbert.errors import UserError, suggestion
from minbert.files import data_path, expand_user, key_hash, sha256_of
from minbert.token_cache import Issue, ReaderReport, Row, TokenCache
from minbert.tokenizer import Tokenizer
from minbert.train import distributed, plan
from minbert.train.run import InputFiles
from minbert.train.settings import names_in
from minbert.train.start import InitialEncoder
from tasks import readers
from tasks.contrastive.settings import NO_PAIRS, FileSettings, StageOneSettings
from tasks.examples import Examples, check_vocabulary, note_truncated
from tasks.manifests import manifests_behind
from tasks.readers import chinese, kind_of, open_as, senteval, text_key, tokenised
from tasks.readers.overlap import ScoredRows

DEV_SETS = {
    "stsb": (
        "STS-B's own dev set (STS/STSBenchmark/sts-dev.csv or stsbenchmark/sts-dev.csv, as SentEval has it)",
        "senteval",
    ),
    "course": ("the course's dev set (course/sts-dev.csv)", "course"),
    "zh": (f"a dev file of {', '.join(chinese.FOLDERS)} (in zh/)", "chinese"),
}
"""Name in `--sts-dev` -> (description, the set of data/get_data.py that fetches it)."""
SINGLE = "sts"
"""The name of a single set in `DevSets.pairs`; the Chinese sets go by their own names."""


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
        """The hash of the only file, or the hash of all files' hashes."""
        hashes = [examples.cache.sha256 for examples in self.pairs.values()]
        if len(hashes) == 1:
            return hashes[0]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()

    @property
    def description(self) -> str:
        """The number of pairs, and their files, for display."""
        if not self.pairs:
            return "no scored pairs (--sts-dev none), so similarity is not measured"
        if len(self.pairs) == 1:
            (only,) = self.pairs.values()
            text = f"{len(only):,} pairs of {only.cache.source}"
            if self.name in DEV_SETS:
                text += f" (--sts-dev {self.name})"
            return text
        sets = ", ".join(f"{name} {len(examples):,}" for name, examples in self.pairs.items())
        return f"{len(self):,} pairs, by the mean over {sets} (--sts-dev {self.name})"

    def manifest_entry(self) -> dict[str, Any]:
        """For the manifest: the rows of each file, and how many pairs are also in scored sets."""
        entry = {"name": self.name, "absent": list(self.absent), "also_in": dict(self.also_in)}
        if len(self.pairs) == 1:
            (only,) = self.pairs.values()
            return only.cache.manifest_entry() | entry
        by_set = {name: pairs.cache.manifest_entry() for name, pairs in self.pairs.items()}
        return entry | {"kept": len(self)} | by_set


class DevFiles(NamedTuple):
    """The name in `--sts-dev`, and the file of each of its sets."""

    name: str
    paths: dict[str, Path]


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
    noun: str  # what the training rows are called, such as "triplets"

    @property
    def inputs(self) -> InputFiles:
        """The files and their hashes, by their role."""
        train = " or ".join(file["file"] for file in self.entry["train"]["files"])
        dev = " or ".join(str(examples.cache.source) for examples in self.dev.pairs.values())
        return {"train": (train, self.train.cache.sha256), "sts_dev": (dev or NO_PAIRS, self.dev.sha256)}


def prepare_data(
    rows: TrainingRows,
    dev: DevFiles,
    options: StageOneSettings,
    encoder: InitialEncoder,
    *,
    noun: str,
    form: str = "bi",
    unlabelled: bool = False,
) -> Data:
    """The rows to train on, `--limit` of them by seed, with the dev pairs, and the manifest's entries of both.

    Warns of skipped and truncated rows, of texts in another language than the vocabulary, and of test sentences among
    the training texts or the dev pairs.

    noun: what the rows are called, such as "triplets".
    form: how a row is read, `bi` (each text by itself) or `cross` (a pair as one input).
    unlabelled: whether the rows are texts without labels, which may hold the texts of dev pairs.
    Raises `UserError` if no row is usable, and as `read_dev_pairs` does.
    """
    train, entry = rows
    files = [file["file"] for file in entry["files"]]
    if not len(train):
        raise UserError(f"{', '.join(files)}: no usable row, so there are no {noun} to train on")
    limit = options.data.limit
    pairs = read_dev_pairs(dev, encoder.tokenizer, encoder.max_length, limit=options.data.limit_eval)
    if options.training.selects_by_dev:
        pairs = replace(pairs, also_in=count_in_scored_sets(pairs, data_path(options.files.data)))
        shared = ", ".join(f"{count:,} in {name}" for name, count in pairs.also_in.items() if count)
        if shared:
            distributed.note(
                f"of the {len(pairs):,} pairs that choose the encoder some are also in scored sets: {shared}"
            )
    if limit > len(train):
        distributed.note(f"--limit {limit:,}: there are only {len(train):,} {noun}")
    # no change for texts: `corpora.read_texts` has drawn as many already
    chosen = plan.random_subset(len(train), limit, options.training.seed, "limit")
    if len(chosen) < len(train):
        # besides the rows of other splits, which the reader has left out
        entry["left_out"] = entry.get("left_out", 0) + len(train) - len(chosen)
    train = replace(train, cache=train.cache.subset(chosen))
    entry["kept"] = len(train)
    if "labelled" in entry:
        entry["labelled"] = len(train)  # rows without a label are skipped
    if comes_from_test_texts(options.encoder.weights):
        distributed.note(f"--weights {options.encoder.weights}: come from a run on test sentences (transductive)")
        entry["weights_transductive"] = True
    # labelled pairs and triplets are of other corpora; texts may be those of the dev pairs
    if unlabelled:
        entry["dev_pairs_seen"] = count_in_training(train, pairs)
    source = files[0] if len(files) == 1 else "the training texts"
    check_vocabulary(source, train, allow=options.data.allow_unknown)
    note_truncated(source, train, form)
    for examples in pairs.pairs.values():
        dev_source = str(examples.cache.source)
        check_vocabulary(dev_source, examples, allow=options.data.allow_unknown)
        note_truncated(dev_source, examples, "bi")
    skipped = entry["skipped"]
    if skipped:
        example = f"{skipped[0].get('file', '')} line {skipped[0]['line']}".strip()
        reason = skipped[0]["why"]
        distributed.note(
            f"{source}: {len(skipped):,} rows skipped, such as {example}, {reason} (listed in manifest.json)"
        )
    return Data(train, pairs, {"train": entry, "sts_dev": pairs.manifest_entry()}, noun)


def comes_from_test_texts(source: str) -> bool:
    """Whether the run that an encoder comes from, or one before it, trained on test sentences."""
    folder = expand_user(source)
    if not folder.is_dir():  # a name of the hub has no run behind it
        return False
    for _, manifest in manifests_behind(folder):
        train = manifest["data"].get("train") or {}
        if train.get("transductive") or train.get("weights_transductive"):
            return True
    return False


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
    files = [{"file": str(path), "sha256": digest(path)} for path in paths]
    key = key_hash([*(file["sha256"] for file in files), *map(sha256_of, further), *rule])
    return token_cache.load(paths[0], rows, str(rule[0]), tokenizer, sha256=key), files


def training_files(names: str, data: str, *defaults: str) -> list[Path]:
    """The files of a comma-separated list, or the first of the usual names in the folder `nli` of the data."""
    if names_in(names):
        return [expand_user(name) for name in names_in(names)]
    return [readers.find_file(data_path(data), "nli", defaults)]


def file_of(word: str, names: Sequence[str], flag: str) -> Path:
    """The path in a flag that takes one of `names` or a file. Raises `UserError` if there is no such file."""
    path = expand_user(word)
    if not path.is_file():
        raise UserError(f"{flag} {word}: no such file, and not one of {', '.join(names)}{suggestion(word, names)}")
    return path


def find_dev_pairs(files: FileSettings) -> DevFiles:
    """The files of `--sts-dev`.

    Raises `UserError` for a set that is missing, with the alternatives, and for a header that cannot be used.
    """
    choice = files.sts_dev
    if choice == NO_PAIRS:
        return DevFiles(choice, {})
    name = choice
    if choice.lower() in DEV_SETS:
        name = choice.lower()
        folder = data_path(files.data)
        paths = _dev_files(name, folder)
        if not paths:
            raise UserError(_missing(name, folder))
    else:
        paths = {SINGLE: file_of(choice, [*DEV_SETS, NO_PAIRS], "--sts-dev")}
    # a wrong header is found here, before the encoder is loaded
    for path in paths.values():
        kind_of(path, ("pair-score",), "dev")
    return DevFiles(name, paths)


def read_dev_pairs(files: DevFiles, tokenizer: Tokenizer, length: int, *, limit: int = 0) -> DevSets:
    """The pairs of some dev files, `limit` of each set (0: all), the same ones in every run.

    Warns of Chinese sets that are missing. Raises `UserError` for what cannot be read.
    """
    name, paths = files
    absent: tuple[str, ...] = ()
    if name == "zh":
        absent = tuple(corpus for corpus in chinese.FOLDERS if corpus not in paths)
    if absent:
        distributed.note(f"--sts-dev {name}: without {', '.join(absent)}, of which the data has no dev file")
    if len(paths) == 1:
        paths = {SINGLE: next(iter(paths.values()))}
    pairs = {}
    for dev_set, path in paths.items():
        cache = tokenised(path, "pair-score", tokenizer, "dev")
        # by seed 0 and not by --seed, so that runs with other seeds are scored on the same pairs
        cache = cache.subset(plan.random_subset(len(cache), limit, 0, "limit", dev_set, "dev"))
        pairs[dev_set] = Examples(cache, tokenizer, length)
    return DevSets(name, pairs, absent)


def count_in_scored_sets(dev: DevSets, folder: Path) -> dict[str, int]:
    """The number of dev pairs that each scored set of the data folder holds, in either order.

    Texts are compared as in `tasks.readers.overlap`. The scored sets are the seven English ones and STS-B's dev set, or
    for `zh` the five Chinese test sets. A set that cannot be read is left out with a warning.
    """
    dev_texts = []
    for examples in dev.pairs.values():
        dev_texts += [row.texts for row in examples.cache.rows()]
    dev_pairs = ScoredRows({dev.name: dev_texts})
    counts = {}
    for name, paths in _scored_sets(folder, dev.name).items():
        if not any(path.is_file() for path in paths):
            continue
        scored = []
        try:
            for path in paths:
                scored += open_as(path, "pair-score").rows
        except UserError as error:  # a damaged set does not keep an encoder from being trained
            distributed.note(f"{error} (so it is not known how many dev pairs are also in {name})")
            continue
        numbers = dev_pairs.numbers_in(row.texts for row in scored)
        counts[name] = dev_pairs.overlap(dev.name, numbers).same
    return counts


def count_in_training(train: Examples, dev: DevSets) -> int:
    """The number of dev pairs whose texts are both training texts; warns about them."""
    # a pair counts if both texts are known: one alone says nothing of their similarity
    trained = {text_key(train.cache.text(row, 0)) for row in range(len(train))}
    total = 0
    for examples in dev.pairs.values():
        count = 0
        for row in examples.cache.rows():
            count += trained.issuperset(map(text_key, row.texts))
        if count:
            distributed.note(
                f"{examples.cache.source}: {count:,} of {len(examples):,} pairs are made of training texts (which hold "
                "no scores)"
            )
        total += count
    return total


def _scored_sets(folder: Path, dev_set: str) -> dict[str, list[Path]]:
    """The files of the scored sets by the names that the STS suite shows; not all of them need exist."""
    sets: dict[str, list[Path]] = {}
    if dev_set == "zh":
        for (corpus, split), path in chinese.files(folder).items():
            if split == "test":
                sets["zh-STS-B" if corpus == "STS-B" else corpus] = [path]
        return sets
    base = senteval.find_root(folder)
    if base is None:
        return sets
    for corpus in (*senteval.STS, "SICK", "STS-B"):
        sets["SICK-R" if corpus == "SICK" else corpus] = list(senteval.scored_files(base, corpus).values())
    if dev_set != "stsb":
        sets["STS-B dev"] = list(_dev_files("stsb", folder).values())
    return sets


def _dev_files(name: str, data: Path) -> dict[str, Path]:
    """The existing files of a name of `DEV_SETS`, by set."""
    if name == "zh":
        return {corpus: path for (corpus, split), path in chinese.files(data).items() if split == "dev"}
    path = None
    if name == "course":
        path = readers.find_optional_file(data, "course", ["sts-dev.csv"])
    elif base := senteval.find_root(data):
        (path,) = senteval.scored_files(base, "STS-B", "dev").values()
    if path is None or not path.is_file():
        return {}
    return {SINGLE: path}


def _missing(name: str, folder: Path) -> str:
    """The message for a set of `DEV_SETS` that the folder does not hold."""
    alternatives = []
    for alternative in DEV_SETS:
        if alternative == name:
            continue
        if _dev_files(alternative, folder):
            alternative += " (which is there)"
        alternatives.append(alternative)
    needed, command = DEV_SETS[name]
    return (
        f"--sts-dev {name}: {folder} does not hold {needed}; python data/get_data.py {command} fetches the usual files "
        f"into data/; or choose other pairs with --sts-dev: {', '.join(alternatives)}, "
        "a file of scored pairs, or none (with --keep last)"
    )
