"""Guards: data/sample has what every preset, both suites and the synonyms read; its WordNet equals the whole one.

python -m pytest --import-mode=importlib tests/data/test_sample.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/data/test_sample.py -m realdata
"""

import importlib.util
import zipfile
from collections import Counter
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

from data.check import read_files
from tasks.augment import wordnet
from tasks.augment.wordnet import TAGGER, WORDNET, WordNet
from tasks.benchmarks import sets, transfer
from tasks.contrastive import corpora, data, pairs, triplets
from tasks.contrastive.pairs import PhraseFileSettings
from tasks.presets import PRESETS

SAMPLE = Path(__file__).parent.parent.parent / "data" / "sample"
NLTK_DATA = SAMPLE / "nltk_data"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """data/sample/make_nltk_data.py as a module."""
    spec = importlib.util.spec_from_file_location("make_nltk_data", SAMPLE / "make_nltk_data.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def whole(real_data: Path) -> Path:
    """The NLTK data folder with the whole WordNet."""
    return wordnet.find_nltk_data(str(real_data))


def test_only_pairs_without_score_are_skipped() -> None:
    reasons = set()
    for file in read_files(SAMPLE):
        assert not file.warnings, file.name
        reasons |= {reason for _, reason in file.skipped}
    assert reasons == {"no gold score"}


PRESETS_OF_STAGE_ONE: list[tuple[str, str]] = []
for command, presets in PRESETS.items():
    if command != "multitask_train.py":
        PRESETS_OF_STAGE_ONE += [(command, name) for name in presets]


@pytest.mark.parametrize(("command", "preset"), PRESETS_OF_STAGE_ONE)
def test_presets_find_their_files(command: str, preset: str) -> None:
    values = PRESETS[command][preset].values
    files = PhraseFileSettings(data=str(SAMPLE), sts_dev=values["sts_dev"], phrases=values.get("phrases", ""))
    assert data.find_dev_pairs(files).paths
    if "texts" in values:
        assert corpora.find_texts(values["texts"], str(SAMPLE)).files
    elif "objective" in values:
        assert pairs.find_pairs(files)
        assert bool(pairs.find_phrases(files)) == ("phrases" in values)
    else:
        assert triplets.find_triplets("", str(SAMPLE)).num_texts == 3


def test_scored_sets_have_eight_pairs() -> None:
    for scored in sets.read(SAMPLE, [*sets.ENGLISH, *sets.CHINESE]):
        assert len(scored.pairs) >= 8, scored.name
        assert len(set(scored.gold)) >= 2, scored.name


def test_classes_fill_the_folds() -> None:
    """Twelve rows of a class leave ten in the training part of one of ten folds, which is divided into ten again."""
    for name in transfer.SETS:
        for split, rows in transfer.read_set(SAMPLE, name).items():
            counts = Counter(row.label for row in rows)
            assert min(counts.values()) >= {"all": 12, "train": 10}.get(split, 1), name


def test_wordnet_has_expected_synonyms() -> None:
    words = WordNet(NLTK_DATA)
    assert words.candidates("large", "JJ") == ("big",)
    assert words.candidates("elderly", "JJ") == ("aged", "older", "senior")
    assert "enceinte" in WordNet(NLTK_DATA, "all").candidates("large", "JJ")


@pytest.mark.realdata
@pytest.mark.parametrize("senses", ["first", "all"])
def test_candidates_equal_the_whole_wordnets(script: ModuleType, whole: Path, senses: str) -> None:
    expected = WordNet(whole, senses)
    actual = WordNet(NLTK_DATA, senses)
    pairs = set(chain(*script.tagged_sentences(whole)))
    assert len(pairs) > 4000
    for word, tag in pairs:
        assert actual.candidates(word, tag) == expected.candidates(word, tag), (word, tag)


@pytest.mark.realdata
def test_script_writes_the_same_files(script: ModuleType, whole: Path, tmp_path: Path) -> None:
    script.make(whole, tmp_path)
    for resource in (WORDNET, TAGGER):
        contents = []
        for folder in (tmp_path, NLTK_DATA):
            # the contents: other versions of zlib compress to other bytes
            with zipfile.ZipFile(folder / f"{resource}.zip") as archive:
                contents.append({name: archive.read(name) for name in archive.namelist()})
        assert contents[0] == contents[1]
