"""Guards: inputs equal those of transformers' tokenizer, token by token; truncation, lengths and cache keep their laws.

python -m pytest --import-mode=importlib tests/tasks/test_examples.py
"""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from minbert import Ragged
from tasks.examples import check_vocabulary

SENTENCES = [
    "The cat sat on the mat.",
    "who is not happy?",
    "A bird, a dog and a tree!",
    "runs",
    "Antidisestablishmentarianism under the caf\u00e9's tree is very very long, isn't it, and who runs on and on?",
    "\u4e2d\u6587 zzz [MASK] x",
]


@pytest.fixture(scope="module")
def theirs(tiny: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny)


def lists(ragged: Ragged) -> list[tuple[list[int], list[int]]]:
    """(ids, types) of each sentence; positions must count from 0."""
    lengths = list(ragged.lengths)
    ids_of = ragged.ids.split(lengths)
    types_of = ragged.types.split(lengths)
    positions_of = ragged.positions.split(lengths)
    result = []
    for ids, types, positions in zip(ids_of, types_of, positions_of, strict=True):
        assert positions.tolist() == list(range(len(ids)))
        result.append((ids.tolist(), types.tolist()))
    return result


def expected(theirs: Any, *texts: str, max_length: int = 64) -> tuple[list[int], list[int]]:
    out = theirs(*texts, truncation="longest_first", max_length=max_length)
    return out["input_ids"], out["token_type_ids"]


PAIRS = [*product(SENTENCES, repeat=2)]
LENGTHS = [8, 15, 16, 64]


@pytest.mark.parametrize("max_length", LENGTHS)
def test_inputs_equal_transformers(examples_of: Callable, theirs: Any, max_length: int) -> None:
    """Truncation too: the longer text of a pair is cut first, until the row fits."""
    rows = np.array([3, 0, 5, 4, 1, 2])
    sentences = examples_of([(text,) for text in SENTENCES], max_length=max_length).ragged(rows)
    assert lists(sentences) == [expected(theirs, SENTENCES[i], max_length=max_length) for i in rows]
    pairs = examples_of(PAIRS, max_length=max_length)
    rows = np.arange(len(PAIRS))[::-1]
    crossed = [expected(theirs, *PAIRS[i], max_length=max_length) for i in rows]
    first = [expected(theirs, PAIRS[i][0], max_length=max_length) for i in rows]
    second = [expected(theirs, PAIRS[i][1], max_length=max_length) for i in rows]
    assert lists(pairs.ragged(rows, "cross")) == crossed
    assert lists(pairs.ragged(rows, "bi")) == first + second
    assert lists(pairs.ragged(rows, "joint")) == crossed + first + second


@pytest.mark.parametrize("max_length", LENGTHS)
def test_paper_pairs_are_two_inputs(examples_of: Callable, theirs: Any, max_length: int) -> None:
    """CBCL, section 4.2.2: two encoded sequences, [CLS] and [SEP] included, all of type 0; cut as cross pairs are."""
    inputs = lists(examples_of(PAIRS, max_length=max_length).ragged(np.arange(len(PAIRS)), "paper"))
    for pair, (ids, types) in zip(PAIRS, inputs, strict=True):
        crossed, _ = expected(theirs, *pair, max_length=max_length - 1)
        second = crossed.index(theirs.sep_token_id) + 1
        assert ids == [*crossed[:second], theirs.cls_token_id, *crossed[second:]], pair
        assert types == [0] * len(ids)


@pytest.mark.parametrize(("form", "special"), [("cross", 3), ("paper", 4), ("bi", 2), ("joint", 3)])
def test_cut_inputs_are_counted_exactly(examples_of: Callable, theirs: Any, form: str, special: int) -> None:
    counts = {text: len(theirs(text, add_special_tokens=False)["input_ids"]) for text in SENTENCES}
    lengths = []
    for a, b in PAIRS:
        if form == "bi":
            lengths += [counts[a] + special, counts[b] + special]
        else:
            lengths.append(counts[a] + counts[b] + special)
    limits = {4, *lengths}
    limits.update(length - 1 for length in lengths if length > 4)
    for limit in limits:
        longer = sum(length > limit for length in lengths)
        assert examples_of(PAIRS, max_length=limit).truncated(form) == (longer, len(lengths))
    single = examples_of([(text,) for text in SENTENCES], max_length=24)
    longer = sum(count + 2 > 24 for count in counts.values())
    assert single.truncated("cross") == (longer, len(single))


def test_an_empty_text_is_encoded(examples_of: Callable, theirs: Any) -> None:
    """Quora's test file has such rows, and every id needs a prediction."""
    examples = examples_of([("cat", ""), ("", "")])
    for form in ("cross", "paper", "bi", "joint"):
        assert min(examples.ragged(np.arange(2), form).lengths) >= 2
    cat = theirs.convert_tokens_to_ids("cat")
    cls, sep = theirs.cls_token_id, theirs.sep_token_id
    assert lists(examples.ragged(np.array([0]), "cross")) == [([cls, cat, sep, sep], [0, 0, 0, 1])]


@pytest.mark.parametrize(
    ("known", "unknown", "note"),
    [(190, 10, ""), (190, 12, r"note: own\.csv: 6% of the tokens .*\n"), (1, 1, r"note: own\.csv: 50% .*\n")],
)
def test_unknown_tokens_are_reported(
    examples_of: Callable, capsys: pytest.CaptureFixture[str], known: int, unknown: int, note: str
) -> None:
    examples = examples_of([("cat " * known + "\u4e2d " * unknown,)])
    check_vocabulary("own.csv", examples, allow=False)
    assert re.fullmatch(note, capsys.readouterr().err)
