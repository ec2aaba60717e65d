"""Guards: overlaps are those that a plain loop over the rows counts.

python -m pytest --import-mode=importlib tests/tasks/readers/test_overlap.py
"""

from itertools import permutations

import numpy as np
import pytest

from tasks.readers.overlap import ScoredRows, Texts


def plain(row: Texts) -> Texts:
    return tuple("".join(letter for letter in text.lower() if letter.isalnum()) or text for text in row)


def by_hand(rows: list[Texts], other_rows: list[Texts]) -> tuple[int, int, int]:
    """The rows, those that are some texts of one of the others in any order, and those that share a text with them."""
    parts = {part for row in other_rows for count in (1, 2) for part in permutations(plain(row), count)}
    same = sum(plain(row) in parts for row in rows)
    return len(rows), same, sum(any((text,) in parts for text in plain(row)) for row in rows)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("training_columns", [1, 2, 3])
def test_overlaps_equal_a_plain_loop(columns: int, training_columns: int) -> None:
    generator = np.random.default_rng(columns)
    words = ["dog", "cat", "girl"] if columns > 1 else [f"word{n}" for n in range(50)]
    pool = [form for word in words for form in (word, f"{word.title()} .", f"the {word}!")] + ["", "?"]
    train = [tuple(generator.choice(pool, training_columns).tolist()) for _ in range(40)]
    test, dev = ([tuple(generator.choice(pool, columns).tolist()) for _ in range(45)] for _ in range(2))
    scored = ScoredRows({"test": test, "dev": dev})
    texts = scored.numbers_in(train)
    for name, rows in (("test", test), ("dev", dev)):
        expected = by_hand(rows, train)
        assert scored.overlap(name, texts) == expected and expected[2]
