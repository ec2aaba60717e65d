"""Guards: which synonyms a table holds, in which form they are given, and the article before them.

python -m pytest --import-mode=importlib tests/contrastive/synonyms/test_synonym_table.py
"""

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from minbert import UserError
from tasks.contrastive.synonyms import synonym_table, wordnet
from tasks.contrastive.synonyms.closed_class import CLOSED
from tasks.contrastive.synonyms.inflection import article, in_shape, inflect, takes_an
from tasks.contrastive.synonyms.synonym_table import Entry, SynonymTable
from tasks.contrastive.synonyms.wordnet import Sense

IRREGULAR = {
    "n": {"children": ["child"], "brethren": ["brother"], "geese": ["goose"], "wives": ["wife"],
          "analyses": ["analysis"]},
    "a": {"bigger": ["big"], "biggest": ["big"], "fatter": ["fat"]},
    "v": {"ran": ["run"], "running": ["run"], "held": ["hold"], "stopped": ["stop"], "stopping": ["stop"],
          "went": ["go"], "gone": ["go"], "sewn": ["sew"], "cutting": ["cut"], "keeping": ["keep"], "kept": ["keep"]},
    "r": {},
}  # fmt: skip
FORMS: dict[str, dict[str, list[str]]] = {part: {} for part in IRREGULAR}
for _part, _lemmas in IRREGULAR.items():
    for _form, (_lemma,) in _lemmas.items():
        FORMS[_part].setdefault(_lemma, []).append(_form)


def sense(part: str, *lemmas: str, counts: list[int] | None = None, rude: list[bool] | None = None) -> Sense:
    size = len(lemmas)
    return Sense(part, lemmas, tuple(counts or [1] * size), tuple(rude or [False] * size))


def table(*senses: Sense, **options: bool) -> SynonymTable:
    content = json.loads(json.dumps(synonym_table._content(senses, IRREGULAR)))
    return SynonymTable(content["words"], content["irregular"], **options)


@pytest.mark.parametrize(("lemma", "tag", "form"), [
    ("dog", "NNS", "dogs"), ("box", "NNS", "boxes"), ("city", "NNS", "cities"), ("boy", "NNS", "boys"),
    ("child", "NNS", "children"), ("fireman", "NNS", "firemen"), ("human", "NNS", "humans"), ("photo", "NNS", "photos"),
    ("hero", "NNS", "heroes"), ("goose", "NNS", "geese"), ("wife", "NNS", "wives"), ("analysis", "NNS", "analyses"),
    ("brother", "NNS", None), ("trousers", "NNS", None), ("looker-on", "NNS", None), ("bus", "NNS", "buses"),
    ("motor car", "NNS", "motor cars"), ("man of letters", "NNS", None),
    ("big", "JJR", "bigger"), ("large", "JJR", "larger"), ("large", "JJS", "largest"), ("happy", "JJR", "happier"),
    ("happy", "JJS", "happiest"), ("enormous", "JJR", None), ("fat", "JJS", None), ("well off", "JJR", None),
    ("carry", "VBZ", "carries"), ("catch", "VBZ", "catches"), ("play", "VBZ", "plays"), ("make", "VBG", "making"),
    ("run", "VBG", "running"), ("lie", "VBG", "lying"), ("see", "VBG", "seeing"), ("hold", "VBD", "held"),
    ("hold", "VBN", "held"), ("stop", "VBN", "stopped"), ("carry", "VBD", "carried"), ("bake", "VBD", "baked"),
    ("ran off", "VB", "ran off"), ("run", "VBD", "ran"), ("run", "VBN", None), ("go", "VBD", None),
    ("sew", "VBN", None), ("put", "VBD", None), ("cut", "VBD", None), ("keep up", "VBD", "kept up"),
    ("play", "VBD", "played"),
])  # fmt: skip
def test_a_form_is_carried_over_or_said_to_be_unknown(lemma: str, tag: str, form: str | None) -> None:
    part = {"N": "n", "J": "a", "V": "v"}[tag[0]]
    assert inflect(lemma, tag, FORMS[part]) == form


@pytest.mark.parametrize("word", [
    "hour", "honest", "heir", "honour", "apple", "old", "enormous", "unimportant", "uninteresting", "utter", "urge",
    "urban", "ugly", "upper", "under", "only", "onerous", "open", "unusual", "ultimate", "umbrella", "unidentified",
])  # fmt: skip
def test_an_stands_before_a_vowel_sound(word: str) -> None:
    assert takes_an(word)
    assert article("a", word) == "an"
    assert article("A", word) == "An"
    assert article("A", word.upper()) == "AN"


@pytest.mark.parametrize("word", [
    "university", "European", "one", "one-time", "once", "unique", "united", "uniform", "useful", "usual", "utility",
    "unanimous", "ukulele", "ewe", "house", "historic", "big", "year", "UFO", "user", "urinal", "union", "eulogy",
])  # fmt: skip
def test_a_stands_before_a_consonant_sound(word: str) -> None:
    assert not takes_an(word)
    assert article("an", word) == "a"
    assert article("AN", word) == "A"
    assert article("a", word) == "a"


@pytest.mark.parametrize(("like", "new"), [("big", "large"), ("Big", "Large"), ("BIG", "LARGE"), ("I", "Large")])
def test_case_is_that_of_the_replaced_word(like: str, new: str) -> None:
    assert in_shape("large", like) == new
    assert in_shape("USA", "America") == "USA"


def test_synonyms_are_the_other_lemmas_of_the_words_synsets_of_that_part() -> None:
    made = table(sense("a", "big", "large"), sense("a", "big", "prominent"), sense("n", "big", "giant"))
    assert made.synonyms("big", "a") == ("large", "prominent")
    assert made.synonyms("large", "a") == ("big",)
    assert made.synonyms("big", "n") == ("giant",)
    assert made.synonyms("big", "v") == made.synonyms("small", "a") == ()


def test_rare_senses_come_with_the_option_alone() -> None:
    senses = (
        sense("a", "large", "big", counts=[80, 9]), sense("a", "large", "broad", counts=[20, 0]),
        sense("a", "large", "expectant", counts=[0, 3]),
    )  # fmt: skip
    assert table(*senses).synonyms("large", "a") == ("big", "broad")
    assert table(*senses, all_senses=True).synonyms("large", "a") == ("big", "broad", "expectant")
    never = (sense("a", "pallid", "wan", counts=[0, 0]), sense("a", "pallid", "sick", counts=[0, 0]))
    assert table(*never).synonyms("pallid", "a") == ("wan", "sick")


def test_what_can_never_stand_for_a_word() -> None:
    """A slur, a name or abbreviation for a common word, a sign, a closed class, the word in other capitals."""
    made = table(
        sense("n", "dog", "Rover", "TV", "c2", "x", "one", "Dog", "cur", "hound", rude=[False] * 7 + [True, False]),
        sense("n", "America", "USA", "america"),
        sense("n", "Turkey", "Republic"),
    )
    assert made.synonyms("dog", "n") == ("hound",)
    assert made.synonyms("cur", "n") == ()
    assert made.synonyms("America", "n") == ("USA",)
    assert made.candidates("turkey", "NN") == ()
    assert made.candidates("Turkey", "NNP") == ("Republic",)


def test_candidates_keep_the_form_and_never_give_the_word_itself() -> None:
    made = table(
        sense("n", "child", "kid", "brother", "youngster", counts=[5, 5, 5, 5]),
        sense("a", "big", "large", "enormous"),
        sense("v", "hold", "keep", "run"),
        sense("n", "glasses", "spectacles", "specs", "eyewear", counts=[9, 1, 1, 1]),
        sense("n", "glass", "tumbler", counts=[4, 1]),
        sense("n", "chair", "chairs"),
    )
    assert made.candidates("children", "NNS") == ("kids", "youngsters")
    assert made.candidates("Kids", "NNS") == ("children", "youngsters")
    assert made.candidates("bigger", "JJR") == ("larger",)
    assert made.candidates("largest", "JJS") == ("biggest",)
    assert made.candidates("held", "VBD") == ("kept", "ran")
    assert made.candidates("held", "VBN") == ("kept",)
    assert made.candidates("glasses", "NNS") == ("spectacles", "specs")
    assert made.candidates("chairs", "NNS") == ()
    assert table(sense("v", "axe", "ax")).candidates("axed", "VBD") == ()  # "axed" again
    assert SynonymTable.of({("big", "a"): ["big", "large"]}).synonyms("big", "a") == ("large",)
    assert made.candidates("big", "CD") == made.candidates("bIg", "JJ") == made.candidates("42", "JJ") == ()


@pytest.mark.parametrize(
    "word", ["a", "an", "in", "be", "is", "have", "one", "two", "he", "it", "as", "or", "not", "more"]
)
def test_closed_classes_have_no_candidates_under_any_tag(word: str) -> None:
    made = table(*(sense(part, word.split("'")[0], "wrong") for part in "nvar"))
    assert all(not made.candidates(word, tag) for tag in ("NN", "NNP", "JJ", "VB", "RB"))
    assert all(one == one.lower() for one in CLOSED)


def test_without_a_tagger_the_most_counted_part_of_speech_is_taken() -> None:
    made = table(
        sense("n", "red", "crimson", counts=[3, 0]), sense("a", "red", "ruddy", counts=[40, 0]),
        sense("n", "walk", "stroll", counts=[9, 0]), sense("v", "walk", "stroll", counts=[70, 0]),
        sense("n", "child", "kid", counts=[30, 0]),
    )  # fmt: skip
    guessed = [made.guess(word) for word in ("red", "Walk", "walking", "children", "the", "unheard")]
    assert guessed == ["JJ", "VB", "VBG", "NNS", "-", "-"]


def _load(folder: Path, cache: Path) -> int:
    import os

    os.environ["MINBERT_CACHE"] = str(cache)
    synonym_table.wordnet.read = lambda _: ([sense("a", "big", "large")], IRREGULAR)  # type: ignore[assignment]
    return len(synonym_table.load(folder).synonyms("big", "a"))


def test_several_processes_build_one_table_and_none_is_left_over(tmp_path: Path) -> None:
    folder = tmp_path / "nltk_data"
    (folder / wordnet.WORDNET).mkdir(parents=True)
    (folder / wordnet.WORDNET / "data.adj").write_text("x", encoding="utf-8")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.starmap(_load, [(folder, tmp_path / "cache")] * 4) == [1] * 4
    (file,) = (tmp_path / "cache" / "synonyms").iterdir()
    before = file.stat().st_mtime_ns
    assert _in_a_new_process(folder, tmp_path / "cache") == "False ('large',)"
    assert file.stat().st_mtime_ns == before
    (folder / wordnet.WORDNET / "data.adj").write_text("y", encoding="utf-8")
    with pytest.raises(UserError, match="NLTK cannot read it"):
        synonym_table.load(folder)


def _in_a_new_process(folder: Path, cache: Path) -> str:
    """Whether NLTK was imported when a stored table was asked, and what it said."""
    code = (
        "import sys; from pathlib import Path; from tasks.contrastive.synonyms import synonym_table as s; "
        f"t = s.load(Path({str(folder)!r})); print('nltk' in sys.modules, t.synonyms('big', 'a'))"
    )
    import os

    environment = {**os.environ, "MINBERT_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_entry_of_a_small_table_is_what_was_given() -> None:
    made = SynonymTable.of({("big", "a"): ["large"]})
    assert Entry(*made.words["a"]["big"]) == Entry(1, ("large",))
    assert made.fingerprint != SynonymTable.of({("big", "a"): ["large"]}, multiword=True).fingerprint
    assert made.fingerprint != SynonymTable.of({("big", "a"): ["huge"]}).fingerprint
