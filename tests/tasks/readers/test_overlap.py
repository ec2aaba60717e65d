"""Guards: overlaps are those that a plain loop over the rows counts.

python -m pytest --import-mode=importlib tests/tasks/readers/test_overlap.py
"""

from itertools import permutations

import numpy as np
import pytest

from tasks.readers.overlap import ScoredRows, Texts


def plain(text: str) -> str:
    """The letters and digits of a text; a text without any stays as it is."""
    letters = "".join(letter for letter in text.lower() if letter.isalnum())
    return letters or text


def by_hand(rows: list[Texts], other_rows: list[Texts]) -> tuple[int, int, int]:
    """The rows, those that are some texts of one of the others in any order, and those that share a text with them."""
    parts = set[Texts]()
    for row in other_rows:
        texts = [plain(text) for text in row]
        parts.update(permutations(texts, 1), permutations(texts, 2))
    same = 0
    sharing = 0
    for row in rows:
        texts = [plain(text) for text in row]
        same += tuple(texts) in parts
        sharing += any((text,) in parts for text in texts)
    return len(rows), same, sharing


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("training_columns", [1, 2, 3])
def test_overlaps_equal_a_plain_loop(columns: int, training_columns: int) -> None:
    generator = np.random.default_rng(columns)
    words = [f"word{number}" for number in range(50)]
    if columns == 2:
        words = ["dog", "cat", "girl"]  # few, so that whole pairs are met again
    pool = []
    for word in words:
        pool += [word, f"{word.title()} .", f"the {word}!"]
    pool += ["", "?"]
    train = [*map(tuple, generator.choice(pool, (40, training_columns)).tolist())]
    test = [*map(tuple, generator.choice(pool, (45, columns)).tolist())]
    dev = [*map(tuple, generator.choice(pool, (45, columns)).tolist())]
    scored = ScoredRows({"test": test, "dev": dev})
    numbers = scored.numbers_in(train)
    for name, rows in (("test", test), ("dev", dev)):
        expected = by_hand(rows, train)
        assert scored.overlap(name, numbers) == expected
        assert expected[2] > 0
