"""Guards: the three methods of synonym replacement, law by law, on a small WordNet of this test's own.

python -m pytest --import-mode=importlib tests/tasks/augment/test_replacement.py
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from minbert.train.plan import PlannedBatch
from tasks.augment.synonyms import replace_adjectives, replace_words, splice
from tasks.augment.wordnet import PARTS_OF_METHOD, Tagged, WordNet, tag

BATCH = PlannedBatch("nli", np.arange(1), epoch=0)
SYNSETS = (
    ("a", ("big", "large", "enormous", "hulking")),
    ("a", ("old", "former", "aged")),
    ("a", ("quick", "fast", "rapid")),
    ("n", ("car", "automobile", "auto", "motor car")),
    ("n", ("hour", "period")),
    ("v", ("chase", "pursue")),
    ("r", ("slowly", "gradually")),
)
TEXT = "The big dog and an old man chase a quick car slowly ."
COPIES = 400


@pytest.fixture(scope="module")
def words(write_wordnet: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> WordNet:
    synsets = [(part, dict.fromkeys(lemmas, 1)) for part, lemmas in SYNSETS]
    return WordNet(write_wordnet(tmp_path_factory.mktemp("nltk"), *synsets))


@pytest.fixture(scope="module")
def tagged(words: WordNet) -> Tagged:
    return tag([TEXT] * COPIES, words)


def changed_words(before: str, after: str) -> list[tuple[str, str]]:
    """(old, new) of each changed word of texts that differ in single words."""
    return [(old, new) for old, new in zip(before.split(), after.split(), strict=True) if old != new]


def rewritten(tagged: Tagged, method: int, p: float, seed: int = 0) -> list[str]:
    """The texts of `tagged`, each TEXT and in a row of its own, after method 1 or 2."""
    of_method = tagged.only(PARTS_OF_METHOD[method])
    texts = []
    for number in range(COPIES):
        changes = replace_words(of_method, number, TEXT, p=p, seed=seed, row=f"row-{number}", column=0)
        texts.append(splice(TEXT, changes))
    return texts


def test_synonyms_are_equally_likely(tagged: Tagged) -> None:
    assert len(changed_words(TEXT, rewritten(tagged, 1, 1)[0])) == 6
    adjectives = tagged.only("a")
    of_method_3 = []
    for number in range(COPIES):
        changes = replace_adjectives(adjectives, number, TEXT, BATCH, seed=5, row=f"row-{number}", column=0)
        of_method_3.append(splice(TEXT, changes))
    for texts in (rewritten(tagged, 2, 1, seed=5), of_method_3):
        synonyms = [dict(changed_words(TEXT, text))["big"] for text in texts]
        counts = [synonyms.count(word) for word in ("large", "enormous", "hulking")]
        assert sum(counts) == COPIES
        assert stats.chisquare(counts).pvalue > 1e-4


def test_other_rows_change_nothing(words: WordNet) -> None:
    alone = replace_words(tag([TEXT], words), 0, TEXT, p=0.5, seed=9, row="x", column=1)
    among = tag(["A quick hour .", "No word here .", TEXT], words)
    assert 0 < len(alone) < 6
    assert alone == replace_words(among, 2, TEXT, p=0.5, seed=9, row="x", column=1)


def test_seeds_rows_and_columns_differ(tagged: Tagged) -> None:
    texts = rewritten(tagged, 1, 0.5, seed=1)
    assert rewritten(tagged, 1, 0.5, seed=1) == texts
    assert rewritten(tagged, 1, 0.5, seed=2) != texts
    assert len(set(texts)) > 50
    first = [replace_words(tagged, n, TEXT, p=0.5, seed=0, row=str(n), column=0) for n in range(9)]
    second = [replace_words(tagged, n, TEXT, p=0.5, seed=0, row=str(n), column=1) for n in range(9)]
    assert first != second


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("THE OLD CAR", "THE FORMER CAR"),
        ("Old cars", "Former cars"),
        ("the  old\tcar!", "the  former\tcar!"),
        ("these old, old-fashioned 'cars'...", "these former, old-fashioned 'cars'..."),
    ],
)
def test_case_and_punctuation_are_kept(
    write_wordnet: Callable[..., Path], tmp_path: Path, before: str, after: str
) -> None:
    words = WordNet(write_wordnet(tmp_path, ("a", {"old": 1, "former": 1})))
    changes = replace_adjectives(tag([before], words).only("a"), 0, before, BATCH, seed=3, row="a", column=0)
    assert splice(before, changes) == after
