"""What stage one reads: the rows that an objective trains on, and scored pairs to evaluate on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from minbert import token_cache
from minbert.errors import UserError
from minbert.files import data_folder, data_path, expand_user, require_file, sha256_of
from minbert.token_cache import Issue, ReaderReport, Row, TokenCache
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.run import InputFiles
from minbert.train.settings import names_in
from tasks import readers
from tasks.contrastive import dev
from tasks.contrastive.dev import DevSets
from tasks.examples import Examples
from tasks.manifests import manifests_behind

if TYPE_CHECKING:
    from tasks.contrastive.settings import ContrastiveSettings


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


def check_files(settings: ContrastiveSettings) -> None:
    """Raises `UserError` if a file is missing or its header cannot be used; reads no further than headers."""
    settings.objective.find(settings.files.data)
    dev.find_dev_pairs(settings.files)


def read(settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> Data:
    """The data that an objective needs. Raises `UserError` for what is missing or cannot be read."""
    objective, limit = settings.objective, settings.data.limit
    train, entry = objective.read(settings, tokenizer, length)
    if not len(train):
        raise UserError(f"{train.cache.source}: no usable row")
    pairs = dev.read(settings.files, tokenizer, length, settings.data.limit_eval)
    if settings.training.chooses:
        pairs = replace(pairs, also_in=dev.count_in_scored_sets(pairs, data_path(settings.files.data)))
    if limit > len(train):
        distributed.note(f"--limit {limit:,}: there are only {len(train):,} {objective.row_noun}")
    if _transductive(settings.encoder.source):
        distributed.note(f"--weights {settings.encoder.source}: come from a run on test sentences (transductive)")
        entry["weights_transductive"] = True
    if objective.unlabelled:
        entry["dev_pairs_seen"] = dev.count_in_training(train, pairs)
    _warn(train, pairs, entry, length, objective.form)
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
