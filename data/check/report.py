"""The whole report as one value for JSON: files, splits, and the overlaps between splits."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from data.check import statistics
from data.check.corpus import Corpus, Part, join
from data.check.fetched import manifests
from data.check.found import Source, sources
from data.check.near import Bags
from data.check.overlaps import add_near, overlap
from minbert.errors import UserError
from minbert.token_cache import Skipped

VERSION = 1
DEFINITIONS = {
    "same": "two texts are the same when their letters and digits are (case, width, white space and punctuation do not "
    "count); two pairs are when their texts are, in either order",
    "same_order": "those of the same rows whose texts stand in the same order",
    "near": "not the same, but each text of the row has its counterpart in one row of the other side, in either order, "
    "and their sets of words have a Jaccard index of 0.8 or more",
    "sharing_a_sentence": "at least one text of the row is the same as some text of the other side",
    "word": "a run of letters and digits; a Chinese character is a word",
    "place": "a row is named by its id in the course's files and in SICK, else by its line",
}
# What is trained on stands left in a comparison, what is chosen by and tested on stands right.
_RANKS = {"train": 0, "all": 1, "dev": 2, "test": 3}


@dataclass
class _Split:
    set: str
    split: str
    files: list[str]
    part: Part
    twin: str = ""


def report(data: Path) -> dict[str, Any]:
    """Read every known file of a folder and compare the splits. Raises `UserError` where no file is known."""
    corpus, files, groups = Corpus(), list[dict[str, Any]](), dict[tuple[str, str], list[Part]]()
    for source in tqdm(sources(data), unit="file", disable=None, leave=False):
        entry, part = account(source, corpus)
        files.append(entry)
        if part is not None:
            groups.setdefault((source.set, source.split), []).append(part)
    splits = [_Split(*key, [part.name for part in parts], join(" ".join(key), parts)) for key, parts in groups.items()]
    _mark_twins(splits)
    return {
        "version": VERSION,
        "data": str(data),
        "definitions": DEFINITIONS,
        "broken": sum(entry["broken"] is not None for entry in files),
        "manifests": manifests(data),
        "files": files,
        "splits": [_summary(split) for split in splits],
        "overlaps": _overlaps([split for split in splits if not split.twin], corpus),
    }


def account(source: Source, corpus: Corpus) -> tuple[dict[str, Any], Part | None]:
    """What a file holds; without a part where its reader refuses it. Every row read is kept or listed as skipped."""
    skipped: list[dict[str, Any]] = []
    noted: list[dict[str, Any]] = []

    def kept() -> Iterator[tuple[str, tuple[str, ...], float]]:
        for row in source.read():
            if isinstance(row, Skipped):
                skipped.append({"line": row.line, "why": row.why})
                continue
            if row.note:
                noted.append({"line": row.line, "why": row.note})
            yield row.id, row.texts, row.label

    entry: dict[str, Any] = {"file": source.name, "set": source.set, "split": source.split, "broken": None}
    try:
        part = corpus.part(source.name, kept())
    except UserError as error:
        return entry | {"broken": str(error)}, None
    entry |= {"read": len(part) + len(skipped), "kept": len(part), "skipped": skipped, "noted": noted}
    entry |= {"labels": statistics.labels(part.labels, scored=source.scored), "words": statistics.lengths(part)}
    return entry | {"duplicates": statistics.duplicates(part)}, part


def _summary(split: _Split) -> dict[str, Any]:
    return {
        "name": split.part.name,
        "set": split.set,
        "split": split.split,
        "files": split.files,
        "rows": len(split.part),
        "duplicates": statistics.duplicates(split.part),
        "same_rows_as": split.twin or None,
    }


def _mark_twins(splits: list[_Split]) -> None:
    """A split that holds just the rows of an earlier one, in whatever spelling, is named so and compared with none."""
    first: dict[bytes, str] = {}
    for split in splits:
        earlier = first.setdefault(np.sort(split.part.rows).tobytes(), split.part.name)
        split.twin = "" if earlier == split.part.name or not len(split.part) else earlier


def _overlaps(splits: list[_Split], corpus: Corpus) -> list[dict[str, Any]]:
    """All comparisons of a set's own splits, and those of different sets that share a row or a sentence."""
    bags = Bags(list(corpus.bags), len(corpus.vocabulary))
    found = []
    for pair in tqdm(list(combinations(splits, 2)), unit="comparison", disable=None, leave=False):
        one, other = sorted(pair, key=lambda split: _RANKS[split.split])
        watched, own = _watched(one, other), one.set == other.set
        result = overlap(one.part, other.part)
        if own or result["of_left"]["sharing_a_sentence"]:
            if watched:
                add_near(result, one.part, other.part, bags)
            found.append({"watched": watched, "same_set": own, **result})
    return found


def _watched(one: _Split, other: _Split) -> bool:
    """Whether the left side may have been learnt from, or chosen by, before the right side is scored."""
    return _RANKS[one.split] < _RANKS[other.split] and (one.set == other.set or one.split == "train")
