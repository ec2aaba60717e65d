"""Sentence pairs to measure with: seven English sets of scored pairs, five Chinese ones, and a user's own file."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from minbert.token_cache import Row, Skipped
from tasks import readers
from tasks.benchmarks.options import chosen
from tasks.readers import chinese, senteval

CHINESE = {"zh-STS-B" if name == "STS-B" else name: name for name in chinese.FOLDERS}
ENGLISH = senteval.SCORED
NAMES_HELP = f"en (the seven), zh (the Chinese), or of {', '.join((*ENGLISH, *CHINESE))}, several with commas"


@dataclass(frozen=True)
class Subset:
    """Pairs in file order with human scores, float64 [pairs], all NaN without; `skipped` counts rows left out."""

    name: str
    ids: list[str]
    pairs: list[tuple[str, str]]
    gold: np.ndarray
    skipped: int = 0


@dataclass(frozen=True)
class ScoredSet:
    """A set and its subsets, one or more; `file` is the path of a set that may be in several places."""

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
        """The name in tables."""
        return "SICK-R" if self.name == "SICK" else self.name


def named(text: str, folder: Path) -> list[str]:
    """The sets of `--sets`: `en`, `zh`, or names with commas; by default the English sets if `folder` has them."""
    if not text:
        text = "en" if senteval.find_root(folder) or _chinese_root(folder) is None else "zh"
    names = chosen(text, ("en", "zh", *ENGLISH, *CHINESE, "SICK-R"), "--sets")
    groups = {"en": ENGLISH, "zh": CHINESE, "SICK-R": ("SICK",)}
    return list(dict.fromkeys(one for name in names for one in groups.get(name, (name,))))


def read(folder: Path, names: Sequence[str]) -> list[ScoredSet]:
    """The test split of each set. Raises `UserError` for a missing file or a bad row."""
    return [_chinese(folder, name) if name in CHINESE else _english(folder, name) for name in names]


def _english(folder: Path, name: str) -> ScoredSet:
    return ScoredSet(name, tuple(subset(*part) for part in senteval.scored(folder, name).items()))


def subset(name: str, rows: Iterable[Row | Skipped]) -> Subset:
    """Rows of two texts as arrays, the skipped ones counted; `UserError` if no pair is left."""
    found = list(rows)
    kept = [row for row in found if isinstance(row, Row)]
    if not kept:
        raise UserError(f"{name}: no scored pair")
    gold = np.array([row.label for row in kept], dtype=np.float64)
    pairs = [(row.texts[0], row.texts[1]) for row in kept]
    return Subset(name, [row.id for row in kept], pairs, gold, len(found) - len(kept))


def _chinese_root(folder: Path) -> Path | None:
    """`zh` in the folder, the folder itself, or `zh` beside it, as the English sets may be the folder that is given."""
    names = [name for folders in chinese.FOLDERS.values() for name in folders]
    bases = (folder / "zh", folder, folder.parent / "zh")
    return next((base for base in bases if any((base / name).is_dir() for name in names)), None)


def _chinese(folder: Path, name: str) -> ScoredSet:
    base, own = _chinese_root(folder) or folder / "zh", CHINESE[name]
    path = chinese.files(base).get((own, "test"))
    if path is None:
        raise UserError(f"{base}: no test file of {name} (in {' or '.join(chinese.FOLDERS[own])})")
    rows = readers.open_as(path, "pair-score").rows
    return ScoredSet(name, (subset(name, rows),), path.relative_to(base).as_posix())


def own_pairs(path: Path, *, seed: int) -> Subset:
    """A user's pairs with a score, a class or neither, in any form of `readers.open_as`; or one sentence a line.

    Single sentences are paired at random by the seed. The number of rows that are left out is printed to standard
    error. Raises `UserError` if the file has another form, or fewer than two sentences.
    """
    kind = readers.kind_of(path, ("pair-score", "pair-class", "single", "pair", "lines"))
    if kind == "single":
        raise UserError(f"{path}: neither sentence pairs nor sentences without labels, one a line")
    found = list(readers.open_as(path, kind).rows)
    kept = [row for row in found if isinstance(row, Row) and all(row.texts)]
    if len(kept) < len(found):
        why = next((f", such as line {row.line}: {row.why}" for row in found if isinstance(row, Skipped)), "")
        print(f"note: {path}: {len(found) - len(kept):,} of {len(found):,} rows left out{why}", file=sys.stderr)
    texts = [row.texts for row in kept]
    if not texts or (len(texts[0]) == 1 and len(texts) < 2):
        raise UserError(f"{path}: neither sentence pairs nor at least two sentences, one a line")
    pairs = [(row[0], row[-1]) for row in texts]
    if len(texts[0]) == 1:
        order = numpy_generator(seed, "partners", path.name).permutation(len(texts)).tolist()
        pairs = [(texts[a][0], texts[b][0]) for a, b in zip(order, [*order[1:], order[0]], strict=True)]
    gold = np.array([row.label for row in kept], dtype=np.float64)
    scored = gold if np.isfinite(gold).all() else np.full(len(gold), np.nan)
    return Subset(path.name, [row.id for row in kept], pairs, scored, len(found) - len(kept))
