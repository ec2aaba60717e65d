"""Guards: texts are near by their definition, found by index as by comparing all with all.

python -m pytest --import-mode=importlib tests/data/test_check_near.py
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.check import near
from data.check.near import Bags


def by_hand(bags: list[tuple[int, ...]], left: list[int], right: list[int]) -> set[tuple[int, int]]:
    """All with all, in exact fractions."""
    found = set()
    for place, one in enumerate(left):
        for other_place, other in enumerate(right):
            a, b = set(bags[one]), set(bags[other])
            if a and b and Fraction(len(a & b), len(a | b)) >= Fraction(4, 5):
                found.add((place, other_place))
    return found


# Few words and sets of up to 12 of them: near ones abound, and so do those that just fail.
sets = st.lists(st.frozensets(st.integers(0, 13), max_size=12), min_size=1, max_size=40, unique=True)


@settings(max_examples=100, deadline=None)
@given(sets=sets, data=st.data())
def test_the_index_finds_what_comparing_all_with_all_finds(sets: list[frozenset[int]], data: st.DataObject) -> None:
    bags = [tuple(sorted(one)) for one in sets]
    numbers = st.lists(st.integers(0, len(bags) - 1), unique=True, max_size=len(bags))
    left, right = data.draw(numbers), data.draw(numbers)
    places, others = Bags(bags, 14).links(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64))
    assert list(zip(places.tolist(), others.tolist(), strict=True)) == sorted(by_hand(bags, left, right))


@pytest.mark.parametrize("chunk", [1, 7, 1 << 21])
def test_larger_sets_in_chunks_of_any_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_CHUNK", chunk)
    draws = np.random.default_rng(5)
    seeds = [draws.choice(300, size=draws.integers(1, 40), replace=False) for _ in range(40)]
    found = {()}
    for seed in seeds:  # each with a few words left out and a few others put in
        for _ in range(4):
            kept = seed[draws.random(len(seed)) > 0.08]
            found.add(tuple(sorted({*kept.tolist(), *draws.integers(0, 300, size=draws.integers(0, 3)).tolist()})))
    bags = sorted(found)
    every = np.arange(len(bags))
    places, others = Bags(bags, 300).links(every[::2], every[1::2])
    expected = by_hand(bags, every[::2].tolist(), every[1::2].tolist())
    assert len(expected) > 20
    assert set(zip(places.tolist(), others.tolist(), strict=True)) == expected


def test_sets_of_five_and_of_nine_words_stand_on_the_edge() -> None:
    five, four, nine, eight, seven = (tuple(range(count)) for count in (5, 4, 9, 8, 7))
    other = (0, 1, 2, 3, 99)
    bags = [five, four, nine, eight, seven, other, ()]
    places, others = Bags(bags, 100).links(np.arange(7), np.arange(7))
    linked = set(zip(places.tolist(), others.tolist(), strict=True))
    assert {(0, 1), (2, 3), (3, 4)} <= linked  # 4/5, 8/9, 7/8
    assert not {(2, 4), (0, 5), (6, 6)} & linked  # 7/9, 4/6, and nothing is near a text without words
    assert (1, 5) in linked  # 4/5
