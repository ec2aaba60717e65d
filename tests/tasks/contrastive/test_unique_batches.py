"""Guards: rows are exchanged between batches as by a plain search through all of them.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_unique_batches.py
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.contrastive.unique_batches import sentence_numbers, separate_repeats


def test_equal_inputs_have_one_number(examples_of: Callable[..., Any]) -> None:
    """Equal to the encoder: whatever the case, and beyond the longest input."""
    long = "the dog runs " * 9
    numbers = sentence_numbers(examples_of([("a cat", "A cat"), (long + "a cat", long + "a tree")], max_length=8))
    assert numbers[0, 0] == numbers[0, 1] != numbers[1, 0] == numbers[1, 1]


def clashes(rows: list[int], texts: np.ndarray) -> int:
    """The pairs of rows of a batch of which one has an anchor or a positive that is a text of the other."""
    count = 0
    for first, second in combinations(texts[rows].tolist(), 2):
        if {*first[:2]} & {*second} or {*second[:2]} & {*first}:
            count += 1
    return count


@example(4, 1, 3, 7, 2, 36)
@given(
    st.integers(1, 40), st.integers(1, 3), st.integers(1, 8), st.integers(1, 80), st.integers(1, 2), st.integers(0, 99)
)
def test_exchange_is_its_plain_form(
    size: int, columns: int, batch_size: int, numbers: int, times: int, seed: int
) -> None:
    """The batches are those of a search through all places of all batches, which compares all texts each time."""
    random = np.random.default_rng(seed)
    texts = random.integers(0, numbers, (size, columns))
    batches = []
    # with `--equal-steps` an epoch may draw a row several times
    for _ in range(times):
        order = random.permutation(size)
        batches += [order[start : start + batch_size] for start in range(0, size, batch_size)]
    limits = np.sort(random.integers(1, size + 1, len(batches))).tolist()
    plain = [batch.tolist() for batch in batches]

    def fits(row: int, others: list[int]) -> bool:
        return not any(clashes([row, other], texts) for other in others)

    def swap(number: int, place: int) -> None:
        row = plain[number][place]
        others = [other for other in plain[number] if other != row]
        for target in [*range(number + 1, len(plain)), *range(number)]:
            if row >= limits[target] or not fits(row, plain[target]):
                continue
            for index, candidate in enumerate(plain[target]):
                if candidate < limits[number] and fits(candidate, others):
                    plain[number][place], plain[target][index] = candidate, row
                    return

    for number, batch in enumerate(plain):
        kept: list[int] = []
        places = []
        for place, row in enumerate(batch):
            if fits(row, kept):
                kept.append(row)
            else:
                places.append(place)
        for place in places:
            swap(number, place)
    exchanged = [batch.tolist() for batch in separate_repeats(batches, limits, texts)]
    assert exchanged == plain
