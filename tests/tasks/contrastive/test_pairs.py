"""Guards: which rows of NLI files and of phrases are classified; none is lost in silence.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_pairs.py
"""

import json
from pathlib import Path

import pytest

from minbert import UserError
from minbert.train.start import InitialEncoder
from tasks.contrastive.data import DevFiles, TrainingRows, prepare_data
from tasks.contrastive.nli import NliSettings
from tasks.contrastive.pairs import NliFileSettings, PhraseFileSettings, find_pairs, find_phrases, read_pairs
from tests.tasks.contrastive.conftest import texts_of, write, write_pairs

PAIRS = [
    ("the cat sat.", "a cat.", "entailment"),
    ("the cat sat.", "a dog.", "-"),
    ("a dog runs.", "the dog is happy.", "neutral"),
    ("a dog runs.", "the dog sat.", "contradiction"),
]


def read(files: PhraseFileSettings, initial: InitialEncoder) -> TrainingRows:
    return read_pairs(find_pairs(files), find_phrases(files), files.data, initial)


def test_pairs_without_label_are_listed(initial: InitialEncoder, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv", PAIRS)
    examples, entry = read(PhraseFileSettings(nli_pairs=str(path)), initial)
    assert texts_of(examples) == [row[:2] for row in PAIRS if row[2] != "-"]
    assert examples.labels.tolist() == [0, 1, 2]
    assert entry["skipped"] == [{"line": 3, "why": "no gold label"}]
    assert entry["read"] == entry["kept"] + len(entry["skipped"]) == len(PAIRS)


@pytest.mark.parametrize("name", ["sst", "{folder}/SST/binary/sentiment-train"])
def test_phrases_are_two_further_classes(initial: InitialEncoder, tmp_path: Path, name: str) -> None:
    pairs = str(write_pairs(tmp_path / "pairs.tsv", PAIRS))
    phrases = write(tmp_path / "SST/binary/sentiment-train", "a fine film \t1\n \t0\ndull\t0\n")
    files = PhraseFileSettings(nli_pairs=pairs, phrases=name.format(folder=tmp_path), data=str(tmp_path))
    examples, entry = read(files, initial)
    assert texts_of(examples)[-3:] == [PAIRS[3][:2], ("a fine film", ""), ("dull", "")]
    assert examples.labels.tolist() == [0, 1, 2, 4, 3]
    assert [file["file"] for file in entry["files"]] == [pairs, str(phrases)]
    assert entry["skipped"][-1] == {"line": 2, "why": "sentiment-train: sentence: empty"}
    assert entry["read"] == entry["kept"] + len(entry["skipped"]) == len(PAIRS) + 3


def test_wrong_phrases_are_refused(initial: InitialEncoder, tmp_path: Path) -> None:
    pairs = str(write_pairs(tmp_path / "pairs.tsv", PAIRS))
    phrases = write(tmp_path / "phrases", "a fine film\t2\n")
    with pytest.raises(UserError, match="phrases:1: label: '2'"):
        read(PhraseFileSettings(nli_pairs=pairs, phrases=str(phrases)), initial)
    with pytest.raises(UserError, match="missing: no such file"):
        find_phrases(PhraseFileSettings(phrases=str(tmp_path / "missing")))


def test_phrases_of_scored_sets_are_skipped(
    initial: InitialEncoder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Letters and digits alone decide: the course's files are spaced and cased differently from SentEval's."""
    pairs = str(write_pairs(tmp_path / "pairs.tsv", PAIRS))
    write(tmp_path / "SST/binary/sentiment-train", "a fine film \t1\nDull , and long .\t0\nthe end\t0\n")
    write(tmp_path / "course/ids-sst-dev.csv", "\tid\tsentence\tsentiment\n0\ta\t Dull and long\t1\n")
    test_set = write(tmp_path / "ids-sst-test-student.csv", "0\t\tid\tsentence\n1\t0\tb\t The end .\n")
    files = PhraseFileSettings(nli_pairs=pairs, data=str(tmp_path), phrases="sst")
    examples, entry = read(files, initial)
    assert texts_of(examples)[-1] == ("a fine film", "")
    assert entry["skipped"][-2:] == [
        {"line": 2, "why": "sentiment-train: equals a sentence of ids-sst-dev.csv"},
        {"line": 3, "why": "sentiment-train: equals a sentence of ids-sst-test-student.csv"},
    ]
    test_set.unlink()
    assert texts_of(read(files, initial).examples)[-1] == ("the end", ""), "not from the cache"
    assert "has no ids-sst-test-student.csv" in capfd.readouterr().err


@pytest.mark.parametrize("folders", [("snli_1.0",), ("multinli_1.0",), ("snli_1.0", "multinli_1.0")])
def test_original_files_are_the_default(initial: InitialEncoder, tmp_path: Path, folders: tuple[str, ...]) -> None:
    content = ""
    for premise, hypothesis, label in PAIRS[2:]:
        content += json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis}) + "\n"
    for folder in folders:
        write(tmp_path / "nli" / folder / f"{folder}_train.jsonl", content)
    files = NliFileSettings(data=str(tmp_path))
    paths = find_pairs(files)
    assert [path.parent.name for path in paths] == [*folders]
    examples, _ = read_pairs(paths, [], "", initial)
    assert texts_of(examples) == [row[:2] for row in PAIRS[2:]] * len(folders)
    joined = write_pairs(tmp_path / "nli/nli-pairs.tsv", PAIRS)
    assert find_pairs(files) == [joined], "the joined file comes first"


def test_a_split_column_keeps_training_rows(initial: InitialEncoder, tmp_path: Path) -> None:
    pairs = write(tmp_path / "p.csv", "premise,hypothesis,label,split\na,b,neutral,train\nc,d,neutral,test\n")
    phrases = write(tmp_path / "s.csv", "text,label,split\ne,1,dev\nf,1,train\n")
    examples, entry = read_pairs([pairs], [phrases], str(tmp_path), initial)
    assert texts_of(examples) == [("a", "b"), ("f", "")]
    assert (entry["read"], entry["kept"], entry["left_out"]) == (4, 2, 2)
    options = NliSettings.of(limit=1, sts_dev="none", keep="last")
    data = prepare_data(TrainingRows(examples, entry), DevFiles("none", {}), options, initial, noun="pairs")
    assert len(data.train) == 1 and entry["labelled"] == 1
    assert (entry["read"], entry["kept"], entry["left_out"]) == (4, 1, 3)
