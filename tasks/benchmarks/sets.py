"""The sets of scored pairs as arrays: the seven English ones in SentEval's layout, and five Chinese ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.benchmarks.options import chosen
from tasks.readers import open_as, senteval

# Chinese set -> (folder, the test file as a pattern), the first that is there (EdaCSE, section 4.3.1).
CHINESE = {
    "ATEC": (("ATEC", "*test*"), ("ATEC_CCKS", "*test*")),
    "BQ": (("BQ", "*test*"),),
    "LCQMC": (("LCQMC", "*test*"),),
    "PAWS-X": (("PAWS-X", "*test*"), ("PAWSX", "*test*")),
    "zh-STS-B": (("STS-B", "sts-b-test*"), ("STS-B", "*test*")),
}
ENGLISH = senteval.SCORED
SHOWN = {"SICK": "SICK-R"}
SAID = f"en (the seven), zh (the Chinese), or of {', '.join((*ENGLISH, *CHINESE))}, several with commas"


@dataclass(frozen=True)
class Subset:
    """Pairs with a human score, in file order; `skipped` are pairs without one."""

    name: str
    ids: list[str]
    pairs: list[tuple[str, str]]
    gold: np.ndarray
    skipped: int = 0


@dataclass(frozen=True)
class ScoredSet:
    """A set and its subsets, one or more; `file` says where a set that may lie in several places was found."""

    name: str
    subsets: tuple[Subset, ...]
    file: str = ""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs, subset after subset."""
        return [pair for subset in self.subsets for pair in subset.pairs]

    @property
    def gold(self) -> np.ndarray:
        """All scores: float64 [pairs]."""
        return np.concatenate([subset.gold for subset in self.subsets])

    @property
    def skipped(self) -> int:
        """Pairs that have no score, and rows without a sentence."""
        return sum(subset.skipped for subset in self.subsets)

    @property
    def shown(self) -> str:
        """The name as tables head their columns with it."""
        return SHOWN.get(self.name, self.name)


def named(text: str, folder: Path) -> list[str]:
    """The names behind `--sets`: `en`, `zh`, or names with commas; without one, the English sets if they are there."""
    if not text:
        text = "en" if _has_english(folder) or _chinese_root(folder) is None else "zh"
    names = chosen(text, ("en", "zh", *ENGLISH, *CHINESE, "SICK-R"), "--sets")
    groups = {"en": ENGLISH, "zh": CHINESE, "SICK-R": ("SICK",)}
    return list(dict.fromkeys(one for name in names for one in groups.get(name, (name,))))


def _has_english(folder: Path) -> bool:
    try:
        senteval.root(folder)
    except UserError:
        return False
    return True


def read(folder: Path, names: Sequence[str]) -> list[ScoredSet]:
    """The test split of each set. Raises `UserError` for a file that is not there, or has a bad row."""
    return [_chinese(folder, name) if name in CHINESE else _english(folder, name) for name in names]


def _english(folder: Path, name: str) -> ScoredSet:
    subsets = senteval.scored(folder, name).items()
    return ScoredSet(name, tuple(subset(name if name == one else one, rows) for one, rows in subsets))


def subset(name: str, rows: Iterable[Row | Skipped]) -> Subset:
    """Collect rows of two texts: what is skipped is counted. `UserError` where no pair is left."""
    found = list(rows)
    kept = [row for row in found if isinstance(row, Row)]
    if not kept:
        raise UserError(f"{name}: no scored pair")
    gold = np.array([row.label for row in kept], dtype=np.float64)
    pairs = [(row.texts[0], row.texts[1]) for row in kept]
    return Subset(name, [row.id for row in kept], pairs, gold, len(found) - len(kept))


def _chinese_root(folder: Path) -> Path | None:
    places = {place for known in CHINESE.values() for place, _ in known}
    for base in (folder / "zh", folder, folder.parent / "zh"):
        if any((base / place).is_dir() for place in places):
            return base
    return None


def _chinese(folder: Path, name: str) -> ScoredSet:
    base = _chinese_root(folder)
    for place, pattern in CHINESE[name]:
        files = sorted((base / place).glob(pattern)) if base is not None else []
        if base is not None and files:
            rows = open_as(files[0], "pair-score").rows
            return ScoredSet(name, (subset(name, rows),), files[0].relative_to(base).as_posix())
    where = base if base is not None else folder / "zh"
    raise UserError(f"{where}: no test file of {name} ({CHINESE[name][0][0]}/{CHINESE[name][0][1]})")
