"""What stage one reads: triplets or labelled pairs to train on, and scored pairs to evaluate on."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from minbert import token_cache
from minbert.errors import UserError
from minbert.files import present, sha256_of, write_atomic
from minbert.token_cache import Row, Skipped
from minbert.tokenizer import Tokenizer
from minbert.training import start
from minbert.training.rundir import manifest_behind
from tasks import readers
from tasks.contrastive import corpus, dev_sets, triplets
from tasks.contrastive.dev_sets import DevSets
from tasks.contrastive.settings import PAIRS, TEXTS, TRIPLETS, ContrastiveSettings
from tasks.examples import Examples, Pair, Single, Triplet
from tasks.readers import lines, nli
from tasks.readers.columns import KINDS
from tasks.readers.records import head

_ORIGINALS = ("snli_1.0/snli_1.0_train.jsonl", "multinli_1.0/multinli_1.0_train.jsonl")


@dataclass(frozen=True)
class Data:
    """Examples to train and to evaluate on, and the account of their files for the manifest."""

    train: Examples
    dev: DevSets
    account: dict[str, Any]

    @property
    def hashes(self) -> dict[str, str]:
        """Hex SHA-256 of what was read, by its role."""
        return {"train": self.train.cache.sha256, "sts_dev": self.dev.sha256}


def check(settings: ContrastiveSettings) -> None:
    """Raises `UserError` where a file is not there or its header cannot be used: nothing is read beyond it."""
    checks = {TRIPLETS: _triplet_files, PAIRS: _pair_files, TEXTS: _check_texts}
    checks[settings.data_kind](settings)
    dev_sets.check(settings.sts_dev, partial(start.data_folder, settings.data))


def read(settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> Data:
    """The data that an objective needs. Raises `UserError` for what is missing or cannot be read."""
    readers_of = {TRIPLETS: _triplets, PAIRS: _pairs, TEXTS: _texts}
    train, account = readers_of[settings.data_kind](settings, tokenizer, length)
    if not len(train):
        raise UserError(f"{train.cache.source}: no usable row")
    dev = dev_sets.read(settings.sts_dev, partial(start.data_folder, settings.data), tokenizer, length)
    if dev.name in ("stsb", "course") and "chinese" in [name.strip() for name in settings.texts.split(",")]:
        start.warn(
            f"--texts chinese: evaluated on English pairs by --sts-dev {dev.name}; --sts-dev zh are Chinese ones"
        )
    if dev.absent:
        start.warn(f"--sts-dev {dev.name}: without {', '.join(dev.absent)}, of which the data has no dev file")
    dev = replace(dev, also_in=dev_sets.also_in(dev, start.data_path(settings.data)))
    files = account["files"]
    named = [(train, files[0]["file"] if len(files) == 1 else "the training texts")]
    for examples, where in (*named, *((one, str(one.cache.source)) for one in dev.pairs.values())):
        cut, texts = examples.truncated(2, joined=False)
        if cut:
            start.warn(f"{where}: {cut:,} of {texts:,} sentences are longer than {length} tokens and are cut")
    if settings.limit > len(train):
        start.warn(f"--limit {settings.limit:,}: there are only {len(train):,} {settings.data_kind}")
    if _transductive(settings.source):
        start.warn(f"--weights {settings.source}: come from a run on test sentences (transductive)")
        account["weights_transductive"] = True
    if settings.data_kind == TEXTS:
        account["dev_pairs_seen"] = _seen(train, dev)
    if account["skipped"]:
        first = account["skipped"][0]
        place = f"{first.get('file', '')} line {first['line']}".strip()
        many = f"{len(account['skipped']):,} rows skipped"
        start.warn(f"{many}, such as {place}, {first['why']} (listed in manifest.json)")
    return Data(train, dev, {"train": account, "sts_dev": dev.account()})


def _triplet_files(settings: ContrastiveSettings) -> tuple[list[Path], str, int]:
    """The files of triplets or of pairs, `triplet` or `nli` by what they hold, and how many texts a triplet has."""
    paths = _files(settings, settings.triplets, "nli", "nli_for_simcse.csv", "nli-triplets.csv")
    ready = [holds_triplets(path, settings.columns) for path in paths]
    for path, triple in zip(paths, ready, strict=True):
        if not triple and not settings.columns:
            _demand_pairs(path)
    if len(set(ready)) > 1:
        raise UserError(f"--triplets: {paths[ready.index(True)]} holds triplets and {paths[ready.index(False)]} pairs")
    kind = "triplet" if ready[0] else "nli"
    for path in paths:
        _opened(kind, settings.columns, path)
    columns = _columns(paths, settings.columns) if ready[0] else 3
    if columns == 2 and settings.objective != "nt-xent":
        raise UserError(f"{paths[0]}: --objective {settings.objective} needs hard negatives, and these rows have none")
    if columns == 2 and settings.hard_weight:
        raise UserError(f"{paths[0]}: --hard-weight needs hard negatives, and these rows have none")
    if columns == 2 and settings.by_cosine:
        raise UserError(
            f"{paths[0]}: rows without a hard negative have no gap for --technique {settings.technique}; "
            f"choose length or rarity, or --order none or random"
        )
    if columns == 2 and settings.metric == "accuracy":
        raise UserError(f"{paths[0]}: --metric accuracy needs hard negatives, and these rows have none")
    return paths, kind, columns


def _triplets(settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> tuple[Examples, dict[str, Any]]:
    paths, kind, columns = _triplet_files(settings)
    rule = "" if kind == "triplet" else settings.per_premise
    reader = partial(_opened, kind, settings.columns)
    along = [sha256_of(other) for path in paths for other in readers.companions(path)]
    made, account = triplets.gather(paths, reader, " ".join([kind, settings.columns, *along]), rule, columns=columns)
    cache = token_cache.load(made, nli.triplets, "triplets", columns, tokenizer)
    return Triplet(cache, tokenizer.cls, tokenizer.sep, length), account


def _pair_files(settings: ContrastiveSettings) -> list[Path]:
    paths = _files(settings, settings.nli_pairs, "nli", "nli-pairs.tsv", *_ORIGINALS)
    if not settings.nli_pairs and paths[0].name != "nli-pairs.tsv":
        there = (paths[0].parent.parent / name for name in _ORIGINALS)
        paths = [path for path in there if path.is_file()]
    for path in paths:
        _opened("nli", settings.columns, path)
    return paths


def _pairs(settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> tuple[Examples, dict[str, Any]]:
    paths = _pair_files(settings)
    also = [path for one in paths for path in (one, *readers.companions(one))][1:]
    names = " ".join(path.name for path in paths) if len(paths) > 1 else ""  # ids hold them
    reader = partial(_labelled, paths, settings.columns)
    cache = token_cache.load(paths[0], reader, f"nli {settings.columns}{names}", 2, tokenizer, also=also)
    account = cache.account() | {"files": [{"file": str(path), "sha256": readers.digest(path)} for path in paths]}
    del account["file"], account["sha256"]
    return Pair(cache, tokenizer.cls, tokenizer.sep, length), account


def _labelled(paths: list[Path], columns: str, _: Path) -> Iterator[Row | Skipped]:
    """The labelled pairs of all files; where there are several, ids and reasons begin with the file's name."""
    for path in paths:
        name = f"{path.name}:" if len(paths) > 1 else ""
        for row in _opened("nli", columns, path):
            if isinstance(row, Skipped):
                yield replace(row, why=f"{name} {row.why}".strip())
            else:
                yield replace(row, id=f"{name}{row.id}")


def _text_sources(settings: ContrastiveSettings) -> tuple[list[str], Path]:
    """The names in `--texts`, and the data folder, which files of one's own do not need."""
    sources = [name.strip() for name in settings.texts.split(",") if name.strip()]
    own = all(Path(name).is_file() for name in sources)
    return sources, Path() if own else start.data_folder(settings.data)


def _check_texts(settings: ContrastiveSettings) -> None:
    corpus.check(*_text_sources(settings))


def _texts(settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> tuple[Examples, dict[str, Any]]:
    sources, folder = _text_sources(settings)
    found = corpus.gather(
        sources, data=folder, seed=settings.seed, limit=settings.limit,
        keep_duplicates=settings.keep_duplicates,
    )  # fmt: skip
    content = "".join(f"{text}\n" for text in found.texts).encode()
    path = token_cache.default_folder() / "corpora" / f"{hashlib.sha256(content).hexdigest()[:32]}.txt"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    if found.account["transductive"]:
        start.warn("the texts hold test sentences (transductive), which the manifest and the report say as well")
    if found.account["absent"]:
        start.warn(f"--texts {settings.texts}: without {', '.join(found.account['absent'])}, not found in the data")
    cache = token_cache.load(path, lines.sentences, "lines", 1, tokenizer)
    skipped = [{"file": Path(file["file"]).name, **row} for file in found.account["files"] for row in file["skipped"]]
    return Single(cache, tokenizer.cls, tokenizer.sep, length), found.account | {"skipped": skipped}


def _transductive(source: str) -> bool:
    """Whether the run that an encoder comes from, or one before it, trained on test sentences."""
    folder = Path(source).expanduser()
    behind = manifest_behind(folder) if folder.is_dir() else None  # a name of the hub has no parent
    train = behind[1]["data"].get("train", {}) if behind else {}
    return any(train.get(name) for name in ("transductive", "weights_transductive"))


def _seen(train: Examples, dev: DevSets) -> int:
    """How many pairs to evaluate on are made of training texts; the user is told."""
    texts = [train.cache.text(row, 0) for row in range(len(train))]
    every = 0
    for one in dev.pairs.values():
        seen = corpus.pairs_of(texts, ((one.cache.text(row, 0), one.cache.text(row, 1)) for row in range(len(one))))
        if seen:
            start.warn(
                f"{one.cache.source}: {seen:,} of {len(one):,} pairs are made of training texts (which hold no scores)"
            )
        every += seen
    return every


def _opened(kind: str, columns: str, path: Path) -> Any:
    return readers.open_as(path, kind, columns=columns or None).rows


def holds_triplets(path: Path, columns: str = "") -> bool:
    """Whether a file holds triplets, by its header or by what `--columns` calls its columns; else it holds pairs."""
    if columns:
        return any(part.partition("=")[0].strip() in KINDS["triplet"].texts for part in columns.split(","))
    keys = head(path)[0] if path.is_file() else []
    return _among(keys, nli.TRIPLET["anchor"], nli.TRIPLET["positive"])


def _among(keys: Sequence[str], *names: Sequence[str]) -> bool:
    return all(any(alias in keys for alias in aliases) for aliases in names)


def _demand_pairs(path: Path) -> None:
    """`UserError` where a file for `--triplets` names the texts of neither triplets nor pairs."""
    keys = head(path)[0]
    if not nli.aligned(path) and not _among(keys, nli.COLUMNS["sentence1"], nli.COLUMNS["sentence2"]):
        raise UserError(
            f"{path}:1: the columns {', '.join(map(repr, keys))} are neither triplets (sent0, sent1, hard_neg, or "
            f"anchor, positive, negative) nor labelled pairs (premise, hypothesis, label); say which column is what "
            f"with --columns anchor=...,positive=..."
        )


def _columns(paths: list[Path], columns: str) -> int:
    counts = {readers.open_as(path, "triplet", columns=columns or None).texts for path in paths}
    if len(counts) > 1:
        raise UserError(f"--triplets: of {', '.join(map(str, paths))} some have hard negatives and some have none")
    return counts.pop()


def _files(settings: ContrastiveSettings, given: str, folder: str, *names: str) -> list[Path]:
    paths = [Path(part.strip()) for part in given.split(",") if part.strip()]
    return [present(path) for path in paths] or [readers.find(start.data_folder(settings.data), folder, names)]


def retokenised(examples: Triplet, tokenizer: Tokenizer) -> Triplet:
    """The same triplets in another vocabulary."""
    cache = token_cache.load(examples.cache.source, nli.triplets, "triplets", examples.cache.columns, tokenizer)
    return Triplet(cache, tokenizer.cls, tokenizer.sep, examples.max_length)
