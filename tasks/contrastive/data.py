"""What stage one reads: the rows that a command trains on, in the token cache, and scored pairs to evaluate on."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from minbert import token_cache
from minbert.errors import UserError
from minbert.files import data_folder, data_path, expand_user, require_file, sha256_of
from minbert.token_cache import Issue, ReaderReport, Row, TokenCache
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.run import InputFiles
from minbert.train.settings import names_in
from minbert.train.start import InitialEncoder
from tasks import readers
from tasks.contrastive import dev
from tasks.contrastive.dev import DevSets
from tasks.examples import Examples
from tasks.manifests import manifests_behind


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
    limit = settings.data.limit
    pairs = dev.read(settings.files, encoder.tokenizer, encoder.max_length, settings.data.limit_eval)
    if settings.training.selects_by_dev:
        pairs = replace(pairs, also_in=dev.count_in_scored_sets(pairs, data_path(settings.files.data)))
    if limit > len(train):
        distributed.note(f"--limit {limit:,}: there are only {len(train):,} {noun}")
    if comes_from_test_texts(settings.encoder.weights):
        distributed.note(f"--weights {settings.encoder.weights}: come from a run on test sentences (transductive)")
        entry["weights_transductive"] = True
    # labelled pairs and triplets are of other corpora; texts may be those of the dev pairs
    if unlabelled:
        entry["dev_pairs_seen"] = dev.count_in_training(train, pairs)
    warn_about_dev(pairs)
    warn_about_rows(train, pairs, entry, form)
    return Data(train, pairs, {"train": entry, "sts_dev": pairs.manifest_entry()})


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


def warn_about_dev(pairs: DevSets) -> None:
    """Warn about dev sets that are missing, and about dev pairs that are in scored sets too."""
    if pairs.absent:
        distributed.note(
            f"--sts-dev {pairs.name}: without {', '.join(pairs.absent)}, of which the data has no dev file"
        )
    shared = ", ".join(f"{count:,} in {name}" for name, count in pairs.also_in.items() if count)
    if shared:
        distributed.note(f"of the {len(pairs):,} pairs that choose the encoder some are also in scored sets: {shared}")


def warn_about_rows(train: Examples, pairs: DevSets, entry: dict[str, Any], form: str) -> None:
    """Warn about truncated inputs and skipped rows; `form` is how the training rows are read."""
    files = entry["files"]
    name = "the training texts"
    if len(files) == 1:
        name = files[0]["file"]
    sets = [(train, name, form)]
    for examples in pairs.pairs.values():
        sets.append((examples, str(examples.cache.source), "bi"))
    for examples, source, input_form in sets:
        longer, inputs = examples.truncated(input_form)
        if longer:
            noun = "sentences" if input_form == "bi" else "pairs"
            limit = f"longer than {examples.max_length} tokens and are truncated"
            distributed.note(f"{source}: {longer:,} of {inputs:,} {noun} are {limit}")
    skipped = entry["skipped"]
    if skipped:
        example = f"{skipped[0].get('file', '')} line {skipped[0]['line']}".strip()
        reason = skipped[0]["why"]
        distributed.note(f"{len(skipped):,} rows skipped, such as {example}, {reason} (listed in manifest.json)")


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
    content = [file["sha256"] for file in files]
    content += map(sha256_of, further)
    content += map(str, rule)
    sha256 = hashlib.sha256("\x1f".join(content).encode()).hexdigest()
    return token_cache.load(paths[0], rows, str(rule[0]), tokenizer, sha256=sha256), files


def training_files(names: str, data: str, *defaults: str) -> list[Path]:
    """The files of a comma-separated list, or the first of the usual names in the folder `nli` of the data."""
    if names_in(names):
        return [require_file(expand_user(name)) for name in names_in(names)]
    return [readers.find_file(data_folder(data), "nli", defaults)]
