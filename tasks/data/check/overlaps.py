"""Overlaps between two splits: rows that are equal, or have a text in common."""

from typing import Any

import numpy as np
import pandas as pd

from tasks.data.check.corpus import EXAMPLES, values

DEFINITIONS = {
    "same": "the row is in the other split too. Two texts are the same if their letters and digits are (case, width, "
    "white space and punctuation do not count), two pairs if their texts are, in either order",
    "same_order": "those of the same rows whose texts are in the same order",
    "sharing_a_sentence": "at least one text of the row is the same as a text of the other split, in any row",
    "word": "a run of letters and digits; a Chinese character is a word",
    "place": "a row is named by its id in the course's files and in SICK, else by its line",
}


def overlap(left: pd.DataFrame, right: pd.DataFrame) -> dict[str, Any]:
    """For each side, the number of rows that are also on the other side, with examples.

    `same` and `same_order` are None if the sides have different numbers of texts per row.
    """
    alike = _columns(left) == _columns(right)
    counts = {side: _counts(*pair, alike) for side, pair in (("of_left", (left, right)), ("of_right", (right, left)))}
    first = right.drop_duplicates("row").set_index("row")["place"]
    same = left[left["row"].isin(first.index)][:EXAMPLES] if alike else left[:0]
    return {**counts, "examples": [[place, first[row]] for place, row in zip(same["place"], same["row"], strict=True)]}


def _counts(rows: pd.DataFrame, against: pd.DataFrame, alike: bool) -> dict[str, int | None]:
    texts = values(rows, "text")
    shared = np.isin(texts, values(against, "text"), kind="table") & (texts > 0)
    return {
        "rows": len(rows),
        "same": int(_among(rows, against, "row").sum()) if alike else None,
        "same_order": int(_among(rows, against, "ordered").sum()) if alike else None,
        "sharing_a_sentence": int(shared.any(axis=1).sum()),
    }


def _columns(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame if name.startswith("text")]


def _among(rows: pd.DataFrame, against: pd.DataFrame, column: str) -> np.ndarray:
    return np.isin(rows[column].to_numpy(), against[column].to_numpy(), kind="table")
