"""Guards: the three methods of synonym replacement, law by law, on a small table of this test's own.

python -m pytest --import-mode=importlib tests/contrastive/synonyms/test_methods.py
"""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from minbert import UserError
from minbert.token_cache import Row
from tasks.contrastive.synonyms.methods import (
    growing,
    growing_count,
    precompute,
    write_augmented,
)
from tasks.contrastive.synonyms.replacement import LiveSynonyms, splice
from tasks.contrastive.synonyms.synonym_table import SynonymTable
from tasks.contrastive.synonyms.tagging import Tagged, tag

SYNONYMS = {
    ("big", "a"): ["large", "enormous", "hulking"],
    ("old", "a"): ["former", "aged"],
    ("quick", "a"): ["fast", "rapid", "quick"],
    ("car", "n"): ["automobile", "auto", "motor car"],
    ("hour", "n"): ["period"],
    ("chase", "v"): ["pursue"],
    ("slowly", "r"): ["gradually"],
}
OTHERS = {word: [one for one in found if one != word] for (word, _), found in SYNONYMS.items()}
TEXT = "The big dog and an old man chase a quick car slowly ."


@pytest.fixture(scope="module")
def table() -> SynonymTable:
    return SynonymTable.of(SYNONYMS)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [Row(f"row-{number}", (TEXT, "No word to change here ."), label=number / 7) for number in range(400)]


@pytest.fixture(scope="module")
def tagged(table: SynonymTable, rows: list[Row]) -> Tagged:
    return tag(texts_of(rows), table, None)


def texts_of(rows: list[Row]) -> list[str]:
    return [text for row in rows for text in row.texts]


def words_changed(before: str, after: str) -> list[tuple[str, str]]:
    """Changed words of texts that differ in single words; articles count as unchanged."""
    pairs = zip(before.split(), after.split(), strict=True)
    return [(old, new) for old, new in pairs if old != new and old.lower() not in ("a", "an")]


def live(table: SynonymTable, texts: list[str], p: float = 1.0, seed: int = 3) -> LiveSynonyms:
    return LiveSynonyms(tag(texts, table, None), p, seed)


@pytest.mark.parametrize(("method", "p", "replaceable"), [(1, 0.3, 6), (2, 0.3, 4), (1, 0.8, 6), (2, 0.05, 4)])
def test_methods_1_and_2_replace_each_word_with_probability_p(
    rows: list[Row], tagged: Tagged, method: int, p: float, replaceable: int
) -> None:
    after = precompute(rows, tagged, method=method, p=p, seed=11)
    count = sum(len(words_changed(TEXT, row.texts[0])) for row in after)
    low, high = stats.binom.interval(0.9999, replaceable * len(rows), p)
    assert low <= count <= high


@pytest.mark.parametrize(("method", "words"), [(1, "big old chase quick car slowly"), (2, "big old quick car")])
def test_probability_1_replaces_all_and_only_the_words_of_the_method(
    rows: list[Row], tagged: Tagged, method: int, words: str
) -> None:
    for row in precompute(rows, tagged, method=method, p=1, seed=0):
        changed = words_changed(TEXT, row.texts[0])
        assert [old for old, _ in changed] == words.split()
        assert all(new in OTHERS[old] and " " not in new for old, new in changed)
        assert row.texts[1] == "No word to change here ."


def test_synonyms_of_several_words_come_with_the_option_alone() -> None:
    texts = ["A big car ."] * 200
    for multiword, expected in ((False, set()), (True, {"A big motor car ."})):
        tags = tag(texts, SynonymTable.of(SYNONYMS, multiword=multiword), None)
        every = [t for row in precompute([Row("x", tuple(texts))], tags, method=2, p=0.5, seed=0) for t in row.texts]
        assert {text for text in every if "motor car" in text and "big" in text} == expected


def test_every_synonym_comes_equally_often(rows: list[Row], tagged: Tagged) -> None:
    after = precompute(rows, tagged, method=2, p=1, seed=5)
    found = [dict(words_changed(TEXT, row.texts[0]))["big"] for row in after]
    counts = [found.count(word) for word in OTHERS["big"]]
    assert sum(counts) == len(rows)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_probability_0_changes_nothing(rows: list[Row], tagged: Tagged, table: SynonymTable) -> None:
    assert [row.texts for row in precompute(rows, tagged, method=1, p=0, seed=1)] == [row.texts for row in rows]
    assert live(table, [TEXT], p=0.0).texts(0, [0], [TEXT]) == [TEXT]


def test_ids_labels_and_the_rest_of_a_row_stay(rows: list[Row], tagged: Tagged, table: SynonymTable) -> None:
    for old, new in zip(rows, precompute(rows, tagged, method=1, p=1, seed=1), strict=True):
        assert (old.id, old.label, old.line, old.note) == (new.id, new.label, new.line, new.note)
    nan = [Row("x", (TEXT,), line=3, note="said")]
    new = next(precompute(nan, tag([TEXT], table, None), method=1, p=1, seed=1))
    assert math.isnan(new.label)
    assert (new.line, new.note) == (3, "said")


def test_a_row_is_augmented_alike_wherever_it_stands(rows: list[Row], table: SynonymTable) -> None:
    alone = [rows[7]]
    among = [Row("other", ("A quick hour .",)), rows[7], rows[3]]
    one = list(precompute(alone, tag(texts_of(alone), table, None), method=1, p=0.5, seed=9))
    many = list(precompute(among, tag(texts_of(among), table, None), method=1, p=0.5, seed=9))
    assert one[0] == many[1]


def test_seeds_differ_and_repeat(rows: list[Row], tagged: Tagged) -> None:
    def run(seed: int) -> list[Row]:
        return list(precompute(rows, tagged, method=1, p=0.5, seed=seed))

    assert run(1) == run(1) != run(2)


def test_a_growing_probability_only_adds_replacements(rows: list[Row], tagged: Tagged) -> None:
    probabilities = [growing(epoch, 5, 0.9) for epoch in range(1, 6)]
    assert probabilities == pytest.approx([0.18, 0.36, 0.54, 0.72, 0.9])
    before: list[set[tuple[str, str]]] = [set() for _ in rows]
    for p in probabilities:
        now = [set(words_changed(TEXT, row.texts[0])) for row in precompute(rows, tagged, method=1, p=p, seed=2)]
        assert all(old <= new for old, new in zip(before, now, strict=True))
        before = now


def test_growth_is_monotone_and_ends_at_the_most() -> None:
    assert [growing_count(epoch, 6, 3) for epoch in range(1, 7)] == [1, 1, 1, 2, 2, 3]
    assert growing(4, 4, 0.25, power=2) == 0.25
    assert growing(2, 4, 0.4, power=2) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="epoch 0"):
        growing(0, 4, 0.25)


def test_method_3_replaces_one_adjective_the_first_then_the_last(table: SynonymTable) -> None:
    augment = live(table, [TEXT])
    for batch in range(60):
        changed = words_changed(TEXT, augment.texts(batch, [0], [TEXT])[0])
        assert [old for old, _ in changed] == [["big"], ["quick"]][batch % 2]
        assert changed[0][1] in OTHERS[changed[0][0]]


def test_method_3_leaves_sentences_without_an_adjective(table: SynonymTable) -> None:
    texts = ["They chase a car slowly .", "A big car ."]
    for batch in range(8):
        first, second = live(table, texts).texts(batch, [0, 1], texts)
        assert first == texts[0]
        assert second != texts[1]


def test_method_3_augments_a_batch_with_probability_p_all_or_nothing(table: SynonymTable) -> None:
    texts = [TEXT] * 5
    augment = live(table, texts, p=0.25)
    changed = [sum(a != b for a, b in zip(augment.texts(n, range(5), texts), texts, strict=True)) for n in range(3000)]
    assert set(changed) == {0, 5}
    low, high = stats.binom.interval(0.9999, 3000, 0.25)
    assert low <= changed.count(5) <= high
    assert [augment.chosen(n) for n in range(3000)] == [count == 5 for count in changed]


def test_method_3_does_not_depend_on_batch_mates_or_on_what_came_before(table: SynonymTable) -> None:
    texts = ["A big car .", "An old quick dog .", TEXT]
    augment = live(table, texts)
    for batch in (4, 1, 9):
        together = augment.texts(batch, [0, 1, 2], texts)
        reverse = augment.texts(batch, [2, 1, 0], texts[::-1])
        alone = [live(table, texts).texts(batch, [number], [text])[0] for number, text in enumerate(texts)]
        assert together == reverse[::-1] == alone


def test_method_3_draws_anew_for_each_batch_text_seed_and_name(table: SynonymTable) -> None:
    texts = ["A big car ."] * 64
    tags = tag(texts, table, None)
    one = LiveSynonyms(tags, 1, 1).texts(0, range(64), texts)
    assert len(set(one)) == 3
    for other in (
        LiveSynonyms(tags, 1, 1).texts(2, range(64), texts),
        LiveSynonyms(tags, 1, 2).texts(0, range(64), texts),
        LiveSynonyms(tags, 1, 1, name="quora").texts(0, range(64), texts),
    ):
        assert other != one


def test_method_3_grows_inwards_from_the_first_or_the_last(table: SynonymTable) -> None:
    augment = live(table, [TEXT])
    expected = {0: {1: ["big"], 2: ["big", "old"], 9: ["big", "old", "quick"]}, 1: {1: ["quick"], 2: ["old", "quick"]}}
    for batch, by_count in expected.items():
        for count, words in by_count.items():
            after = augment.texts(batch, [0], [TEXT], count=count)[0]
            assert [old for old, _ in words_changed(TEXT, after)] == words
    with pytest.raises(ValueError, match="count 0"):
        augment.texts(0, [0], [TEXT], count=0)


def test_a_text_that_was_not_tagged_is_refused(table: SynonymTable) -> None:
    with pytest.raises(ValueError, match="not the text that was tagged"):
        live(table, ["A big car ."]).texts(0, [0], ["A red big car ."])


@pytest.mark.parametrize(("before", "after"), [
    ("an old car", "a former car"), ("An old car", "A former car"), ("AN OLD CAR", "A FORMER CAR"),
    ("Old cars", "Former cars"), ("the old car", "the former car"), ("an  old\tcar!", "a  former\tcar!"),
    ("such an old, old-fashioned 'car'...", "such a former, old-fashioned 'car'..."),
    ("plan old", "plan former"), ("(an old one)", "(a former one)"),
])  # fmt: skip
def test_case_article_punctuation_and_spacing(before: str, after: str) -> None:
    table = SynonymTable.of({("old", "a"): ["former"]})
    assert live(table, [before]).texts(0, [0], [before]) == [after]


def test_an_article_before_a_vowel_is_made_right() -> None:
    table = SynonymTable.of({("big", "a"): ["enormous"]})
    for before, after in (("a big car", "an enormous car"), ("A BIG CAR", "AN ENORMOUS CAR"), ("A big", "An enormous")):
        assert live(table, [before]).texts(0, [0], [before]) == [after]


def test_words_that_must_stay(table: SynonymTable) -> None:
    """Closed classes, whatever a table says; mixed case; what a negation leaves when it is split at its apostrophe."""
    own = SynonymTable.of(
        {("a", "n"): ["angstrom"], ("in", "n"): ["indium"], ("be", "n"): ["beryllium"], ("don", "n"): ["father"],
         ("one", "a"): ["single"], ("phone", "n"): ["telephone"]}
    )  # fmt: skip
    text = "one of you don 't be in a iPhone, don't"
    assert len(tag([text], own, None).places) == 0


def test_what_a_word_becomes_does_not_depend_on_other_texts_of_the_file(table: SynonymTable) -> None:
    texts = ["a bIg car", "A BIG CAR", "a big car", "Big cars"]
    together = tag(texts, table, None)
    for number, text in enumerate(texts):
        alone = tag([text], table, None)
        assert [place[:3] for place in together.of(number)] == [place[:3] for place in alone.of(0)]
    assert [len(together.of(number)) for number in range(4)] == [1, 2, 2, 2]


def test_wrong_arguments_are_refused(rows: list[Row], tagged: Tagged) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        list(precompute(rows, tagged, method=1, p=1.5, seed=0))
    with pytest.raises(UserError, match="method 3"):
        list(precompute(rows, tagged, method=3, p=0.5, seed=0))
    with pytest.raises(UserError, match="between 0 and 1"):
        LiveSynonyms(tagged, -0.1)
    with pytest.raises(ValueError, match="2 texts in the rows, 800 were tagged"):
        list(precompute(rows[:1], tagged, method=1, p=0.5, seed=0))


def test_tags_come_from_the_cache_and_are_the_same(table: SynonymTable, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["A big car seen once .", TEXT, "A big car seen once .", ""]
    first = tag(texts, table, None)
    monkeypatch.setattr("tasks.contrastive.synonyms.tagging._find", None)
    again = tag(texts, table, None)
    assert first.tagging == again.tagging == "wordnet counts"
    assert len(again) == 4
    for name in ("ends", "places", "kinds"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert (first.words, first.candidates) == (again.words, again.candidates)
    with pytest.raises(TypeError):
        tag([*texts, "A new text ."], table, None)


def test_the_written_table_shows_every_text_before_and_after(rows: list[Row], tagged: Tagged, tmp_path: Path) -> None:
    after = list(precompute(rows, tagged, method=1, p=0.5, seed=0))
    write_augmented(tmp_path / "synonyms.tsv", rows, after)
    with open(tmp_path / "synonyms.tsv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    assert len(lines) == 2 * len(rows)
    for number, line in enumerate(lines):
        row, column = divmod(number, 2)
        assert (line["id"], line["column"]) == (rows[row].id, str(column))
        assert (line["before"], line["after"]) == (rows[row].texts[column], after[row].texts[column])


def test_splice_without_changes_is_the_text() -> None:
    assert splice(TEXT, []) == TEXT
