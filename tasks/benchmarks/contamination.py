"""How many scored rows are in the training files of an encoder, which the manifests of its runs name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from minbert.files import sha256_of
from tasks import readers
from tasks.manifests import data_files, manifest_behind, manifests_behind
from tasks.readers.overlap import Numbers, ScoredRows, Texts
from tasks.tables import Table

Manifest = tuple[Path, dict[str, Any]]
"""The path and the content of a run's manifest."""
ScoredTexts = Mapping[str, Sequence[Texts]]
"""The scored rows of each set: single texts or pairs."""


class TrainingFile(NamedTuple):
    """A file that a run has read: for training, or to select its checkpoint (`purpose` train or dev)."""

    file: str
    sha256: str
    purpose: str
    state: str  # "read", "gone", "changed"


class Contamination(NamedTuple):
    """What is known of one encoder.

    `counts` has a row for each set: its scored `rows`, those that are `trained`, a text or pair of a training file,
    those `with_text`, with any text in one, and `chosen_on`, the rows of the dev sets that selected a checkpoint which
    are in this set. All rows of a training file count, also those that `--limit` or the objective leaves out.
    """

    encoder: str
    complete: bool  # every file that the run and its ancestors name has been read
    files: list[TrainingFile]
    counts: pd.DataFrame
    notes: list[str]


def check(name: str, folder: Path, sets: ScoredTexts) -> Contamination:
    """Look for the scored rows in the training files of the encoder in `folder` and of its ancestors."""
    runs = manifests_behind(folder)
    files, notes = training_files(runs), [*map(_choice, runs)]
    before = (runs[-1][1].get("weights") or {}).get("folder") if runs else None
    lost = bool(before and not Path(before).is_dir() and not manifest_behind(Path(before)))
    if not runs:
        notes.append("not in a run folder with a manifest.json: its training data is unknown")
    elif lost:
        what = f"the encoder that this run started from, {before}, is missing"
        notes.append(f"{what}: its training data is not searched")
    for state, words in (("gone", "missing, not searched"), ("changed", "changed since, not searched")):
        some = [file.file for file in files if file.state == state]
        notes += [f"{len(some)} of {len(files)} files {words}: {', '.join(some)}"] if some else []
    if read := [f"{file.file} ({file.purpose})" for file in files if file.state == "read"]:
        notes += [f"Searched: {', '.join(read)}", "All rows of these files count, also those that --limit left out."]
    if runs and not files:
        notes.append("the manifest names no files")
    notes.append("The training data of weights from elsewhere is not recorded.")
    complete = bool(runs) and not lost and all(file.state == "read" for file in files)
    return Contamination(name, complete, files, _counts(files, sets), notes)


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


def _counts(files: Sequence[TrainingFile], sets: ScoredTexts) -> pd.DataFrame:
    scored, trained, choosing = ScoredRows(sets), set[Numbers](), dict.fromkeys(sets, 0)
    for file in (one for one in files if one.state == "read"):
        rows = [row.texts for row in readers.read_texts(Path(file.file)).rows]
        if file.purpose == "train":
            trained |= scored.numbers_in_all(rows)
        else:
            choosing = {name: count + sum(scored.holds(name, row) for row in rows) for name, count in choosing.items()}
    counts = [(name, *scored.overlap(name, trained), choosing[name]) for name in sets]
    return pd.DataFrame(counts, columns=["set", "rows", "trained", "with_text", "chosen_on"])


def table(result: Contamination) -> Table:
    """The counts of one encoder, if any file could be read, and the notes."""
    counts = result.counts if any(file.state == "read" for file in result.files) else result.counts[:0]
    rows = {
        "set": counts["set"],
        "scored rows": [f"{count:,}" for count in counts["rows"]],
        "in a training file": [f"{count:,}" for count in counts["trained"]],
        "share": [f"{share:.1%}" for share in counts["trained"] / counts["rows"]],
        "with a sentence in one": [f"{count:,}" for count in counts["with_text"]],
        "selection rows in the set": [f"{count:,}" for count in counts["chosen_on"]],
    }
    return Table(f"Contamination of {result.encoder}", pd.DataFrame(rows), tuple(result.notes))
