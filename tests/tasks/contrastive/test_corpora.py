"""Guards: unlabelled texts: none lost or doubled in silence, samples by seed, test sentences and dev pairs counted.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_corpora.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/tasks/contrastive/test_corpora.py -m realdata
"""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from transformers import BertTokenizerFast

from minbert import UserError, weights
from minbert.tokenizer import Tokenizer
from minbert.train.start import InitialEncoder
from tasks.contrastive.consert import ConsertSettings
from tasks.contrastive.corpora import find_texts, gather_texts, read_texts
from tasks.contrastive.data import Data, find_dev_pairs, prepare_data
from tasks.readers.senteval import STS
from tests.tasks.contrastive.conftest import texts_of, write

TEXTS = ["the cat sat .", "a dog runs .", "the bird is happy .", "a tree .", "who is sad ?", "the dog sleeps ."]
DEV_PAIRS = [("The cat sat!", "A  dog runs."), ("The cat sat.", "Nobody."), ("A tree.", "A tree.")]


def gather(source: str, data: Path) -> tuple[list[str], dict[str, Any]]:
    """The texts of a source in a data folder, and the report on its files."""
    tokenizer = Tokenizer.load(weights.resolve("minilm"))
    return gather_texts(find_texts(source, str(data)), tokenizer, seed=0)


def test_lines_keep_their_first_appearance(tmp_path: Path) -> None:
    path = write(tmp_path / "own.txt", "b\n\n a \nb\nB\n  \na\n")
    texts, report = gather(str(path), tmp_path)
    assert texts == ["b", "a"], "B has the token ids of b"
    (file,) = report["files"]
    assert (file["read"], file["kept"], file["texts"]) == (7, 5, 5)
    assert file["skipped"] == [{"line": 2, "why": "sentence: empty"}, {"line": 6, "why": "sentence: empty"}]
    assert (report["texts"], report["duplicates"], report["kept"]) == (5, 3, 2)
    assert not report["transductive"] and report["also_in_test"] == {"any": 0}


def test_sts_reads_every_pair(corpora: Path) -> None:
    """Pairs without a score too, and test sentences, which the report says."""
    texts, report = gather("sts", corpora)
    subsets = sum(len(names) for _, names in STS.values())
    assert report["texts"] == 4 * subsets + 3 * 4 + 3 * 2
    assert {"A STS15 belief cup.", "A mill", "New dev mill", "A goat is in test", "A cup."} <= set(texts)
    assert report["transductive"]
    assert len(texts) == len(set(texts)) == report["texts"] - report["duplicates"]


def test_sts_train_reads_no_test_file(corpora: Path) -> None:
    """It counts the test sentences that stand in a train file all the same."""
    texts, report = gather("sts-train", corpora)
    assert texts == ["Old train mill", "A mill", "A cup!", "New train mill", "A goat is in train", "The goat rests"]
    assert not report["transductive"]
    assert report["also_in_test"] == {"any": 3}, "A cup! is A cup. but for its mark"
    assert find_texts("sts-train", str(corpora)).absent == ["STS12 train"]
    write(corpora / "downstream/STS/STS12-en-train/STS.input.MSRpar.txt", "A lamp\tThe lamp\n")
    assert gather("sts-train", corpora)[0] == ["A lamp", "The lamp", *texts]


def test_chinese_reads_existing_train_files(corpora: Path) -> None:
    texts, report = gather("chinese", corpora)
    assert texts == ["花呗怎么还款", "怎么还花呗", "额度多少", "鸟在飞。", "鱼在游"]
    assert report["also_in_test"] == {"any": 1}, "spaces make no difference"
    assert find_texts("chinese", str(corpora)).absent == ["BQ train", "LCQMC train", "PAWS-X train"]


def test_missing_texts_name_the_remedy(corpora: Path) -> None:
    table = write(corpora / "table.csv", "id,sentence\n1,a cat\n")
    shutil.rmtree(corpora / "downstream")
    for path in (corpora / "zh").glob("*/*train*"):
        path.unlink()
    messages = {
        str(table): "is a table",
        "stss": "--texts stss: .*did you mean 'sts'",
        "sts-train": r"get_data\.py senteval",
        "chinese": r"--texts chinese: .*get_data\.py chinese",
    }
    for source, message in messages.items():
        with pytest.raises(UserError, match=message):
            gather(source, corpora)


@pytest.mark.realdata
def test_real_sts_texts_are_conserts(minilm: Path, real_data: Path) -> None:
    """ConSERT, Table 1: 89,192 texts, of which 48,699 differ; distinct by transformers' token ids."""
    corpus = find_texts("sts", str(real_data))
    texts, report = gather("sts", real_data)
    assert (report["texts"], report["kept"], report["transductive"]) == (89_192, 48_699 - 1_374, True)
    ids = BertTokenizerFast.from_pretrained(minilm)(texts, add_special_tokens=False)["input_ids"]
    assert len(set(map(tuple, ids))) == len(texts)
    texts_by_set = Counter[str]()
    for file, entry in zip(corpus.files, report["files"], strict=True):
        texts_by_set[file.path.parent.name[:5]] += entry["texts"]
    assert list(texts_by_set.values()) == [6216, 3000, 7500, 17000, 18366, 17256, 19854]


def read(initial: InitialEncoder, tmp_path: Path, texts: list[str], **flags: Any) -> Data:
    """The data of a run on texts, with DEV_PAIRS as its dev pairs."""
    content = "id\tsentence1\tsentence2\tsimilarity\n"
    for number, (first, second) in enumerate(DEV_PAIRS):
        content += f"{number}\t{first}\t{second}\t{number}.0\n"
    write(tmp_path / "sts-dev.csv", content)
    path = write(tmp_path / "texts.txt", "\n".join(texts) + "\n")
    usual = {"texts": str(path), "sts_dev": str(tmp_path / "sts-dev.csv"), "data": str(tmp_path)}
    settings = ConsertSettings.of(**usual | flags)
    rows = read_texts(find_texts(str(path), ""), settings.data, settings.training.seed, initial)
    dev = find_dev_pairs(settings.files)
    return prepare_data(rows, dev, settings, initial, noun="texts", unlabelled=True)


def test_samples_depend_on_the_seed(initial: InitialEncoder, tmp_path: Path) -> None:
    samples = set()
    for seed in range(5):
        sample = texts_of(read(initial, tmp_path, TEXTS, limit=3, seed=seed).train)
        larger = texts_of(read(initial, tmp_path, TEXTS, limit=5, seed=seed).train)
        assert len(sample) == 3 and {*sample} < {*larger}
        samples.add(tuple(sample))
    assert len(samples) > 1


@pytest.mark.parametrize(("texts", "seen"), [(TEXTS, 2), (TEXTS[:2], 1), (TEXTS[1:], 1), (TEXTS[4:], 0)])
def test_dev_pairs_among_texts_are_counted(
    initial: InitialEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str], texts: list[str], seen: int
) -> None:
    data = read(initial, tmp_path, texts)
    assert data.entry["train"]["dev_pairs_seen"] == seen
    warning = f"sts-dev.csv: {seen} of 3 pairs are made of training texts"
    assert (warning in capsys.readouterr().err) == (seen > 0)


def test_duplicates_are_kept_on_request(initial: InitialEncoder, tmp_path: Path) -> None:
    texts = [*TEXTS, TEXTS[0]]
    assert texts_of(read(initial, tmp_path, texts).train) == [(text,) for text in TEXTS]
    assert texts_of(read(initial, tmp_path, texts, keep_duplicates=True).train) == [(text,) for text in texts]


TRANSDUCTIVE = {"settings": {}, "data": {"train": {"transductive": True}}}
STAGE_TWO = {"settings": {}, "data": {"train": {"sst": {}}}, "weights": {"folder": "{first}"}}


@pytest.mark.parametrize(
    ("manifest", "marked"),
    [
        (TRANSDUCTIVE, True),
        ({"settings": {}, "data": {"train": {"weights_transductive": True}}}, True),
        ({"settings": {}, "data": {"train": {"transductive": False}}}, False),
        (STAGE_TWO, True),  # it started from a transductive run
        ([1], False),  # of another program
    ],
)
def test_transductive_weights_are_marked(
    initial: InitialEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str], manifest: Any, marked: bool
) -> None:
    for name, content in (("first", TRANSDUCTIVE), ("second", manifest)):
        (tmp_path / name / "encoder").mkdir(parents=True)
        text = json.dumps(content).replace("{first}", str(tmp_path / "first/encoder"))
        write(tmp_path / name / "manifest.json", text)
    data = read(initial, tmp_path, TEXTS, weights=str(tmp_path / "second/encoder"))
    assert data.entry["train"].get("weights_transductive", False) == marked
    assert ("come from a run on test sentences (transductive)" in capsys.readouterr().err) == marked


def test_overlaps_are_counted_when_dev_chooses(
    initial: InitialEncoder, corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dev = corpora / "downstream/STS/STSBenchmark/sts-test.csv"
    warning = "of the 2 pairs that choose the encoder some are also in scored sets: 2 in STS-B"
    for keep, counted in (("best", True), ("last", False)):
        data = read(initial, corpora, TEXTS, keep=keep, sts_dev=str(dev))
        overlaps = data.entry["sts_dev"]["also_in"]
        assert bool(overlaps) == counted and overlaps.get("STS-B", 2) == 2
        assert (warning in capsys.readouterr().err) == counted
