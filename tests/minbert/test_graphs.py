"""Guards: the fixed sizes of CUDA graphs hold every batch; `test_cuda.py` has what needs a GPU.

python -m pytest --import-mode=importlib tests/minbert/test_graphs.py
"""

from hypothesis import given
from hypothesis import strategies as st

from minbert.graphs import filled, sizes


@given(st.lists(st.integers(1, 510), min_size=1, max_size=300), st.integers(4, 512))
def test_a_size_holds_the_batch_and_its_sentences(lengths: list[int], positions: int) -> None:
    lengths = [min(length, positions) for length in lengths]
    tokens, sentences, bound = sizes(lengths, positions)
    all_lengths = filled(lengths, tokens, sentences)
    assert all_lengths[: len(lengths)] == lengths
    assert (len(all_lengths), sum(all_lengths)) == (sentences, tokens)
    assert min(all_lengths) >= 1 and max(all_lengths) <= bound <= positions
    assert tokens - bound >= sentences - 1, "no token for one of the others"
    assert tokens - sum(lengths) <= 64 + 256 + sum(lengths) // 8
