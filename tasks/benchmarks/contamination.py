"""How many scored pairs an encoder has been trained on: a run's manifest names its training files and their hashes.

Texts are compared by `tasks.readers.key`: the course's files are lower-cased and spaced differently from the
original sets.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from minbert.files import sha256_of
from minbert.token_cache import Row
from tasks import readers
from tasks.benchmarks.sets import ScoredSet
from tasks.manifests import data_files, manifest_behind, manifests_behind
from tasks.readers import key
from tasks.readers.layouts import sides_of
from tasks.tables import Table

Run = tuple[Path, dict[str, Any]]
"""The path and the content of a run's manifest."""


@dataclass(frozen=True)
class TrainingFile:
    """A file that a run has read: for training, or to select its checkpoint (`purpose` train or dev)."""

    file: str
    sha256: str
    purpose: str
    state: str  # "read", "gone", "changed"


@dataclass(frozen=True)
class Count:
    """A set's scored pairs: all, those that are a pair of a training file, and those with a sentence in one.

    `chosen_on` counts pairs of the dev sets that selected a checkpoint: those that are in this set.
    """

    pairs: int
    trained: int
    sentence: int
    chosen_on: int


@dataclass(frozen=True)
class Contamination:
    """The counts of one encoder by set, and the files and manifests that they are from."""

    encoder: str
    manifests: list[str]
    files: list[TrainingFile]
    counts: dict[str, Count] = field(default_factory=dict)
    why: str = ""  # the reason why training data is unknown, if there is one
    choices: list[str] = field(default_factory=list)  # for each manifest, which set selected the checkpoint

    @property
    def complete(self) -> bool:
        """Whether every file that the manifests of this run and its ancestors name was found unchanged."""
        return not self.why and all(file.state == "read" for file in self.files)


def check(name: str, folder: Path, sets: Sequence[ScoredSet]) -> Contamination:
    """Look for the scored pairs in the training files of the encoder in `folder` and of its ancestors."""
    runs = manifests_behind(folder)
    if not runs:
        return Contamination(name, [], [], why="not in a run folder with a manifest.json: its training data is unknown")
    files, before, why = training_files(runs), (runs[-1][1].get("weights") or {}).get("folder"), ""
    if before and not Path(before).is_dir() and not manifest_behind(Path(before)):
        why = f"the encoder that this run started from, {before}, is missing: its training data is not searched"
    return Contamination(name, [str(path) for path, _ in runs], files, _counts(files, sets), why, [*map(_choice, runs)])


def training_files(runs: Sequence[Run]) -> list[TrainingFile]:
    """The files that some runs have read for training, and those of dev sets that selected a checkpoint."""
    files: dict[tuple[str, str], TrainingFile] = {}
    for _, content in runs:
        for file, sha256, use in data_files(content["data"]):
            if use == "train" or (_by_dev_pairs(content) and (file, sha256) not in files):
                files[file, sha256] = TrainingFile(file, sha256, use, _state(Path(file), sha256))
    return list(files.values())


def _by_dev_pairs(manifest: dict[str, Any]) -> bool:
    """Whether a run's dev sets selected its checkpoint or ended it early; true if the manifest does not say."""
    return bool((manifest.get("selection") or {}).get("by_dev_pairs", True))


def _choice(run: Run) -> str:
    """The checkpoint that a run has kept, and the pairs that selected it."""
    path, content = run
    how, dev = content.get("selection") or {}, content["data"].get("sts_dev") or {}
    last = how.get("keep") == "last"
    if not _by_dev_pairs(content):
        kept = "its last step" if last else "the best checkpoint by its training triplets"
        return f"{path.parent} keeps {kept}; not selected on dev pairs"
    pairs = f"{dev['kept']:,} pairs of " if isinstance(dev.get("kept"), int) else ""
    named = dev.get("name") or dev.get("file") or "the tasks' dev sets"
    kept = (
        "its last step, after early stopping"
        if last
        else f"the best checkpoint by {how.get('metric', 'the dev score')}"
    )
    return f"{path.parent} keeps {kept} on {pairs}{named}"


def _state(path: Path, recorded: str) -> str:
    """A manifest records the hash of the file alone, or together with its companions if their labels were read too."""
    if not all(one.is_file() for one in (path, *sides_of(path))):
        return "gone"
    along = readers.companions(path)
    whole = bool(along) and all(map(Path.is_file, along)) and readers.digest(path) == recorded
    return "read" if whole or sha256_of(path) == recorded else "changed"


def _counts(files: Sequence[TrainingFile], sets: Sequence[ScoredSet]) -> dict[str, Count]:
    numbers: dict[str, int] = {}  # text -> its number among all scored texts
    keyed = {
        one.shown: [frozenset(numbers.setdefault(key(text), len(numbers)) for text in pair) for pair in one.pairs]
        for one in sets
    }
    scored = {name: set(found) for name, found in keyed.items()}
    texts, trained, choosing = set[int](), set[frozenset[int]](), dict.fromkeys(keyed, 0)
    for file in (one for one in files if one.state == "read"):
        for row in readers.read_any(Path(file.file))[1]:
            texts_of = row.texts if isinstance(row, Row) else ()
            here = [numbers[found] for text in texts_of if (found := key(text)) in numbers]
            pairs = {frozenset(pair) for pair in combinations(here, 2)}
            if file.purpose == "train":
                trained |= pairs
                texts |= set(here)
            else:
                choosing = {name: count + (not pairs.isdisjoint(scored[name])) for name, count in choosing.items()}
    return {
        name: Count(
            len(found),
            sum(pair in trained for pair in found),
            sum(not texts.isdisjoint(pair) for pair in found),
            choosing[name],
        )
        for name, found in keyed.items()
    }


def as_json(found: Contamination) -> dict[str, Any]:
    """What the check of one encoder found, for JSON."""
    made = {**asdict(found), "complete": found.complete}
    made["sets"] = made.pop("counts")
    return made


def table(found: Contamination) -> Table:
    """The counts of one encoder, and notes on the files and on how checkpoints were selected."""
    read = [f"{file.file} ({file.purpose})" for file in found.files if file.state == "read"]
    rows = [
        {
            "set": name,
            "scored pairs": f"{one.pairs:,}",
            "trained on": f"{one.trained:,}",
            "share": f"{one.trained / one.pairs:.1%}",
            "with a sentence trained on": f"{one.sentence:,}",
            "selection pairs in the set": f"{one.chosen_on:,}",
        }
        for name, one in found.counts.items()
        if read
    ]
    notes = [*([found.why] if found.why else []), *found.choices]
    for state, words in (("gone", "missing, not searched"), ("changed", "changed since, not searched")):
        some = [file.file for file in found.files if file.state == state]
        notes += [f"{len(some)} of {len(found.files)} files {words}: {', '.join(some)}"] if some else []
    notes += [f"Searched: {', '.join(read)}"] if read else []
    if found.manifests and not found.files:
        notes.append("the manifest names no files")
    notes.append("The training data of weights from elsewhere is not recorded.")
    return Table(f"Contamination of {found.encoder}", pd.DataFrame(rows), tuple(notes))
