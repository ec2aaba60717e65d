"""Which rows of one split stand in another: the same, nearly the same, or with a sentence in common."""

from itertools import product
from typing import Any

import numpy as np

from data.check.corpus import Part
from data.check.near import Bags

EXAMPLES = 5


def overlap(left: Part, right: Part) -> dict[str, Any]:
    """Counts of rows on both sides.

    `same` rows are None where the two splits have not equally many texts a row; `same_order` are those of them whose
    texts stand in the same order. `near` is None until `add_near` counts it.
    """
    alike = left.sentences.shape[1] == right.sentences.shape[1]
    found: dict[str, Any] = {"left": left.name, "right": right.name}
    for side, one, other in (("of_left", left, right), ("of_right", right, left)):
        found[side] = {
            "rows": len(one),
            "same": int(present(one.rows, other.rows).sum()) if alike else None,
            "same_order": int(present(one.ordered, other.ordered).sum()) if alike else None,
            "near": None,
            "sharing_a_sentence": int(_sharing(one, other).sum()),
        }
    found["examples"] = _examples(left, right) if alike else []
    return found


def add_near(found: dict[str, Any], left: Part, right: Part, bags: Bags) -> None:
    """Count the rows that are near a row of the other side and not the same as one."""
    if left.sentences.shape[1] == right.sentences.shape[1]:
        close, met = near_rows(left, right, bags)
        found["of_left"]["near"] = int((close & ~present(left.rows, right.rows)).sum())
        found["of_right"]["near"] = int((met & ~present(right.rows, left.rows)).sum())


def _sharing(one: Part, other: Part) -> np.ndarray:
    shared = present(one.sentences, other.sentences) & (one.sentences > 0)
    return np.any(shared, axis=1)


def present(numbers: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether each number is among the others; numbers are small and not negative."""
    marked = np.zeros(max(numbers.max(initial=0), others.max(initial=0)) + 1, dtype=bool)
    marked[others] = True
    return marked[numbers]


def near_rows(left: Part, right: Part, bags: Bags) -> tuple[np.ndarray, np.ndarray]:
    """Rows of either side each of whose texts is near one text of one row of the other side; pairs in either order."""
    kinds, of_left = np.unique(left.bags, axis=0, return_inverse=True)
    others, of_right = np.unique(right.bags, axis=0, return_inverse=True)
    partners = _partners(_distinct(kinds), _distinct(others), bags)
    places = {tuple(row): place for place, row in enumerate(others.tolist())}
    hit, met = np.zeros(len(kinds), dtype=bool), np.zeros(len(others), dtype=bool)
    for place, row in enumerate(kinds.tolist()):
        for choice in product(*(partners.get(bag, ()) for bag in row)):
            ways = (choice, choice[::-1]) if len(choice) == 2 else (choice,)
            for other in (places[way] for way in ways if way in places):
                hit[place] = met[other] = True
    return hit[of_left.ravel()], met[of_right.ravel()]


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Sorted, each once; numbers are small and not negative."""
    return np.flatnonzero(np.bincount(numbers.ravel()))


def _partners(left: np.ndarray, right: np.ndarray, bags: Bags) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    places, others = bags.links(left, right)
    for one, other in zip(left[places].tolist(), right[others].tolist(), strict=True):
        found.setdefault(one, []).append(other)
    return found


def _examples(left: Part, right: Part) -> list[list[str]]:
    places = np.flatnonzero(present(left.rows, right.rows))[:EXAMPLES].tolist()
    first = {int(row): place for place, row in reversed(list(enumerate(right.rows.tolist())))} if places else {}
    return [[left.places[place], right.places[first[int(left.rows[place])]]] for place in places]
