"""Guards: unlabelled texts: none lost or doubled in silence, samples by seed, test files and dev pairs in them named.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_texts.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/tasks/contrastive/test_texts.py -m realdata
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks.contrastive.data import Data
from tasks.contrastive.texts import find_texts, gather_texts, sample

from minbert import UserError
from minbert.tokenizer import Tokenizer
from tasks.contrastive import data
from tasks.contrastive.settings import ContrastiveSettings
from tasks.readers.senteval import STS
from tests.tasks.contrastive.conftest import texts_of, write


class Gathered(NamedTuple):
    texts: tuple[str, ...]
    account: dict[str, Any]


def gathered(source: str, *, data: Path) -> Gathered:
    found = find_texts([source], str(data))
    texts, facts = gather_texts(found, seed=0)
    files = [one | {"file": str(file.path)} for one, file in zip(facts["files"], found.files, strict=True)]
    return Gathered(tuple(texts), facts | {"files": files, "absent": found.absent})


@pytest.fixture
def of(corpora: Path) -> Callable[..., Gathered]:
    return partial(gathered, data=corpora)


def test_a_file_of_lines_keeps_each_first_appearance_and_counts_the_rest(of: Callable, tmp_path: Path) -> None:
    write(tmp_path / "own.txt", "b\n\n a \nb\nB\n  \na\n")
    found = of(str(tmp_path / "own.txt"))
    assert found.texts == ("b", "a", "B")
    (file,) = found.account["files"]
    assert (file["read"], file["kept"], file["texts"]) == (7, 5, 5)
    assert file["skipped"] == [{"line": 2, "why": "sentence: empty"}, {"line": 6, "why": "sentence: empty"}]
    assert (found.account["texts"], found.account["duplicates"], found.account["kept"]) == (5, 2, 3)
    assert not found.account["transductive"] and found.account["also_in_test"] == {"any": 0}


def test_sts_is_every_pair_scored_or_not_and_says_that_it_is_transductive(of: Callable) -> None:
    found = of("sts")
    subsets = sum(len(names) for _, names in STS.values())
    assert found.account["texts"] == 4 * subsets + 3 * 4 + 3 * 2 == sum(f["texts"] for f in found.account["files"])
    assert all(file["read"] == file["kept"] + len(file["skipped"]) for file in found.account["files"])
    assert {"A STS15 belief cup.", "A mill", "New dev mill", "A goat is in test", "A cup."} <= set(found.texts)
    assert found.account["transductive"]
    assert len(found.texts) == len(set(found.texts)) == found.account["texts"] - found.account["duplicates"]
    splits = Counter(file["split"] for file in found.account["files"])
    assert splits == {"test": subsets + 2, "train": 2, "dev": 2}


def test_train_only_reads_no_test_file_and_counts_what_stands_in_one_all_the_same(of: Callable, corpora: Path) -> None:
    found = of("sts-train")
    train = ("Old train mill", "A mill", "A cup!", "New train mill", "A goat is in train", "The goat rests")
    assert found.texts == train
    assert not found.account["transductive"] and found.account["absent"] == ["STS12 train"]
    assert found.account["also_in_test"] == {"any": 3}, "A cup! is A cup. but for its mark"
    write(corpora / "downstream/STS/STS12-en-train/STS.input.MSRpar.txt", "A lamp\tThe lamp\n")
    more = of("sts-train")
    assert more.texts == ("A lamp", "The lamp", *found.texts) and more.account["absent"] == []


def test_the_chinese_sets_as_they_are_fetched(tmp_path: Path) -> None:
    names = {"ATEC": "ATEC", "BQ": "BQ", "LCQMC": "LCQMC", "PAWS-X": "PAWSX", "STS-B": "STS-B"}
    for number, (folder, name) in enumerate(names.items()):
        for split in ("train", "valid", "test"):
            write(
                tmp_path / f"zh/{folder}/{name}.{split}.data",
                f"{folder}第一句{split}\t同一句\t1\n鱼{number}\t鸟{number}\t0\n",
            )
    found = gathered("chinese", data=tmp_path)
    assert found.account["absent"] == [] and not found.account["transductive"]
    assert [Path(one["file"]).name for one in found.account["files"]] == [
        f"{name}.train.data" for name in names.values()
    ]
    assert len(found.texts) == 5 + 1 + 10 and found.account["texts"] == 20
    assert found.account["also_in_test"] == {"any": 11}


def test_the_chinese_sets_are_those_that_are_there(of: Callable, corpora: Path) -> None:
    found = of("chinese")
    assert found.texts == ("花呗怎么还款", "怎么还花呗", "额度多少", "鸟在飞。", "鱼在游")
    assert found.account["absent"] == ["BQ train", "LCQMC train", "PAWS-X train"]
    assert (found.account["texts"], found.account["duplicates"], found.account["transductive"]) == (6, 1, False)
    assert found.account["also_in_test"] == {"any": 1}
    for path in (corpora / "zh").glob("*/*train*"):
        path.unlink()
    told = r"^--texts chinese: .*no train file in ATEC, BQ, LCQMC, PAWS-X, STS-B; python data/get_data\.py chinese "
    with pytest.raises(UserError, match=told):
        of("chinese")


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**40))
def test_a_sample_is_in_order_of_its_size_and_inside_a_larger_one(few: int, more: int, seed: int) -> None:
    texts = [f"text {number}" for number in range(40)]
    few, more = sorted((few, more))
    small, large = sample(texts, seed, few), sample(texts, seed, more)
    assert len(small) == few and len(large) == more and set(small) <= set(large)
    assert small == sorted(small, key=texts.index)
    assert sample(texts, seed, few) == small


def test_what_is_not_there_is_named(of: Callable, corpora: Path) -> None:
    write(corpora / "table.csv", "id,sentence\n1,a cat\n")
    with pytest.raises(UserError, match=r"^--texts .*table\.csv: is a table"):
        of(str(corpora / "table.csv"))
    with pytest.raises(UserError, match=r"^--texts: 'stss' is neither .* nor a file; did you mean 'sts'"):
        of("stss")
    shutil.rmtree(corpora / "downstream")
    with pytest.raises(UserError, match=r"^--texts sts-train: .*no SentEval data there.*get_data\.py senteval "):
        of("sts-train")


@pytest.mark.realdata
def test_the_real_sts_texts_are_conserts_89192(real_data: Path) -> None:
    """ConSERT, Table 1: the number counts duplicates."""
    account = gathered("sts", data=real_data).account
    assert (account["texts"], account["kept"], account["transductive"]) == (89_192, 48_699, True)
    by_set = Counter[str]()
    for file in account["files"]:
        by_set[Path(file["file"]).parent.name[:5]] += file["texts"]
    assert list(by_set.values()) == [6216, 3000, 7500, 17000, 18366, 17256, 19854]


TEXTS = ["the cat sat .", "a dog runs .", "the bird is happy .", "a tree .", "who is sad ?", "the dog sleeps ."]
Read = Callable[..., Data]


@pytest.fixture
def read(tiny: Path, tmp_path: Path) -> Read:
    """A function that reads texts under some settings, with three pairs to evaluate on."""
    pairs = [("The cat sat!", "A  dog runs."), ("The cat sat.", "Nobody."), ("A tree.", "A tree.")]
    rows = [f"{number}\t{one}\t{two}\t{number}.0" for number, (one, two) in enumerate(pairs)]
    (tmp_path / "sts-dev.csv").write_text("\n".join(["id\tsentence1\tsentence2\tsimilarity", *rows]) + "\n")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")

    def found(**given: Any) -> Data:
        known = {"objective": "views", "views": "shuffle,none", "sts_dev": str(tmp_path / "sts-dev.csv")}
        settings = ContrastiveSettings.of(**(known | {"texts": str(tmp_path / "texts.txt")} | given))
        return data.read(settings, Tokenizer.load(tiny), 64)

    return found


@pytest.mark.parametrize(("kept", "seen"), [(TEXTS, 2), (TEXTS[:2], 1), (TEXTS[1:], 1), (TEXTS[4:], 0)])
def test_pairs_to_evaluate_on_that_are_made_of_training_texts_are_counted(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: list[str], seen: int
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(kept) + "\n")
    found = read()
    assert found.entry["train"]["dev_pairs_seen"] == seen
    said = f"sts-dev.csv: {seen} of 3 pairs are made of training texts"
    assert (said in capsys.readouterr().err) == (seen > 0)


def test_duplicates_are_kept_where_it_is_asked(read: Read, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, TEXTS[0]]) + "\n")
    for keep, expected in ((False, TEXTS), (True, [*TEXTS, TEXTS[0]])):
        assert texts_of(read(keep_duplicates=keep).train) == [(text,) for text in expected]


def test_weights_of_a_run_on_test_sentences_are_marked_down_the_chain(
    read: Read, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accounts = [{"transductive": True}, {"transductive": False, "weights_transductive": True}, {"transductive": False}]
    for number, account in enumerate(accounts):
        (tmp_path / f"run-{number}" / "encoder").mkdir(parents=True)
        manifest = {"settings": {}, "data": {"train": account}}
        (tmp_path / f"run-{number}" / "manifest.json").write_text(json.dumps(manifest))
        found = read(weights=str(tmp_path / f"run-{number}" / "encoder")).entry["train"]
        said = "come from a run on test sentences (transductive)" in capsys.readouterr().err
        assert found.get("weights_transductive", False) == said == (number < 2)
    behind = {"folder": str(tmp_path / "run-0" / "encoder")}
    between = {"settings": {}, "data": {"train": {"sst": {}}}, "weights": behind}
    (tmp_path / "run-2" / "manifest.json").write_text(json.dumps(between))  # a run of stage two
    assert read(weights=str(tmp_path / "run-2" / "encoder")).entry["train"]["weights_transductive"]
    (tmp_path / "run-2" / "manifest.json").write_text("[1]")  # some other program's
    for weights in (tmp_path / "run-2" / "encoder", tiny):
        assert "weights_transductive" not in read(weights=str(weights)).entry["train"]
