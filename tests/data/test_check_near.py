"""Guards: near texts are found by the index exactly as by comparing all with all.

python -m pytest --import-mode=importlib tests/data/test_check_near.py
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.check import overlaps
from tasks.data.check.overlaps import WordSets


def by_hand(bags: list[tuple[int, ...]], left: list[int], right: list[int]) -> set[tuple[int, int]]:
    """All with all, in exact fractions."""
    found = set()
    for one in left:
        for other in right:
            a, b = set(bags[one]), set(bags[other])
            if a and b and Fraction(len(a & b), len(a | b)) >= Fraction(4, 5):
                found.add((one, other))
    return found


# Few words and sets of up to 12 of them: near ones abound, and so do those that just fail.
sets = st.lists(st.frozensets(st.integers(0, 13), max_size=12), min_size=1, max_size=40, unique=True)


@settings(max_examples=100, deadline=None)
@given(sets=sets, data=st.data())
def test_the_index_finds_what_comparing_all_with_all_finds(sets: list[frozenset[int]], data: st.DataObject) -> None:
    bags = [tuple(sorted(one)) for one in sets]
    numbers = st.lists(st.integers(0, len(bags) - 1), unique=True, max_size=len(bags))
    left, right = data.draw(numbers), data.draw(numbers)
    found = WordSets(bags, 14).near(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64))
    assert sorted(zip(*map(np.ndarray.tolist, found), strict=True)) == sorted(by_hand(bags, left, right))


@pytest.mark.parametrize("candidates", [1, 7, 1 << 21])
def test_larger_sets_in_batches_of_any_size(candidates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlaps, "_CANDIDATES", candidates)
    draws = np.random.default_rng(5)
    seeds = [draws.choice(300, size=draws.integers(1, 40), replace=False) for _ in range(40)]
    found = {()}
    for seed in seeds:  # each with a few words left out and a few others put in
        for _ in range(4):
            kept = seed[draws.random(len(seed)) > 0.08]
            found.add(tuple(sorted({*kept.tolist(), *draws.integers(0, 300, size=draws.integers(0, 3)).tolist()})))
    bags = sorted(found)
    every = np.arange(len(bags))
    found_pairs = WordSets(bags, 300).near(every[::2], every[1::2])
    expected = by_hand(bags, every[::2].tolist(), every[1::2].tolist())
    assert len(expected) > 20
    assert set(zip(*map(np.ndarray.tolist, found_pairs), strict=True)) == expected


def test_sets_of_five_and_of_nine_words_stand_on_the_edge() -> None:
    five, four, nine, eight, seven = (tuple(range(count)) for count in (5, 4, 9, 8, 7))
    other = (0, 1, 2, 3, 99)
    bags = [five, four, nine, eight, seven, other, ()]
    linked = set(zip(*map(np.ndarray.tolist, WordSets(bags, 100).near(np.arange(7), np.arange(7))), strict=True))
    assert {(0, 1), (2, 3), (3, 4)} <= linked  # 4/5, 8/9, 7/8
    assert not {(2, 4), (0, 5), (6, 6)} & linked  # 7/9, 4/6, and nothing is near a text without words
    assert (1, 5) in linked  # 4/5
