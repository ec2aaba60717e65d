"""Guards: inputs equal those of transformers' tokenizer, token by token; truncation, lengths and cache keep their laws.

python -m pytest --import-mode=importlib tests/tasks/test_examples.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert import Ragged, token_cache
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from tasks.examples import Pair, Single

SENTENCES = [
    "The cat sat on the mat.",
    "who is not happy?",
    "A bird, a dog and a tree!",
    "runs",
    "Antidisestablishmentarianism under the caf\u00e9's tree is very very long, isn't it, and who runs on and on?",
    "\u4e2d\u6587 zzz [MASK] x",
]


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> Tokenizer:
    return Tokenizer.load(tiny)


@pytest.fixture(scope="module")
def theirs(tiny: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny)


def lists(ragged: Ragged) -> list[tuple[list[int], list[int]]]:
    """(ids, types) of each sentence; positions must count from 0."""
    parts = zip(*(x.split(list(ragged.lengths)) for x in (ragged.ids, ragged.types, ragged.positions)), strict=True)
    result = []
    for ids, types, positions in parts:
        assert positions.tolist() == list(range(len(ids)))
        result.append((ids.tolist(), types.tolist()))
    return result


def expected(theirs: Any, *texts: str, max_length: int = 64) -> tuple[list[int], list[int]]:
    out = theirs(*texts, truncation="longest_first", max_length=max_length)
    return out["input_ids"], out["token_type_ids"]


PAIRS = [(a, b) for a in SENTENCES for b in SENTENCES]
LENGTHS = [8, 15, 16, 64]


@pytest.mark.parametrize("max_length", LENGTHS)
def test_single_sentences_equal_transformers(examples_of: Callable, theirs: Any, max_length: int) -> None:
    examples = examples_of([(text,) for text in SENTENCES], max_length=max_length, kind=Single)
    rows = np.array([3, 0, 5, 4, 1, 2])
    assert lists(examples.ragged(rows)) == [expected(theirs, SENTENCES[i], max_length=max_length) for i in rows]


@pytest.mark.parametrize("max_length", LENGTHS)
def test_cross_pairs_equal_transformers(examples_of: Callable, theirs: Any, max_length: int) -> None:
    """Truncation too: the longer text is cut first, until the row fits."""
    examples = examples_of(PAIRS, max_length=max_length, kind=Pair)
    found = lists(examples.ragged(np.arange(len(PAIRS)), "cross"))
    for pair, ours in zip(PAIRS, found, strict=True):
        assert ours == expected(theirs, *pair, max_length=max_length), pair


def test_paper_pairs_are_two_whole_inputs_end_to_end(examples_of: Callable, theirs: Any) -> None:
    """CBCL, section 4.2.2: two encoded sequences, [CLS] and [SEP] included, all of type 0."""
    pairs = [pair for pair in PAIRS if sum(len(expected(theirs, text)[0]) for text in pair) <= 64]
    assert len(pairs) > 20
    found = lists(examples_of(pairs, kind=Pair).ragged(np.arange(len(pairs)), "paper"))
    for pair, (ids, types) in zip(pairs, found, strict=True):
        assert ids == expected(theirs, pair[0])[0] + expected(theirs, pair[1])[0]
        assert types == [0] * len(ids)


@pytest.mark.parametrize("max_length", LENGTHS)
def test_bi_pairs_are_all_first_then_all_second_sentences(examples_of: Callable, theirs: Any, max_length: int) -> None:
    rows = np.array([4, 0, 17])
    found = lists(examples_of(PAIRS, max_length=max_length, kind=Pair).ragged(rows, "bi"))
    assert found == [expected(theirs, PAIRS[i][side], max_length=max_length) for side in (0, 1) for i in rows]


def test_joint_pairs_are_cross_pairs_then_both_sentences_alone(examples_of: Callable) -> None:
    examples, rows = examples_of(PAIRS, max_length=16, kind=Pair), np.array([4, 0, 17])
    crossed, apart = examples.ragged(rows, "joint").split(3)
    assert lists(crossed) == lists(examples.ragged(rows, "cross"))
    assert lists(apart) == lists(examples.ragged(rows, "bi"))


words = st.integers(0, 30).map(lambda n: " ".join(["cat"] * n))


@given(words, words, st.integers(8, 40), st.sampled_from(["cross", "paper"]))
def test_truncation_fills_the_room_and_cuts_the_longer_side(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, a: str, b: str, longest: int, form: str
) -> None:
    first, second = len(a.split()), len(b.split())
    path = tmp_path_factory.getbasetemp() / "law.txt"
    path.write_text(f"{first} {second}")
    cache = token_cache.load(path, [Row("x", (a, b))], "law", 2, tokenizer)
    examples = Pair(cache, tokenizer.cls, tokenizer.sep, longest)
    ((ids, _),) = lists(examples.ragged(np.array([0]), form))
    special = 3 if form == "cross" else 4
    assert len(ids) == min(first + second + special, longest)
    kept_first = ids.index(tokenizer.sep) - 1
    kept_second = len(ids) - special - kept_first
    assert kept_first <= first and kept_second <= second
    if kept_first < first and kept_second < second:
        assert abs(kept_first - kept_second) <= 1
    elif kept_first < first:
        assert kept_first >= second - 1
    elif kept_second < second:
        assert kept_second >= first - 1


@pytest.mark.parametrize(
    ("form", "special", "joined"), [("cross", 3, True), ("paper", 4, True), ("bi", 2, False), ("joint", 3, True)]
)
def test_cut_inputs_are_counted_exactly(
    examples_of: Callable, theirs: Any, form: str, special: int, joined: bool
) -> None:
    count = {text: len(theirs(text, add_special_tokens=False)["input_ids"]) for text in SENTENCES}
    texts = [[count[a] + count[b]] if joined else [count[a], count[b]] for a, b in PAIRS]
    lengths = [n + special for row in texts for n in row]
    for most in sorted({4, *lengths, *(n - 1 for n in lengths if n > 4)}):
        assert examples_of(PAIRS, max_length=most, kind=Pair).truncated(form) == (
            sum(n > most for n in lengths),
            len(lengths),
        )
    single = examples_of([(text,) for text in SENTENCES], max_length=24, kind=Single)
    assert single.truncated("cross") == (sum(n + 2 > 24 for n in count.values()), len(single))


def test_an_empty_text_is_an_input_too(examples_of: Callable, theirs: Any) -> None:
    """Quora's test file has such rows, and every id needs a prediction."""
    examples = examples_of([("cat", ""), ("", "")], kind=Pair)
    for form in ("cross", "paper", "bi", "joint"):
        assert min(examples.ragged(np.arange(2), form).lengths) >= 2
    cat = theirs.convert_tokens_to_ids("cat")
    cls, sep = theirs.cls_token_id, theirs.sep_token_id
    assert lists(examples.ragged(np.array([0]), "cross")) == [([cls, cat, sep, sep], [0, 0, 0, 1])]
