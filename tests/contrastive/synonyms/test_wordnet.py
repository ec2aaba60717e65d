"""Guards: where WordNet is looked for, and that the table says what NLTK says.

DATA_DIR=... python -m pytest --import-mode=importlib tests/contrastive/synonyms/test_wordnet.py
"""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from minbert import UserError
from tasks.contrastive.synonyms import synonym_table, wordnet
from tasks.contrastive.synonyms.replacement import LiveSynonyms
from tasks.contrastive.synonyms.synonym_table import SynonymTable
from tasks.contrastive.synonyms.tagging import tag


def fake(folder: Path) -> Path:
    (folder / wordnet.WORDNET).mkdir(parents=True)
    (folder / wordnet.WORDNET / "index.noun").write_text("", encoding="utf-8")
    return folder.resolve()


def test_wordnet_is_looked_for_in_nltk_data_then_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NLTK_DATA", raising=False)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match=r"usual places \(.*data\); .*\.py wordnet --to .*elsewhere .*--synonyms$"):
        wordnet.find()
    by_variable = fake(tmp_path / "elsewhere" / "nltk_data")
    assert wordnet.find() == by_variable
    by_flag = fake(tmp_path / "given" / "nltk_data")
    assert wordnet.find(str(tmp_path / "given")) == by_flag
    own = fake(tmp_path / "own")
    monkeypatch.setenv("NLTK_DATA", os.pathsep.join([str(tmp_path / "nothing"), str(own)]))
    assert wordnet.find(str(tmp_path / "given")) == own


def test_a_zip_counts_and_the_fingerprint_follows_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "corpora").mkdir()
    packed = tmp_path / "corpora" / "wordnet.zip"
    packed.write_bytes(b"one")
    assert wordnet.files(tmp_path, wordnet.WORDNET) == [packed]
    first = wordnet.fingerprint(tmp_path, wordnet.WORDNET)
    packed.write_bytes(b"two")
    assert wordnet.fingerprint(tmp_path, wordnet.WORDNET) != first
    assert wordnet.tagging(tmp_path) == "wordnet counts"
    assert wordnet.tagger(tmp_path) is None


def test_a_broken_wordnet_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"NLTK cannot read it .*get_data\.py wordnet"):
        wordnet.read(fake(tmp_path / "nltk_data"))


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return wordnet.find()
    except UserError:
        pytest.skip("WordNet is neither in $NLTK_DATA nor in $DATA_DIR/nltk_data")


@pytest.fixture(scope="module")
def table(folder: Path) -> SynonymTable:
    return synonym_table.load(folder)


@pytest.fixture(scope="module")
def nltks(folder: Path) -> Any:
    import nltk.data
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    nltk.data.path.insert(0, str(folder))
    return WordNetCorpusReader(nltk.data.find("corpora/wordnet"), None)


@pytest.mark.realdata
@pytest.mark.filterwarnings("ignore:The multilingual functions")
def test_the_table_says_what_nltk_says_word_by_word(folder: Path, nltks: Any) -> None:
    made = synonym_table.load(folder, multiword=True, all_senses=True)
    drawn = random.Random(0).sample([(part, word) for part in "nvar" for word in made.words[part]], 300)
    for part, word in [*drawn, ("a", "big"), ("n", "dog"), ("v", "carry"), ("n", "America"), ("r", "slowly")]:
        senses = [synset for synset in nltks.synsets(word, part) if word in [lemma.name() for lemma in synset.lemmas()]]
        others = {name.replace("_", " ") for synset in senses for name in synset.lemma_names()} - {word}
        found = made.synonyms(word, part)
        assert set(found) <= others, (word, part)
        left_out = others - set(found)
        plain = {one for one in left_out if one.replace(" ", "").isalpha() and one.islower() and len(one) > 3}
        assert all(_has_a_reason(one, word, senses) for one in plain), (word, part, plain)


@pytest.mark.realdata
@pytest.mark.filterwarnings("ignore:The multilingual functions")
def test_the_counts_are_those_of_nltk(table: SynonymTable, nltks: Any) -> None:
    for part, word in (("a", "big"), ("n", "dog"), ("v", "carry"), ("r", "slowly"), ("n", "America")):
        lemmas = [lemma for synset in nltks.synsets(word, part) for lemma in synset.lemmas() if lemma.name() == word]
        assert table.words[part][word][0] == sum(lemma.count() for lemma in lemmas), word


def _has_a_reason(one: str, word: str, senses: list[Any]) -> bool:
    rude = {"ethnic_slur", "obscenity", "disparagement"}
    marks = {domain.name().split(".")[0] for synset in senses for domain in synset.usage_domains()}
    short = any(len(part) < 2 for part in one.split())
    return bool(marks & rude) or one in synonym_table.CLOSED or short or one.lower() == word.lower()


@pytest.mark.realdata
def test_no_function_word_and_no_grotesque(table: SynonymTable) -> None:
    for word in ["a", "in", "be", "is", "i", "it", "as", "he", "at", "one", "two", "am", "or", "no", "us"]:
        assert all(not table.candidates(word, name) for name in ("NN", "JJ", "VB", "RB", "NNP"))
    assert "enceinte" not in table.candidates("large", "JJ")
    assert table.candidates("large", "JJ") == ("big",)
    assert table.candidates("larger", "JJR") == ("bigger",)
    assert "kids" in table.candidates("children", "NNS")
    assert "movies" in table.candidates("films", "NNS")


@pytest.mark.realdata
def test_tagging_by_nltks_tagger_and_speed_of_method_3(folder: Path, table: SynonymTable) -> None:
    if not wordnet.files(folder, wordnet.TAGGER):
        pytest.skip("the tagger is not there")
    sentence = "An old woman walks her small dog along a narrow path near the quiet river ."
    tagged = tag([sentence], table, folder)
    assert tagged.tagging == "perceptron"
    from nltk.tag import pos_tag

    expected = [word for word, name in pos_tag(sentence.split()) if name == "JJ" and table.candidates(word, "JJ")]
    adjectives = tagged.only("a")
    assert [sentence[start:end] for _, start, end, _ in adjectives.of(0)] == expected
    assert "small" in expected
    texts = [f"{sentence} {number}" for number in range(2000)]
    augment = LiveSynonyms(tag(texts, table, folder), p=1)
    began = time.process_time()
    for batch in range(10):
        augment.texts(batch, range(2000), texts)
    assert 20_000 / (time.process_time() - began) > 20_000
