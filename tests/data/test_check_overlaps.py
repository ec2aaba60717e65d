"""Guards: same and sharing rows are those of a plain loop over all rows; duplicates, labels and lengths.

Near texts are found by the index exactly as by comparing all with all.

python -m pytest --import-mode=importlib tests/data/test_check_overlaps.py
"""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from tasks.data.check.corpus import Corpus, duplicates, labels, lengths
from tasks.data.check.overlaps import overlap

Rows = list[tuple[str, ...]]
WORDS = ["the", "a", "small", "old", "brown", "dog", "cat", "girl", "man", "runs", "sleeps", "sits", "in", "near"]
WORDS += ["under", "park", "house", "tree", "rain", "today"]


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum()) or text


def ways(row: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [row, row[::-1]] if len(row) == 2 else [row]


def alike(one: tuple[str, ...], other: tuple[str, ...], test: Callable[[str, str], bool]) -> bool:
    return any(all(test(a, b) for a, b in zip(one, way, strict=True)) for way in ways(other))


def equal(one: str, other: str) -> bool:
    return plain(one) == plain(other)


def by_hand(rows: Rows, others: Rows) -> dict[str, int]:
    same = [any(alike(row, other, equal) for other in others) for row in rows]
    ordered = [any(all(map(equal, row, other)) for other in others) for row in rows]
    known = {plain(text) for other in others for text in other} - {""}
    return {
        "rows": len(rows),
        "same": sum(same),
        "same_order": sum(ordered),
        "sharing_a_sentence": sum(any(plain(text) in known for text in row) for row in rows),
    }


def frame(corpus: Corpus, name: str, rows: Rows, values: list[float] | None = None) -> pd.DataFrame:
    values = values or [math.nan] * len(rows)
    return corpus.frame(((f"{name}{i}", row, value) for i, (row, value) in enumerate(zip(rows, values))))


def sentences(draws: np.random.Generator, count: int) -> list[str]:
    """Sentences of 4 to 12 words, each with some that differ in a word, in case, or in their marks."""
    found = []
    while len(found) < count:
        words = [WORDS[place] for place in draws.permutation(len(WORDS))[: draws.integers(4, 13)]]
        found.append(" ".join(words))
        found.append(" ".join(words).title() + " .")
        found.append(" ".join([*words[1:], WORDS[draws.integers(len(WORDS))]]) + "!")
    return [*found, "", "?"]


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_overlaps_are_those_of_a_plain_loop(columns: int, seed: int) -> None:
    draws = np.random.default_rng((seed, columns))
    pool = sentences(draws, 24 if columns == 1 else 9)
    left, right = ([tuple(draws.choice(pool, size=columns).tolist()) for _ in range(count)] for count in (60, 45))
    corpus = Corpus()
    one, other = frame(corpus, "l", left), frame(corpus, "r", right)
    found = overlap(one, other)
    assert found["of_left"] == by_hand(left, right)
    assert found["of_right"] == by_hand(right, left)
    for first, second in found["examples"]:
        assert alike(left[int(first[1:])], right[int(second[1:])], equal)
    assert bool(found["examples"]) == bool(found["of_left"]["same"])


def test_rows_of_different_width_only_share_sentences() -> None:
    corpus = Corpus()
    one = frame(corpus, "l", [("A dog runs .", "A cat sits ."), ("Rain today", "Rain tomorrow")])
    other = frame(corpus, "r", [("a dog runs",), ("?",), ("snow",)])
    found = overlap(one, other)
    assert found["of_left"] == {"rows": 2, "same": None, "same_order": None, "sharing_a_sentence": 1}
    assert found["of_right"]["sharing_a_sentence"] == 1


def test_duplicates_swapped_pairs_and_labels_that_disagree() -> None:
    rows: Rows = [("A dog.", "A cat"), ("a dog", "a cat!"), ("A CAT", "a dog"), ("a dog", "a bird"), ("a dog", "a cat")]
    corpus = Corpus()
    found = duplicates(frame(corpus, "x", rows, [1.0, 1.0, 0.0, 0.0, 1.0]))
    assert (found["rows"], found["swapped"], found["disagreeing"]) == (3, 1, 1)
    assert found["examples"] == [["x0", "x1"], ["x0", "x2"], ["x0", "x4"]]
    assert duplicates(frame(corpus, "y", [*rows, *rows]))["disagreeing"] == 0  # no labels, no quarrel


def test_a_triplet_is_another_one_in_another_order() -> None:
    rows: Rows = [("a dog", "a cat", "a bird"), ("a cat", "a dog", "a bird")]
    assert duplicates(frame(Corpus(), "x", rows))["rows"] == 0


def test_labels_are_counted_as_classes_or_as_scores() -> None:
    found = labels(pd.Series([1.0, 0.0, math.nan, 1.0]), scored=False)
    assert found == {"missing": 1, "counts": {"0": 1, "1": 2}, "scores": None}
    found = labels(pd.Series([0.0, 0.5, 2.5, 5.0]), scored=True)["scores"]
    assert (found["min"], found["mean"], found["max"]) == (0.0, 2.0, 5.0)
    assert found["histogram"] == {"edges": [0, 1, 2, 3, 4, 5], "counts": [2, 0, 1, 0, 1]}
    assert labels(pd.Series([math.nan]), scored=True) == {"missing": 1, "counts": None, "scores": None}
    assert sum(labels(pd.Series([2.0] * 3), scored=True)["scores"]["histogram"]["counts"]) == 3


def test_lengths_are_those_of_all_texts_in_words() -> None:
    rows: Rows = [(" ".join(["w"] * count), "one two") for count in (1, 2, 3, 600)]
    found = lengths(frame(Corpus(), "x", rows))
    assert found["texts"] == 8 and found["histogram"] == {"1": 1, "2": 5, "3": 1, "600": 1}
    assert (found["p50"], found["p95"], found["max"]) == (2, 600, 600)
    assert found["mean"] == pytest.approx((1 + 2 + 3 + 600 + 8) / 8)
    assert found["long"] == ["x3"]
