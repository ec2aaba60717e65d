"""Guards: lists and padded batches go into a ragged batch and come back whole.

python -m pytest --import-mode=importlib tests/minbert/test_ragged.py
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from minbert import Ragged, UserError

rows_of_ids = st.lists(st.lists(st.integers(1, 2**31), min_size=1, max_size=9), min_size=1, max_size=7)


@st.composite
def padded_batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Any mask with a 1 in every row: padding right, left or in between."""
    width = draw(st.integers(1, 7))
    row = st.lists(st.booleans(), min_size=width, max_size=width).filter(any)
    mask = torch.tensor(draw(st.lists(row, min_size=1, max_size=5))).long()
    return torch.arange(1, mask.numel() + 1).view(mask.shape), mask


@given(padded_batches())
def test_padded_round_trip(batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    ragged = Ragged.from_padded(ids, mask)
    assert torch.equal(ragged.to_padded(ragged.ids, ids.shape[1]), ids * mask)
    vectors = ragged.ids.float()[:, None] * torch.ones(3)  # [T, 3]
    assert torch.equal(ragged.to_padded(vectors, ids.shape[1])[..., 2], (ids * mask).float())


@given(rows_of_ids)
def test_lists_equal_their_padded_form(rows: list[list[int]]) -> None:
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    ragged = Ragged.from_lists(rows)
    padded = Ragged.from_padded(ids, (ids > 0).long())
    assert ragged.lengths == padded.lengths
    for name in ("ids", "positions", "types"):
        assert torch.equal(getattr(ragged, name), getattr(padded, name))
    # where sentences begin and end
    assert ragged.ids[ragged.starts].tolist() == [row[0] for row in rows]
    assert ragged.cu_seqlens.tolist() == [sum(map(len, rows[:i])) for i in range(len(rows) + 1)]
    lengths: list[int] = []
    for count, length in ragged.groups:
        lengths += [length] * count
    assert lengths == list(ragged.lengths)


def test_empty_sentence_is_refused() -> None:
    for rows in ([], [[1], []]):
        with pytest.raises(UserError, match="every sentence at least one token"):
            Ragged.from_lists(rows)
    with pytest.raises(UserError, match="every sentence at least one token"):
        Ragged.from_padded(torch.ones(2, 2, dtype=torch.long), torch.tensor([[1, 1], [0, 0]]))
