"""What stage one reads: triplets, labelled pairs or texts to train on, and scored pairs to evaluate on."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minbert import token_cache, weights
from minbert.errors import UserError
from minbert.files import data_path, expanded, present, sha256_of
from minbert.token_cache import Facts, Row, Skipped, TokenCache
from minbert.tokenizer import Tokenizer
from minbert.training import ranks, start
from minbert.training.run import Inputs
from minbert.training.settings import names_in
from tasks import augment, readers
from tasks.contrastive import sets
from tasks.contrastive.sets import DevSets
from tasks.contrastive.settings import PAIRS, TEXTS, TRIPLETS, ContrastiveSettings
from tasks.examples import Examples, Pair
from tasks.manifests import manifests_behind
from tasks.readers import key, senteval
from tasks.readers.layouts import NLI_CLASSES, POLARITIES, Rows

_ORIGINALS = ("snli_1.0/snli_1.0_train.jsonl", "multinli_1.0/multinli_1.0_train.jsonl")
Read = tuple[TokenCache, dict[str, Any]]
"""The rows to train on, and the account of their files for the manifest."""


@dataclass(frozen=True)
class Data:
    """Examples to train and to evaluate on, and the account of their files for the manifest."""

    train: Examples
    dev: DevSets
    account: dict[str, Any]

    @property
    def inputs(self) -> Inputs:
        """The files and their hashes, by their role."""
        train, dev = self.train.cache, next(iter(self.dev.pairs.values())).cache
        return {"train": (train.source, train.sha256), "sts_dev": (dev.source, self.dev.sha256)}


def check(settings: ContrastiveSettings) -> None:
    """Raises `UserError` where a file is not there or its header cannot be used: nothing is read beyond it."""
    {TRIPLETS: _triplet_files, PAIRS: _pair_files, TEXTS: _text_files}[settings.loss.data_kind](settings)
    _phrase_files(settings)
    sets.find_dev_sets(settings.files)


def resources(settings: ContrastiveSettings) -> Inputs:
    """What is read beside the data: WordNet and the weights of `--scorer`, where they are used. Raises `UserError`."""
    found = augment.resources(settings.synonyms, "pretrain", settings.files.data)
    scorer = settings.curriculum.scorer
    if scorer and settings.by_cosine:
        folder = weights.resolve(scorer, "--scorer")
        found["scorer"] = folder, weights.sha256(folder)
    return found


def read(settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> Data:
    """The data that an objective needs. Raises `UserError` for what is missing or cannot be read."""
    reader = {TRIPLETS: _triplets, PAIRS: _pairs, TEXTS: _texts}[settings.loss.data_kind]
    cache, account = reader(settings, tokenizer)
    if not len(cache):
        raise UserError(f"{cache.source}: no usable row")
    rows = Pair if settings.loss.data_kind == PAIRS else Examples
    train = rows(cache, tokenizer.cls, tokenizer.sep, length)
    dev = sets.read_dev_sets(settings.files, tokenizer, length)
    if settings.chooses:
        dev = replace(dev, also_in=sets.also_in(dev, data_path(settings.files.data)))
    if settings.data.limit > len(train):
        ranks.note(f"--limit {settings.data.limit:,}: there are only {len(train):,} {settings.loss.data_kind}")
    if _transductive(settings.encoder.source):
        ranks.note(f"--weights {settings.encoder.source}: come from a run on test sentences (transductive)")
        account["weights_transductive"] = True
    if settings.loss.data_kind == TEXTS:
        account["dev_pairs_seen"] = _seen(train, dev)
    _warn_of_dev(dev, settings)
    _warn_of_rows(train, dev, account, length, "cross" if settings.loss.objective == "cross" else "bi")
    return Data(train, dev, {"train": account, "sts_dev": dev.account()})


def _triplets(settings: ContrastiveSettings, tokenizer: Tokenizer) -> Read:
    paths, kind, columns = _triplet_files(settings)
    names = [path.name for path in paths] if len(paths) > 1 else []
    per_premise = settings.data.per_premise if kind == "nli" else ""

    def merged() -> Iterator[Row | Skipped | Facts]:
        from tasks.contrastive.triplets import checked, from_pairs  # late: pandas is needed without a cache only

        sources = [readers.open_as(path, kind).rows for path in paths]
        made = from_pairs(sources, per_premise, names=names) if per_premise else checked(sources, columns, names=names)
        if not len(made):
            raise UserError(f"{', '.join(map(str, paths))}: no triplet can be made of the rows")
        yield from made.rows()

    rule = ["triplets", kind, per_premise, *names]
    cache, files = _cached(paths, merged(), rule, columns, tokenizer)
    skipped = cache.account()["skipped"]
    return cache, {"files": files, "per_premise": per_premise, **cache.facts, "skipped": skipped}


def _pairs(settings: ContrastiveSettings, tokenizer: Tokenizer) -> Read:
    pairs, phrases = _pair_files(settings), _phrase_files(settings)
    paths = [*pairs, *phrases]
    names = [f"{path.name}:" if len(paths) > 1 else "" for path in paths]  # where there are several, ids begin with it

    judging = _sst_files(settings) if settings.files.phrases == "sst" else []

    def labelled() -> Iterator[Row | Skipped]:
        opened = [readers.open_as(path, "nli").rows for path in pairs]
        opened += [
            _as_pairs(readers.open_as(path, "single", classes=len(POLARITIES)).rows, judging) for path in phrases
        ]
        for rows, name in zip(opened, names, strict=True):
            for row in rows:
                if isinstance(row, Skipped):
                    yield replace(row, why=f"{name} {row.why}".strip())
                else:
                    yield replace(row, id=f"{name}{row.id}")

    rule = ["nli", *names, *(["phrases"] if phrases else [])]
    cache, files = _cached(paths, labelled(), rule, 2, tokenizer, also=judging)
    account = {name: value for name, value in cache.account().items() if name not in ("file", "sha256")}
    return cache, account | {"files": files}


def _sst_files(settings: ContrastiveSettings) -> list[Path]:
    """The course's dev and test file of SST, where they are there: phrases that equal their sentences are skipped."""
    folder, names = start.data_folder(settings.files.data), ("ids-sst-dev.csv", "ids-sst-test-student.csv")
    paths = [next(filter(Path.is_file, (folder / "course" / name, folder / name)), None) for name in names]
    return [path for path in paths if path]


def _as_pairs(rows: Rows, judging: Sequence[Path]) -> Rows:
    """Single texts as pairs without a second text, their classes after those of NLI.

    Those that equal, by `readers.key`, a sentence of the files in `judging` are skipped.
    """
    judged = {
        key(row.texts[0]): path.name
        for path in judging
        for row in readers.open_as(path, "single", "test").rows
        if isinstance(row, Row)
    }
    for row in rows:
        if isinstance(row, Skipped):
            yield row
        elif judged and (name := judged.get(key(row.texts[0]))):
            yield Skipped(row.line, f"equals a sentence of {name}")
        else:
            yield replace(row, texts=(*row.texts, ""), label=len(NLI_CLASSES) + row.label)


def _texts(settings: ContrastiveSettings, tokenizer: Tokenizer) -> Read:
    how, every_seed = settings.data, settings.training.seed
    sources, found = names_in(how.texts), _text_files(settings)

    def drawn() -> Iterator[Row | Facts]:
        kept, said = sets.gather_texts(found, every_seed, how.limit, keep_duplicates=how.keep_duplicates)
        yield from (Row(str(number), (text,)) for number, text in enumerate(kept, 1))
        yield said

    seed, tests = every_seed if how.limit else "", [path.name for path in found.tests]
    rule = ["texts", *sources, seed, how.limit, how.keep_duplicates, *found.absent, *tests]
    paths = [file.path for file in found.files]
    cache, hashes = _cached(paths, drawn(), rule, 1, tokenizer, also=found.tests, digest=token_cache.digest)
    files = [here | one for here, one in zip(hashes, cache.facts["files"], strict=True)]
    account = {"sources": sources, **cache.facts, "files": files, "absent": found.absent}
    account["skipped"] = [{"file": Path(file["file"]).name, **row} for file in files for row in file["skipped"]]
    if account["transductive"]:
        ranks.note("the texts hold test sentences (transductive), which the manifest and the report say as well")
    if found.absent:
        ranks.note(f"--texts {how.texts}: without {', '.join(found.absent)}, not found in the data")
    return cache, account


def _cached(
    paths: Sequence[Path],
    rows: Iterable[Row | Skipped | Facts],
    rule: Sequence[object],
    columns: int,
    tokenizer: Tokenizer,
    *,
    also: Sequence[Path] = (),
    digest: Callable[[Path], str] = readers.digest,
) -> tuple[TokenCache, list[dict[str, str]]]:
    """The cache of what a rule makes of several files, and each file with its hash; the rule is part of its hash."""
    files = [{"file": str(path), "sha256": digest(path)} for path in paths]
    content = [*(file["sha256"] for file in files), *map(sha256_of, also), *map(str, rule)]
    sha256 = hashlib.sha256("\x1f".join(content).encode()).hexdigest()
    return token_cache.load(paths[0], rows, str(rule[0]), columns, tokenizer, sha256=sha256), files


def _triplet_files(settings: ContrastiveSettings) -> tuple[list[Path], str, int]:
    """The files of triplets or of pairs, `triplet` or `nli` by what they hold, and how many texts a triplet has."""
    paths = _files(settings, settings.files.triplets, "nli", "nli_for_simcse.csv", "nli-triplets.csv")
    kinds = [_kind_and_texts(path) for path in paths]
    shown = {("nli", 2): "labelled pairs", ("triplet", 2): "pairs without hard negatives"}
    held = [f"{path} holds {shown.get(found, 'triplets')}" for path, found in zip(paths, kinds, strict=True)]
    if other := next((place for place, found in enumerate(kinds) if found != kinds[0]), 0):
        raise UserError(f"--triplets: {held[0]}, {held[other]}")
    kind, columns = kinds[0][0], 3 if kinds[0][0] == "nli" else kinds[0][1]
    if columns == 2 and (needs := _needs_hard_negatives(settings)):
        raise UserError(f"{paths[0]}: {needs}")
    return paths, kind, columns


def _needs_hard_negatives(settings: ContrastiveSettings) -> str:
    """What cannot be done with rows of two texts, or an empty string."""
    how, needed = settings.loss, "needs hard negatives, and these rows have none"
    if how.objective != "nt-xent":
        return f"--objective {how.objective} {needed}"
    if how.hard_weight:
        return f"--hard-weight {needed}"
    if settings.evaluation.metric == "accuracy":
        return f"--metric accuracy {needed}"
    if settings.by_cosine:
        return (
            f"rows without a hard negative have no gap for --technique {settings.curriculum.technique}; "
            f"choose length or rarity, or --order none or random"
        )
    return ""


def _kind_and_texts(path: Path) -> tuple[str, int]:
    """What a file for `--triplets` holds, and how many texts a row has; `UserError` where it is neither kind."""
    kind = readers.kind_of(path, ("triplet", "nli"))
    return kind, readers.open_as(path, kind).texts


def _pair_files(settings: ContrastiveSettings) -> list[Path]:
    paths = _files(settings, settings.files.nli_pairs, "nli", "nli-pairs.tsv", *_ORIGINALS)
    if not settings.files.nli_pairs and paths[0].name != "nli-pairs.tsv":
        there = (paths[0].parent.parent / name for name in _ORIGINALS)
        paths = [path for path in there if path.is_file()]
    for path in paths:
        readers.open_as(path, "nli")
    return paths


def _phrase_files(settings: ContrastiveSettings) -> list[Path]:
    """The file of `--phrases`, if it is given."""
    given = settings.files.phrases
    if not given:
        return []
    path = expanded(given)
    if given == "sst":
        (name,) = senteval.CLASSIFICATION["SST2"][1]["train"]
        path = senteval.root(start.data_folder(settings.files.data)) / name
    readers.open_as(present(path), "single", classes=len(POLARITIES))
    return [path]


def _text_files(settings: ContrastiveSettings) -> sets.Corpus:
    """The files behind `--texts`; files of one's own do not need the data folder."""
    names = names_in(settings.data.texts)
    own = all(expanded(name).is_file() for name in names)
    return sets.find_texts(names, Path() if own else start.data_folder(settings.files.data))


def _files(settings: ContrastiveSettings, given: str, folder: str, *names: str) -> list[Path]:
    return [present(expanded(name)) for name in names_in(given)] or [
        readers.find(start.data_folder(settings.files.data), folder, names)
    ]


def _transductive(source: str) -> bool:
    """Whether the run that an encoder comes from, or one before it, trained on test sentences."""
    folder = expanded(source)
    behind = manifests_behind(folder) if folder.is_dir() else []  # a name of the hub has no parent
    parts = [manifest["data"].get("train") or {} for _, manifest in behind]
    return any(part.get(name) for part in parts for name in ("transductive", "weights_transductive"))


def _seen(train: Examples, dev: DevSets) -> int:
    """How many pairs to evaluate on are made of training texts; the user is told."""
    pairs = {name: sets.pair_keys(one) for name, one in dev.pairs.items()}
    wanted: frozenset[str] = frozenset().union(*(pair for found in pairs.values() for pair in found))
    known, every = wanted.intersection(key(train.cache.text(row, 0)) for row in range(len(train))), 0
    for name, found in pairs.items():
        seen = sum(pair <= known for pair in found)
        if seen:
            of = f"{seen:,} of {len(found):,} pairs"
            ranks.note(f"{dev.pairs[name].cache.source}: {of} are made of training texts (which hold no scores)")
        every += seen
    return every


def _warn_of_dev(dev: DevSets, settings: ContrastiveSettings) -> None:
    if dev.name in ("stsb", "course") and "chinese" in names_in(settings.data.texts):
        ranks.note(
            f"--texts chinese: evaluated on English pairs by --sts-dev {dev.name}; --sts-dev zh are Chinese ones"
        )
    if dev.absent:
        ranks.note(f"--sts-dev {dev.name}: without {', '.join(dev.absent)}, of which the data has no dev file")
    shared = ", ".join(f"{count:,} in {name}" for name, count in dev.also_in.items() if count)
    if shared:
        ranks.note(f"of the {len(dev):,} pairs that choose the encoder some are also in scored sets: {shared}")


def _warn_of_rows(train: Examples, dev: DevSets, account: dict[str, Any], length: int, form: str) -> None:
    """Say which inputs are truncated, and how many rows were skipped; `form` is how the training rows are read."""
    files, skipped = account["files"], account["skipped"]
    named = [(train, files[0]["file"] if len(files) == 1 else "the training texts", form)]
    for examples, where, how in (*named, *((one, str(one.cache.source), "bi") for one in dev.pairs.values())):
        cut, texts = examples.truncated(how)
        if cut:
            what = "sentences" if how == "bi" else "pairs"
            ranks.note(f"{where}: {cut:,} of {texts:,} {what} are longer than {length} tokens and are truncated")
    if skipped:
        place = f"{skipped[0].get('file', '')} line {skipped[0]['line']}".strip()
        ranks.note(f"{len(skipped):,} rows skipped, such as {place}, {skipped[0]['why']} (listed in manifest.json)")
