"""Overlaps between two splits: rows that are equal, near-duplicates, or have a text in common."""

from typing import Any

import numpy as np
import pandas as pd

from tasks.data.check.corpus import EXAMPLES, values
from tasks.data.check.near import WordSets


def overlap(left: pd.DataFrame, right: pd.DataFrame) -> dict[str, Any]:
    """For each side, the number of rows that are also on the other side, with examples.

    `same` and `same_order` are None if the sides have different numbers of texts per row; `near` is None until
    `add_near` has counted it.
    """
    alike = _columns(left) == _columns(right)
    found = {side: _counts(*pair, alike) for side, pair in (("of_left", (left, right)), ("of_right", (right, left)))}
    first = right.drop_duplicates("row").set_index("row")["place"]
    same = left[left["row"].isin(first.index)][:EXAMPLES] if alike else left[:0]
    return {**found, "examples": [[place, first[row]] for place, row in zip(same["place"], same["row"], strict=True)]}


def _counts(one: pd.DataFrame, other: pd.DataFrame, alike: bool) -> dict[str, int | None]:
    texts = values(one, "text")
    shared = np.isin(texts, values(other, "text"), kind="table") & (texts > 0)
    return {
        "rows": len(one),
        "same": int(_among(one, other, "row").sum()) if alike else None,
        "same_order": int(_among(one, other, "ordered").sum()) if alike else None,
        "near": None,
        "sharing_a_sentence": int(shared.any(axis=1).sum()),
    }


def add_near(found: dict[str, Any], left: pd.DataFrame, right: pd.DataFrame, sets: WordSets) -> None:
    """Count the rows that are near a row of the other side, without those equal to one; writes into `found`."""
    if _columns(left) == _columns(right):
        of_left, of_right = _near(left, right, sets)
        found["of_left"]["near"] = int((of_left & ~_among(left, right, "row")).sum())
        found["of_right"]["near"] = int((of_right & ~_among(right, left, "row")).sum())


def _columns(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame if name.startswith("bag")]


def _among(one: pd.DataFrame, other: pd.DataFrame, column: str) -> np.ndarray:
    return np.isin(one[column].to_numpy(), other[column].to_numpy(), kind="table")


def _near(left: pd.DataFrame, right: pd.DataFrame, sets: WordSets) -> tuple[np.ndarray, np.ndarray]:
    """For each side, a mask of rows whose texts are all near those of one row of the other; pairs in either order."""
    columns = _columns(left)
    one, other = left[columns].drop_duplicates(), right[columns].drop_duplicates()
    near = sets.near(np.unique(one), np.unique(other))
    partners = [f"near {column}" for column in columns]
    for column, partner in zip(columns, partners, strict=True):
        one = one.merge(pd.DataFrame(dict(zip((column, partner), near, strict=True))), on=column)
    hits = []
    for order in [partners, partners[::-1]] if len(columns) == 2 else [partners]:
        hits.append(one.merge(other.set_axis(order, axis=1), on=partners)[[*columns, *order]].to_numpy())
    found = np.concatenate(hits)
    return _rows_among(left[columns], found[:, : len(columns)]), _rows_among(right[columns], found[:, len(columns) :])


def _rows_among(rows: pd.DataFrame, others: np.ndarray) -> np.ndarray:
    known = pd.DataFrame(others, columns=rows.columns).drop_duplicates().assign(known=True)
    return rows.merge(known, how="left", on=list(rows.columns))["known"].notna().to_numpy()
