"""Guards: randomness is a pure function of (seed, counter), in 32 bits for torch.

python -m pytest --import-mode=importlib tests/minbert/test_seeds.py
"""

from hypothesis import example, given
from hypothesis import strategies as st

from minbert.seeds import digest, numpy_generator, torch_seed

part = st.one_of(st.integers(-(2**40), 2**40), st.text("ab1:0", max_size=4))
counters = st.tuples(st.integers(0, 2**63), st.lists(part, max_size=4))


@example((0, [1]), (0, ["1"]))
@example((0, ["ab", "b"]), (0, ["a", "bb"]))
@example((1, [1]), (11, []))
@example((0, [1, 2]), (0, [1, 3]))
@example((0, ["a"]), (0, ["a"]))
@given(counters, counters)
def test_equal_counters_agree(a: tuple[int, list[int | str]], b: tuple[int, list[int | str]]) -> None:
    assert (digest(a[0], *a[1]) == digest(b[0], *b[1])) == (a == b)
    assert 0 <= torch_seed(a[0], *a[1]) < 2**32


def test_draws_stay_the_same() -> None:
    """Runs are resumed and repeated by these numbers: a change here changes every published run."""
    assert torch_seed(11711, "dropout", 3) == 3187144097
    assert numpy_generator(11711, "order", 0).permutation(6).tolist() == [1, 4, 2, 5, 0, 3]
