"""Guards: inputs equal those of transformers' tokenizer, token by token; truncation, lengths and cache keep their laws.

python -m pytest --import-mode=importlib tests/tasks/test_examples.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert import Ragged, UserError
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
def test_inputs_equal_transformers(examples_of: Callable, theirs: Any, max_length: int) -> None:
    """Truncation too: the longer text of a pair is cut first, until the row fits."""
    rows = np.array([3, 0, 5, 4, 1, 2])
    sentences = examples_of([(text,) for text in SENTENCES], max_length=max_length).ragged(rows)
    assert lists(sentences) == [expected(theirs, SENTENCES[i], max_length=max_length) for i in rows]
    pairs, rows = examples_of(PAIRS, max_length=max_length), np.arange(len(PAIRS))[::-1]
    crossed = [expected(theirs, *PAIRS[i], max_length=max_length) for i in rows]
    alone = [expected(theirs, PAIRS[i][side], max_length=max_length) for side in (0, 1) for i in rows]
    for form, inputs in {"cross": crossed, "bi": alone, "joint": crossed + alone}.items():
        assert lists(pairs.ragged(rows, form)) == inputs, form


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
    count = {text: len(theirs(text, add_special_tokens=False)["input_ids"]) for text in SENTENCES}
    texts = [[count[a], count[b]] if form == "bi" else [count[a] + count[b]] for a, b in PAIRS]
    lengths = [n + special for row in texts for n in row]
    for most in sorted({4, *lengths, *(n - 1 for n in lengths if n > 4)}):
        cut = examples_of(PAIRS, max_length=most).truncated(form)
        assert cut == (sum(n > most for n in lengths), len(lengths))
    single = examples_of([(text,) for text in SENTENCES], max_length=24)
    assert single.truncated("cross") == (sum(n + 2 > 24 for n in count.values()), len(single))


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
    [(190, 10, ""), (190, 12, "6% of the tokens"), (1, 1, "50%")],
)
def test_unknown_tokens_are_reported(
    examples_of: Callable, capsys: pytest.CaptureFixture[str], known: int, unknown: int, note: str
) -> None:
    examples = examples_of([("cat " * known + "\u4e2d " * unknown,)])
    check_vocabulary("own.csv", examples, allow=False)
    assert capsys.readouterr().err.startswith(f"note: own.csv: {note}" if note else "")


def test_unknown_language_must_be_allowed(examples_of: Callable) -> None:
    examples = examples_of([("cat \u4e2d \u6587",)])
    with pytest.raises(UserError, match=r"own\.csv: 67% of the tokens are unknown .*--allow-unknown"):
        check_vocabulary("own.csv", examples, allow=False)
    check_vocabulary("own.csv", examples, allow=True)
