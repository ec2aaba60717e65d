"""How many scored rows are in the training files of an encoder, which the manifests of its runs name.

Texts are compared by `tasks.readers.text_key`: the course's files are lower-cased and spaced differently from the
original sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from minbert.files import sha256_of
from minbert.token_cache import Row
from tasks import readers
from tasks.manifests import data_files, manifest_behind, manifests_behind
from tasks.readers import text_key
from tasks.tables import Table

Manifest = tuple[Path, dict[str, Any]]
"""The path and the content of a run's manifest."""
ScoredTexts = Mapping[str, Sequence[tuple[str, ...]]]
"""The scored rows of each set: single texts or pairs."""


@dataclass(frozen=True)
class TrainingFile:
    """A file that a run has read: for training, or to select its checkpoint (`purpose` train or dev)."""

    file: str
    sha256: str
    purpose: str
    state: str  # "read", "gone", "changed"


@dataclass(frozen=True)
class Count:
    """A set's scored rows: all, those that are a text or pair of a training file, and those with any text in one.

    All rows of a training file count, also those that `--limit` or the objective leaves out. `chosen_on` counts rows of
    the dev sets that selected a checkpoint: those that are in this set.
    """

    rows: int
    trained: int
    with_text: int
    chosen_on: int


@dataclass(frozen=True)
class Contamination:
    """The counts of one encoder by set, and the files and manifests that they are from."""

    encoder: str
    manifests: list[str]
    files: list[TrainingFile]
    sets: dict[str, Count] = field(default_factory=dict)
    why: str = ""  # the reason why training data is unknown, if there is one
    choices: list[str] = field(default_factory=list)  # for each manifest, which set selected the checkpoint

    @property
    def complete(self) -> bool:
        """Whether every file that the manifests of this run and its ancestors name was found unchanged."""
        return not self.why and all(file.state == "read" for file in self.files)


def check(name: str, folder: Path, sets: ScoredTexts) -> Contamination:
    """Look for the scored rows in the training files of the encoder in `folder` and of its ancestors."""
    runs = manifests_behind(folder)
    if not runs:
        return Contamination(name, [], [], why="not in a run folder with a manifest.json: its training data is unknown")
    files, before, why = training_files(runs), (runs[-1][1].get("weights") or {}).get("folder"), ""
    if before and not Path(before).is_dir() and not manifest_behind(Path(before)):
        why = f"the encoder that this run started from, {before}, is missing: its training data is not searched"
    return Contamination(name, [str(path) for path, _ in runs], files, _counts(files, sets), why, [*map(_choice, runs)])


def training_files(runs: Sequence[Manifest]) -> list[TrainingFile]:
    """The files that some runs have read for training, and those of dev sets that selected a checkpoint."""
    files: dict[tuple[str, str], TrainingFile] = {}
    for _, content in runs:
        for file, sha256, use in data_files(content["data"]):
            if use == "train" or (content["selection"]["by_dev_pairs"] and (file, sha256) not in files):
                files[file, sha256] = TrainingFile(file, sha256, use, _state(Path(file), sha256))
    return list(files.values())


def _choice(run: Manifest) -> str:
    """The checkpoint that a run has kept, and the pairs that selected it."""
    path, content = run
    selection, dev = content["selection"], content["data"].get("sts_dev") or {}
    if not selection["by_dev_pairs"]:
        return f"{path.parent} keeps its last step; not selected on dev pairs"
    pairs = f"{dev['kept']:,} pairs of " if isinstance(dev.get("kept"), int) else ""
    source = dev.get("name") or dev.get("file") or "the tasks' dev sets"
    best = f"the best checkpoint by {selection.get('metric', 'the dev score')}"
    kept = "its last step, after early stopping" if selection["keep"] == "last" else best
    return f"{path.parent} keeps {kept} on {pairs}{source}"


def _state(path: Path, recorded: str) -> str:
    """A manifest records the hash of the file alone, or together with its companions if their labels were read too."""
    if not all(one.is_file() for one in (path, *readers.companions(path))):
        return "gone"
    return "read" if recorded in (readers.digest(path), sha256_of(path)) else "changed"


def _counts(files: Sequence[TrainingFile], sets: ScoredTexts) -> dict[str, Count]:
    numbers: dict[str, int] = {}  # text -> its number among all scored texts
    keyed = {
        name: [tuple(sorted(numbers.setdefault(text_key(text), len(numbers)) for text in row)) for row in rows]
        for name, rows in sets.items()
    }
    scored = {name: set(rows) for name, rows in keyed.items()}
    trained, choosing = set[tuple[int, ...]](), dict.fromkeys(keyed, 0)
    for file in (one for one in files if one.state == "read"):
        for row in readers.read_any(Path(file.file))[1]:
            if not isinstance(row, Row):
                continue
            here = sorted(numbers[text] for text in map(text_key, row.texts) if text in numbers)
            found = set(combinations(here, 2)) | {(number,) for number in here}
            if file.purpose == "train":
                trained |= found
            else:
                choosing = {name: count + (not found.isdisjoint(scored[name])) for name, count in choosing.items()}
    return {
        name: Count(
            len(rows),
            sum(row in trained for row in rows),
            sum(any((number,) in trained for number in row) for row in rows),
            choosing[name],
        )
        for name, rows in keyed.items()
    }


def table(result: Contamination) -> Table:
    """The counts of one encoder, and notes on the files and on how checkpoints were selected."""
    read = [f"{file.file} ({file.purpose})" for file in result.files if file.state == "read"]
    rows = [
        {
            "set": name,
            "scored rows": f"{one.rows:,}",
            "in a training file": f"{one.trained:,}",
            "share": f"{one.trained / one.rows:.1%}",
            "with a sentence in one": f"{one.with_text:,}",
            "selection rows in the set": f"{one.chosen_on:,}",
        }
        for name, one in result.sets.items()
        if read
    ]
    notes = [*([result.why] if result.why else []), *result.choices]
    for state, words in (("gone", "missing, not searched"), ("changed", "changed since, not searched")):
        some = [file.file for file in result.files if file.state == state]
        notes += [f"{len(some)} of {len(result.files)} files {words}: {', '.join(some)}"] if some else []
    if read:
        notes += [f"Searched: {', '.join(read)}", "All rows of these files count, also those that --limit left out."]
    if result.manifests and not result.files:
        notes.append("the manifest names no files")
    notes.append("The training data of weights from elsewhere is not recorded.")
    return Table(f"Contamination of {result.encoder}", pd.DataFrame(rows), tuple(notes))
