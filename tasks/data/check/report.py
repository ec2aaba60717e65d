"""The whole report as one JSON object: files, splits, overlaps between splits, and manifests of fetched sets."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from tqdm import tqdm

from minbert.errors import UserError
from minbert.files import sha256_of
from minbert.token_cache import Skipped
from tasks.data.check import corpus
from tasks.data.check.files import DataFile, sources
from tasks.data.check.overlaps import DEFINITIONS, overlap
from tasks.data.fetch.sources import read_manifest

VERSION = 1
# In a comparison the left split has the lower rank: it may be used for training or model selection before the right one
# is scored.
_RANKS = {"train": 0, "all": 1, "dev": 2, "test": 3}


@dataclass
class _Split:
    set: str
    split: str
    files: list[str]
    rows: pd.DataFrame
    twin: str = ""

    @property
    def name(self) -> str:
        return f"{self.set} {self.split}"


def report(data: Path) -> dict[str, Any]:
    """Read every known file of a folder and compare the splits. Raises `UserError` if no file is known."""
    numbers, files, groups = corpus.Corpus(), list[dict[str, Any]](), dict[tuple[str, str], dict[str, pd.DataFrame]]()
    for source in tqdm(sources(data), "reading", leave=False, disable=None):
        entry, frame = _file(source, numbers)
        files.append(entry)
        if frame is not None:
            groups.setdefault((source.set, source.split), {})[source.name] = frame
    splits = [_Split(*key, list(frames), _joined(frames)) for key, frames in groups.items()]
    _mark_twins(splits)
    return {
        "version": VERSION,
        "data": str(data),
        "definitions": DEFINITIONS,
        "broken": sum(entry["broken"] is not None for entry in files),
        "manifests": _manifests(data),
        "files": files,
        "splits": [_summary(split) for split in splits],
        "overlaps": _overlaps([split for split in splits if not split.twin], numbers),
    }


def _file(source: DataFile, numbers: corpus.Corpus) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """The report's entry for a file, and its frame of kept rows; None if its reader raises an error."""
    skipped: list[dict[str, Any]] = []
    warnings: list[dict[str, Any]] = []

    def kept() -> Iterator[tuple[str, tuple[str, ...], float]]:
        for row in source.read():
            if isinstance(row, Skipped):
                skipped.append({"line": row.line, "why": row.why})
                continue
            if row.note:
                warnings.append({"line": row.line, "why": row.note})
            yield row.id, row.texts, row.label

    entry: dict[str, Any] = {"file": source.name, "set": source.set, "split": source.split, "broken": None}
    try:
        frame = numbers.frame(kept())
    except UserError as error:
        return entry | {"broken": str(error)}, None
    entry |= {"read": len(frame) + len(skipped), "kept": len(frame), "skipped": skipped, "noted": warnings}
    entry |= {"labels": corpus.labels(frame["label"], scored=source.scored), "words": corpus.lengths(frame)}
    return entry | {"duplicates": corpus.duplicates(frame)}, frame


def _joined(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    if len(frames) == 1:
        return next(iter(frames.values()))
    return pd.concat(
        [frame.assign(place=f"{name} " + frame["place"]) for name, frame in frames.items()], ignore_index=True
    )


def _mark_twins(splits: list[_Split]) -> None:
    """Mark splits with exactly the rows of an earlier split, up to formatting; they are not compared again."""
    first: dict[bytes, _Split] = {}
    for split in splits:
        earlier = first.setdefault(np.sort(split.rows["row"]).tobytes(), split)
        split.twin = "" if earlier is split or split.rows.empty else earlier.name


def _summary(split: _Split) -> dict[str, Any]:
    return {
        **{"name": split.name, "set": split.set, "split": split.split, "files": split.files, "rows": len(split.rows)},
        **{"duplicates": corpus.duplicates(split.rows), "same_rows_as": split.twin or None},
    }


def _overlaps(splits: list[_Split], numbers: corpus.Corpus) -> list[dict[str, Any]]:
    """All comparisons between splits of the same set, and those between sets that have a text in common."""
    meeting = _sharing_a_text(splits, len(numbers.texts))
    pairs = [(i, j) for i, j in combinations(range(len(splits)), 2) if meeting[i, j] or splits[i].set == splits[j].set]
    results = []
    for pair in tqdm(pairs, "comparing", leave=False, disable=None):
        left, right = sorted((splits[index] for index in pair), key=lambda split: _RANKS[split.split])
        same_set = left.set == right.set
        watched = _RANKS[left.split] < _RANKS[right.split] and (same_set or left.split == "train")
        result = overlap(left.rows, right.rows)
        results.append({"watched": watched, "same_set": same_set, "left": left.name, "right": right.name, **result})
    return results


def _sharing_a_text(splits: list[_Split], texts: int) -> np.ndarray:
    """Whether two splits have a text in common, the empty one aside: [splits, splits]."""
    held = [np.unique(corpus.values(split.rows, "text")) for split in splits]
    rows = np.repeat(np.arange(len(held)), list(map(len, held)))
    matrix = csr_matrix((np.ones(len(rows), dtype=np.int32), (rows, np.concatenate(held))), (len(held), texts))[:, 1:]
    return (matrix @ matrix.T).toarray() > 0


def _manifests(data: Path) -> list[dict[str, Any]]:
    """For each fetched set: whether it is complete, and which files are missing or have changed since."""
    folders = (data, *sorted(path for path in data.iterdir() if path.is_dir()))
    return [_manifest(path, data) for folder in folders if (path := folder / "manifest.json").is_file()]


def _manifest(path: Path, data: Path) -> dict[str, Any]:
    result = {"manifest": path.relative_to(data).as_posix(), "complete": False, "files": 0, "broken": None}
    result |= {"missing": [], "changed": []}
    try:
        content = read_manifest(path)
    except UserError as error:
        return result | {"broken": str(error)}
    hashes = {entry["path"]: entry["sha256"] for entry in content["files"]}
    result |= {"complete": content.get("complete") is True, "files": len(hashes)}
    missing = sorted(name for name in hashes if not (path.parent / name).is_file())
    changed = [name for name in hashes if name not in missing and sha256_of(path.parent / name) != hashes[name]]
    return result | {"missing": missing, "changed": changed}
