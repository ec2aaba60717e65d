"""Sentence pairs with human scores: seven English sets, five Chinese ones, and a user's file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from minbert.errors import UserError
from minbert.files import require_file
from minbert.token_cache import Row
from tasks import readers
from tasks.benchmarks.common import choose
from tasks.readers import DataFile, chinese, senteval

ENGLISH = senteval.SCORED
# STS-B alone is the name of the English set
CHINESE = {"zh-STS-B" if name == "STS-B" else name: name for name in chinese.FOLDERS}
NAMES_HELP = f"en (the seven), zh (the Chinese), or of {', '.join((*ENGLISH, *CHINESE))}, several with commas"


@dataclass(frozen=True)
class ScoredSet:
    """Pairs in file order with human scores, float64 [pairs].

    `subsets` are the numbers of pairs of the files that the set was read from, in order. `skipped` counts the rows that
    were left out.
    """

    name: str
    ids: list[str]
    pairs: list[tuple[str, str]]
    gold: np.ndarray
    subsets: Mapping[str, int] = field(default_factory=dict)
    skipped: int = 0
    file: str = ""  # of a Chinese set, of which several forms are in circulation, and of `--pairs`

    @property
    def texts(self) -> list[str]:
        """The sentences of all pairs."""
        return list(chain.from_iterable(self.pairs))


def set_names(text: str) -> list[str]:
    """The sets of `--sets`: `en`, `zh`, or names with commas."""
    groups = {"en": ENGLISH, "zh": tuple(CHINESE), "SICK-R": ("SICK",)}
    names: list[str] = []
    for name in choose(text, ("en", "zh", *ENGLISH, *CHINESE, "SICK-R"), "--sets"):
        names.extend(groups.get(name, (name,)))
    return list(dict.fromkeys(names))


def read(folder: Path, names: Sequence[str]) -> list[ScoredSet]:
    """The test split of each set, all subsets together; `folder` is the data folder or one in SentEval's layout.

    Raises `UserError` for a missing file, and as `readers.open_as` does.
    """
    scored_sets = []
    for name in names:
        if name in CHINESE:
            scored_sets.append(_read_chinese(folder, name))
        else:
            paths = senteval.scored_files(senteval.root(folder), name)
            parts = {subset: readers.open_as(path, "pair-score") for subset, path in paths.items()}
            scored_sets.append(_scored_set("SICK-R" if name == "SICK" else name, parts, ""))
    return scored_sets


def read_pairs(path: Path) -> ScoredSet:
    """A file of pairs with human scores, as a set of its name. Raises `UserError` as `readers.open_as` does."""
    data = readers.open_as(require_file(path, "--pairs"), "pair-score")
    return _scored_set(path.name, {path.name: data}, str(path))


def _read_chinese(folder: Path, name: str) -> ScoredSet:
    path = chinese.files(folder).get((CHINESE[name], "test"))
    if path is None:
        folders = " or ".join(chinese.FOLDERS[CHINESE[name]])
        raise UserError(f"{chinese.folder(folder)}: no test file of {name} (in {folders})")
    return _scored_set(name, {name: readers.open_as(path, "pair-score")}, f"{path.parent.name}/{path.name}")


def _scored_set(name: str, parts: Mapping[str, DataFile], file: str) -> ScoredSet:
    kept: list[Row] = []
    skipped = 0
    subsets = {}
    for subset, data in parts.items():
        kept += data.rows
        skipped += len(data.skipped)
        subsets[subset] = len(data.rows)
    return ScoredSet(
        name=name,
        ids=[row.id for row in kept],
        pairs=[(row.texts[0], row.texts[1]) for row in kept],
        gold=np.array([row.label for row in kept], dtype=np.float64),
        subsets=subsets,
        skipped=skipped,
        file=file,
    )
