"""Rows, labels, duplicates and overlaps of data files: `python data/get_data.py check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks import readers
from tasks.data.files import DataFile, data_files
from tasks.tables import Table

_CLASSES = 12  # label columns with more different values than this are treated as scores
_FIRST = 5  # lines listed for each reason
_SAME, _SHARING = 0.01, 0.1  # shares of the scored rows; smaller overlaps of different sets are not shown
# A split may be used for training or model selection before the splits of a higher rank are scored.
_RANKS = {"train": 0, "all": 1, "dev": 2, "test": 3}
_FILE_NOTES = (
    "repeated: kept rows that are equal to an earlier row of the file, and those of them with another label",
    "labels: classes with their shares in %, or the range and the mean of scores",
    "words of a text: median, 95th percentile and maximum; a Chinese character is a word",
)
_OVERLAP_NOTES = (
    "same: rows that are in the training split too, whatever their case, width, spaces and punctuation, and",
    "      pairs in either order; sharing: rows with a text of the training split. The last column counts",
    "      the training rows that are the same. A dev split counts as training data for what it chose.",
)


_EMPTY = pd.util.hash_array(np.array([""], dtype=object))[0]


def report(data: Path) -> dict[str, Any]:
    """Read every known file of a folder and compare the splits. Raises `UserError` if no file is known."""
    entries, groups = list[dict[str, Any]](), dict[tuple[str, str], list[pd.DataFrame]]()
    for file in tqdm(data_files(data), "reading", leave=False, disable=None):
        entry, rows = _read(file)
        entries.append(entry)
        if rows is not None:
            groups.setdefault((file.set, file.split), []).append(rows)
    splits = {key: pd.concat(frames, ignore_index=True) for key, frames in groups.items()}
    return {"data": str(data), "files": entries, "overlaps": overlaps(splits)}


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """For each row its label, a hash of each text (`text0`, ...), and `row`, equal for equal rows.

    Texts are compared by `readers.text_key`. Pairs are equal in either order.
    """
    columns = len(rows[0].texts) if rows else 1
    keys = np.array([readers.text_key(text) for row in rows for text in row.texts], dtype=object)
    texts = pd.util.hash_array(keys).reshape(-1, columns)
    ordered = np.sort(texts, axis=1) if columns == 2 else texts
    names = [f"text{column}" for column in range(columns)]
    labels = np.array([row.label for row in rows], dtype=np.float64)
    numbers = pd.util.hash_pandas_object(pd.DataFrame(ordered), index=False).to_numpy()
    return pd.DataFrame(texts, columns=names).assign(label=labels, row=numbers)


def _read(file: DataFile) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """The report's entry for a file, and the frame of its kept rows; None if its reader raises an error."""
    entry: dict[str, Any] = {"file": file.name, "set": file.set, "split": file.split, "broken": None}
    try:
        every = list(file.read())
    except UserError as error:
        return entry | {"broken": str(error)}, None
    kept = [row for row in every if isinstance(row, Row)]
    rows, lengths = frame(kept), [len(readers.words(text)) for row in kept for text in row.texts]
    quantiles = np.percentile(lengths or [0], [50, 95, 100], method="inverted_cdf").astype(int).tolist()
    return entry | {
        "read": len(every),
        "kept": len(kept),
        "skipped": [{"line": row.line, "why": row.why} for row in every if isinstance(row, Skipped)],
        "noted": [{"line": row.line, "why": row.note} for row in kept if row.note],
        "labels": labels(rows["label"], scored=file.scored),
        "words": dict(zip(("p50", "p95", "max"), quantiles, strict=True)),
        **duplicates(rows),
    }, rows


def labels(column: pd.Series, *, scored: bool) -> dict[str, Any]:
    """Number of missing labels, and either the counts of classes or min, mean and max of scores."""
    present = column.dropna()
    result: dict[str, Any] = {"missing": int(column.isna().sum()), "counts": None, "scores": None}
    if present.empty:
        return result
    if not scored and present.nunique() <= _CLASSES:
        counts = present.astype(int).value_counts().sort_index()
        return result | {"counts": {str(label): int(count) for label, count in counts.items()}}
    return result | {"scores": {name: float(present.agg(name)) for name in ("min", "mean", "max")}}


def duplicates(rows: pd.DataFrame) -> dict[str, int]:
    """Rows that repeat an earlier row, and those of them whose label differs from that of the first equal row."""
    repeated, first = rows.duplicated("row"), rows.groupby("row")["label"].transform("first")
    disagreeing = repeated & first.notna() & rows["label"].ne(first)
    return {"repeated": int(repeated.sum()), "disagreeing": int(disagreeing.sum())}


def overlaps(splits: dict[tuple[str, str], pd.DataFrame]) -> list[dict[str, Any]]:
    """The rows shared by two splits of a set, and by the train split of a set and the scored splits of another.

    `splits` maps set and split to a `frame`. `same` counts the scored rows that are in the training split, `sharing`
    those with a text of it, and `training_same` the training rows that are in the scored split.
    """
    rows = {key: pd.Index(of_split["row"].unique()) for key, of_split in splits.items()}
    results = []
    for left, training in tqdm(splits.items(), "comparing", leave=False, disable=None):
        known = pd.Index(np.unique(_texts(training))).drop(_EMPTY, errors="ignore")
        for right, scored in splits.items():
            same_set = left[0] == right[0]
            if _RANKS[left[1]] >= _RANKS[right[1]] or not (same_set or left[1] == "train"):
                continue
            texts = _texts(scored)
            shared = known.get_indexer(texts.ravel()).reshape(texts.shape) >= 0
            results.append(
                {
                    "training": " ".join(left),
                    "scored": " ".join(right),
                    "same_set": same_set,
                    "training_rows": len(training),
                    "rows": len(scored),
                    "same": int((rows[left].get_indexer(scored["row"]) >= 0).sum()),
                    "sharing": int(shared.any(axis=1).sum()),
                    "training_same": int((rows[right].get_indexer(training["row"]) >= 0).sum()),
                }
            )
    return results


def _texts(rows: pd.DataFrame) -> np.ndarray:
    return rows.filter(like="text").to_numpy()


def render(content: dict[str, Any]) -> str:
    """The tables of a report as one text."""
    sound = [entry for entry in content["files"] if entry["broken"] is None]
    broken = [f"  {entry['broken']}" for entry in content["files"] if entry["broken"] is not None]
    parts = [_file_table(content["data"], sound), _overlap_table(content["overlaps"])]
    for title, key in (("Skipped rows", "skipped"), ("Kept rows with a gap", "noted")):
        lines = [line for entry in sound for line in _reasons(entry["file"], entry[key])]
        parts += ["\n".join([title, *lines])] if lines else []
    parts += ["\n".join(["Broken files, left out above", *broken])] if broken else []
    return "\n\n".join(parts)


def _file_table(data: str, entries: list[dict[str, Any]]) -> str:
    rows = [
        {
            "": entry["file"],
            **{name: f"{entry[name]:,}" for name in ("read", "kept")},
            "skipped": f"{len(entry['skipped']):,}",
            "repeated": f"{entry['repeated']:,} ({entry['disagreeing']:,})",
            "labels": _labels(entry["labels"]),
            "words": " ".join(f"{count:,}" for count in entry["words"].values()),
        }
        for entry in entries
    ]
    return Table(f"Files of {data}", pd.DataFrame(rows), _FILE_NOTES).terminal()


def _labels(labels: dict[str, Any]) -> str:
    if scores := labels["scores"]:
        return f"{scores['min']:g}-{scores['max']:g}, mean {scores['mean']:.2f}"
    counts = labels["counts"] or {}
    shares = " ".join(f"{100 * count / sum(counts.values()):.0f}" for count in counts.values())
    return f"{min(counts, key=int)}-{max(counts, key=int)}: {shares}" if counts else "-"


def _overlap_table(pairs: list[dict[str, Any]]) -> str:
    shown = [pair for pair in pairs if _matters(pair)]
    rows = [
        {
            "training split": pair["training"],
            "scored split": pair["scored"],
            "rows": f"{pair['rows']:,}",
            **{name: f"{pair[name]:,} ({pair[name] / pair['rows']:.1%})" for name in ("same", "sharing")},
            "training rows": f"{pair['training_same']:,} of {pair['training_rows']:,}",
        }
        for pair in shown
    ]
    hidden = f"{len(pairs) - len(shown)} comparisons with less overlap or none are not shown."
    title = "Overlaps of scored splits with training splits"
    return Table(title, pd.DataFrame(rows), (hidden, *_OVERLAP_NOTES), left=2).terminal()


def _matters(pair: dict[str, Any]) -> bool:
    same, sharing, rows = pair["same"], pair["sharing"], pair["rows"]
    return bool(sharing and (pair["same_set"] or same >= _SAME * rows or sharing >= _SHARING * rows))


def _reasons(name: str, rows: list[dict[str, Any]]) -> list[str]:
    reasons: dict[str, list[int]] = {}
    for row in rows:
        reasons.setdefault(row["why"], []).append(row["line"])
    lines = []
    for reason, numbers in reasons.items():
        first = ", ".join(map(str, numbers[:_FIRST])) + (", ..." if len(numbers) > _FIRST else "")
        lines.append(f"    {len(numbers):,}: {reason} (line {first})")
    return [f"  {name}", *lines] if lines else []
