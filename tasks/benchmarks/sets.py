"""Sentence pairs to measure with: seven English sets of scored pairs, five Chinese ones, and a user's own file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minbert.errors import UserError
from tasks import readers
from tasks.benchmarks.options import chosen
from tasks.readers import chinese, senteval

CHINESE = {"zh-STS-B" if name == "STS-B" else name: name for name in chinese.FOLDERS}
ENGLISH = senteval.SCORED
NAMES_HELP = f"en (the seven), zh (the Chinese), or of {', '.join((*ENGLISH, *CHINESE))}, several with commas"


@dataclass(frozen=True)
class ScoredSet:
    """Pairs in file order with human scores, float64 [pairs]; `skipped` counts rows left out."""

    name: str
    ids: list[str]
    pairs: list[tuple[str, str]]
    gold: np.ndarray
    skipped: int = 0
    file: str = ""  # the path of a set that may be in several places

    @property
    def texts(self) -> list[str]:
        """The sentences of all pairs."""
        return [text for pair in self.pairs for text in pair]


def named(text: str) -> list[str]:
    """The sets of `--sets`: `en`, `zh`, or names with commas."""
    groups = {"en": ENGLISH, "zh": tuple(CHINESE), "SICK-R": ("SICK",)}
    names = chosen(text, ("en", "zh", *ENGLISH, *CHINESE, "SICK-R"), "--sets")
    return list(dict.fromkeys(one for name in names for one in groups.get(name, (name,))))


def read(folder: Path, names: Sequence[str]) -> list[ScoredSet]:
    """The test split of each set, all subsets together. Raises `UserError` for a missing file, or without any pair."""
    return [_read(folder, name) for name in names]


def _read(folder: Path, name: str) -> ScoredSet:
    path = _chinese_file(folder, name) if name in CHINESE else None
    parts = senteval.scored(folder, name).values() if path is None else [readers.open_as(path, "pair-score")]
    kept = [row for part in parts for row in part.rows]
    skipped = sum(len(part.skipped) for part in parts)
    if not kept:
        raise UserError(f"{name}: no scored pair")
    gold = np.array([row.label for row in kept], dtype=np.float64)
    pairs = [(row.texts[0], row.texts[1]) for row in kept]
    shown, file = "SICK-R" if name == "SICK" else name, f"{path.parent.name}/{path.name}" if path else ""
    return ScoredSet(shown, [row.id for row in kept], pairs, gold, skipped, file)


def _chinese_file(folder: Path, name: str) -> Path:
    """A Chinese set: in the folder, in its `zh`, or in `zh` beside it, as the English sets may be the folder given."""
    beside = folder.parent / "zh"
    base = folder if chinese.files(folder) or not chinese.files(beside) else beside
    path = chinese.files(base).get((CHINESE[name], "test"))
    if path is None:
        folders = " or ".join(chinese.FOLDERS[CHINESE[name]])
        raise UserError(f"{chinese.folder(base)}: no test file of {name} (in {folders})")
    return path
