"""Guards: where WordNet is looked for, which synonyms a word has, and in which form.

python -m pytest --import-mode=importlib tests/tasks/augment/test_wordnet.py
"""

import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import nltk.data
import pytest

from minbert import UserError
from tasks.augment import wordnet
from tasks.augment.wordnet import CLOSED, WordNet, inflected

Make = Callable[..., WordNet]
SAMPLE = Path(__file__).parents[3] / "data" / "sample"


def fake(folder: Path) -> Path:
    (folder / wordnet.WORDNET).mkdir(parents=True)
    (folder / wordnet.TAGGER).mkdir(parents=True)
    for name in (f"{wordnet.WORDNET}/index.noun", f"{wordnet.TAGGER}/x.json"):
        (folder / name).write_text("", encoding="utf-8")
    return folder.resolve()


def test_nltk_data_comes_before_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NLTK_DATA", raising=False)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "elsewhere"))
    message = r"^WordNet and NLTK's tagger are not in .*get_data\.py wordnet .*--synonyms none"
    with pytest.raises(UserError, match=message):
        wordnet.find_nltk_data()
    by_variable = fake(tmp_path / "elsewhere" / "nltk_data")
    assert wordnet.find_nltk_data() == by_variable
    by_flag = fake(tmp_path / "given" / "nltk_data")
    assert wordnet.find_nltk_data(str(tmp_path / "given")) == by_flag
    by_nltk_data = fake(tmp_path / "nltk")
    monkeypatch.setenv("NLTK_DATA", os.pathsep.join([str(tmp_path / "nothing"), str(by_nltk_data)]))
    assert wordnet.find_nltk_data(str(tmp_path / "given")) == by_nltk_data
    shutil.rmtree(by_nltk_data / wordnet.TAGGER)
    assert wordnet.find_nltk_data(str(tmp_path / "given")) == by_flag, "WordNet alone does not serve"


def test_files_that_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NLTK refuses such files, which a clone has under a umask of 002."""
    monkeypatch.setattr(nltk.data, "path", [])  # without the folders of other tests
    folder = tmp_path / "nltk_data"
    shutil.copytree(SAMPLE / "nltk_data", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o020)
    own = SAMPLE / "nltk_data"
    synonyms = WordNet(own).synonyms("small", "a")
    assert synonyms and WordNet(folder).synonyms("small", "a") == synonyms
    words = ["a", "small", "dog"]
    assert wordnet.tagger(folder)(words) == wordnet.tagger(own)(words)


@pytest.fixture
def wordnet_of(write_wordnet: Callable[..., Path], tmp_path: Path) -> Make:
    """A function of synsets (part of speech, lemma -> count) that gives a WordNet of them."""

    def make(*synsets: Any, senses: str = "first", rude: tuple[str, ...] = (), keep: tuple[str, ...] = ()) -> WordNet:
        folder = tmp_path / f"nltk-{len(list(tmp_path.iterdir()))}"
        return WordNet(write_wordnet(folder, *synsets, rude=rude), senses, frozenset(keep))

    return make


def sense(part: str, *lemmas: str, counts: list[int] | None = None) -> tuple[str, dict[str, int]]:
    return part, dict(zip(lemmas, counts or [1] * len(lemmas), strict=True))


FORMS = [
    ("child", "NNS", "children"),
    ("blorf", "NNS", None),
    ("enormous", "JJR", None),
    ("motor car", "NNS", "motor cars"),
    ("man of letters", "NNS", None),
    ("well off", "JJR", None),
    ("keep up", "VBD", "kept up"),
    ("ran off", "VB", "ran off"),
]


def test_form_is_kept_or_unknown() -> None:
    for lemma, tag_, form in FORMS:
        assert inflected(lemma, tag_) == form


SAW = [("saw", "VBD", "see"), ("saw", "VB", "saw"), ("sawed", "VBD", "saw")]
LAY = [("lay", "VBD", "lie"), ("lay", "VBP", "lay"), ("found", "VBD", "find")]
NOUNS = [("glasses", "NNS", "glasses"), ("knives", "NNS", "knife"), ("unheard", "NNS", None)]


def test_lemma_fits_the_form(wordnet_of: Make) -> None:
    """The most frequent of the lemmas whose form the word is, however frequent the others are."""
    verbs = []
    for lemma, count in {"see": 2, "saw": 9, "lie": 2, "lay": 1, "find": 2, "found": 9}.items():
        verbs.append(sense("v", lemma, f"{lemma}-too", counts=[count, 1]))
    glasses = sense("n", "glasses", "specs", counts=[9, 1])
    glass = sense("n", "glass", "cup", counts=[4, 1])
    words = wordnet_of(*verbs, glasses, glass, sense("n", "knife"))
    for word, tag_, lemma in SAW + LAY + NOUNS:
        assert words.lemma(word, tag_) == lemma, word


def test_first_sense_is_wordnets_first(wordnet_of: Make) -> None:
    """Whatever the counts, which lack some adjectives: the previous owner is not the late one."""
    words = wordnet_of(
        sense("n", "man", "adult male", counts=[749, 0]),
        sense("n", "man", "serviceman", counts=[346, 0]),
        sense("a", "previous", "old", counts=[0, 80]),
        sense("a", "previous", "late", counts=[3, 4]),
    )
    assert words.candidates("man", "NN") == words.candidates("men", "NNS") == ()
    assert words.candidates("previous", "JJ") == ("old",)


def test_kept_words_are_left_alone(wordnet_of: Make) -> None:
    """Neither replaced nor put in, whatever their form and case, nor in a phrase."""
    synsets = (sense("n", "toilet", "crapper", "privy"), sense("n", "man", "homo", "homo sapiens", "human"))
    words = wordnet_of(*synsets, senses="all", keep=("toilet", "homo"))
    assert words.candidates("toilet", "NN") == words.candidates("Toilets", "NNS") == ()
    assert words.candidates("crapper", "NN") == ("privy",)
    assert words.candidates("man", "NN") == ("human",)


def test_all_senses_add_rare_ones(wordnet_of: Make) -> None:
    """In WordNet's order; a word of another part of speech is none."""
    senses = (
        sense("a", "large", "big"),
        sense("a", "large", "broad", "great big"),
        sense("a", "large", "expectant"),
        sense("n", "large", "size"),
    )
    assert wordnet_of(*senses).synonyms("large", "a") == ["big"]
    assert wordnet_of(*senses, senses="all").synonyms("large", "a") == ["big", "broad", "great big", "expectant"]
    assert wordnet_of(*senses).synonyms("large", "v") == wordnet_of(*senses).synonyms("small", "a") == []


def test_slurs_and_names_are_no_synonyms(wordnet_of: Make) -> None:
    """A slur, a name or abbreviation for a common word, a sign, a closed class, the word in other capitals."""
    words = wordnet_of(
        sense("n", "dog", "Rover", "TV", "c2", "x", "one", "cur", "hound"),
        sense("n", "America", "USA"),
        sense("n", "Turkey", "Republic"),
        rude=("cur",),
    )
    assert words.synonyms("dog", "n") == ["hound"]
    assert words.synonyms("cur", "n") == []
    assert words.synonyms("America", "n") == ["USA"]
    assert words.candidates("turkey", "NN") == ()
    assert words.candidates("Turkey", "NNP") == ("Republic",)


def test_adjectives_keep_their_position(wordnet_of: Make) -> None:
    """As WordNet marks it: before a noun (a) or after a verb (p)."""
    words = wordnet_of(
        sense("a", "main(a)", "chief(a)", "awake(p)", "primary"),
        sense("a", "young", "new(a)", "immature"),
    )
    assert words.candidates("main", "JJ") == ("chief", "primary")
    assert words.candidates("awake", "JJ") == ("primary",)
    assert words.candidates("primary", "JJ") == ()
    assert words.candidates("young", "JJ") == ("immature",)


def test_synonyms_fit_the_article(wordnet_of: Make) -> None:
    hours = ("hour", "unit", "era", "one-off", "Uniform", "undoing", "period")
    words = wordnet_of(sense("n", "spell", *hours), sense("n", "honor", "heirloom", "house", "useless"))
    for text, expected in (
        ("a spell", ("unit", "one-off", "period")),
        ("An\tspell", ("hour", "era", "undoing")),
        ("banana spell", ("hour", "unit", "era", "one-off", "undoing", "period")),
        ("the a, spell", ("hour", "unit", "era", "one-off", "undoing", "period")),
        ("an honor", ("heirloom",)),
    ):
        tagged = wordnet.tag([text], words)
        *_, (_, _, group) = tagged.of(0)
        assert tagged.candidates[group] == expected, text


def test_candidates_keep_the_form(wordnet_of: Make) -> None:
    words = wordnet_of(
        sense("n", "child", "kid", "youngster", counts=[5, 5, 5]),
        sense("a", "big", "large", "enormous"),
        sense("v", "hold", "keep", "run"),
        sense("n", "glasses", "spectacles", "specs", "eyewear", counts=[9, 1, 1, 1]),
        sense("n", "glass", "tumbler", counts=[4, 1]),
        sense("n", "chair", "chairs"),
        sense("v", "axe", "ax"),
    )
    assert words.candidates("children", "NNS") == ("kids", "youngsters")
    assert words.candidates("Kids", "NNS") == ("children", "youngsters")
    assert words.candidates("bigger", "JJR") == ("larger",)
    assert words.candidates("largest", "JJS") == ("biggest",)
    assert words.candidates("held", "VBD") == ("kept", "ran")
    assert words.candidates("held", "VBN") == ("kept", "run")
    assert words.candidates("glasses", "NNS") == ("spectacles", "specs")
    assert words.candidates("chair", "NN") == words.candidates("chairs", "NNS") == ()
    assert words.candidates("axed", "VBD") == (), "axed again"
    for word, tag_ in (("big", "CD"), ("bIg", "JJ"), ("42", "JJ")):
        assert words.candidates(word, tag_) == ()


def test_closed_classes_have_no_candidates(wordnet_of: Make) -> None:
    closed = ["a", "an", "in", "be", "is", "have", "one", "two", "he", "it", "as", "or", "not", "more", "don", "ii"]
    words = wordnet_of(*[sense(part, word, "wrong") for part, word in product("nvar", closed)])
    for word, tag_ in product(closed, ("NN", "NNP", "JJ", "VB", "RB")):
        assert not words.candidates(word, tag_), word
    assert all(word == word.lower() for word in CLOSED)
