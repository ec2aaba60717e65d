"""Guards: unlabelled texts as stage one reads them: drawn by seed, and said where they are few, cut or known to dev.

python -m pytest --import-mode=importlib tests/contrastive/test_data_texts.py
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minbert.tokenizer import Tokenizer
from tasks.contrastive import data
from tasks.contrastive.data import Data
from tasks.contrastive.settings import ContrastiveSettings

TEXTS = ["the cat sat .", "a dog runs .", "the bird is happy .", "a tree .", "who is sad ?", "the dog sleeps ."]
Read = Callable[..., Data]


@pytest.fixture
def read(tiny: Path, tmp_path: Path) -> Read:
    """A function that reads texts under some settings, with three pairs to evaluate on."""
    pairs = [("The cat sat!", "A  dog runs."), ("The cat sat.", "Nobody."), ("A tree.", "A tree.")]
    rows = [f"{number}\t{one}\t{two}\t{number}.0" for number, (one, two) in enumerate(pairs)]
    (tmp_path / "sts-dev.csv").write_text("\n".join(["id\tsentence1\tsentence2\tsimilarity", *rows]) + "\n")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")

    def found(length: int = 64, **given: Any) -> Data:
        known = {"objective": "views", "views": "shuffle,none", "sts_dev": str(tmp_path / "sts-dev.csv")}
        settings = ContrastiveSettings.of(**(known | {"texts": str(tmp_path / "texts.txt")} | given))
        return data.read(settings, Tokenizer.load(tiny), length)

    return found


def texts(found: Data) -> list[str]:
    return [found.train.cache.text(row, 0) for row in range(len(found.train))]


def test_a_sample_is_drawn_by_the_runs_seed(read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    samples = {seed: texts(read(limit=3, seed=seed)) for seed in range(5)}
    assert all(sample == [text for text in TEXTS if text in sample] for sample in samples.values()), "in file order"
    assert {len(sample) for sample in samples.values()} == {3}
    assert len(set(map(tuple, samples.values()))) > 1
    assert texts(read(limit=3, seed=2)) == samples[2]
    assert "--limit" not in capsys.readouterr().err
    assert texts(read(limit=1000)) == TEXTS
    assert "note: --limit 1,000: there are only 6 texts\n" in capsys.readouterr().err


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
    assert texts(read()) == TEXTS
    assert texts(read(keep_duplicates=True)) == [*TEXTS, TEXTS[0]]


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


def test_test_sentences_are_said(read: Read, corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read(texts="sts", data=str(corpora))
    assert found.entry["train"]["transductive"]
    assert "note: the texts hold test sentences (transductive)" in capsys.readouterr().err


def test_sets_that_are_not_there_are_named(read: Read, corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(texts="chinese", data=str(corpora))
    assert "note: --texts chinese: without BQ train, LCQMC train, PAWS-X train, not found" in capsys.readouterr().err


def test_cut_texts_of_several_files_are_said_of_all(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.txt"
    more.write_text("the cat sat on the mat and the dog runs .\n")
    read(length=8, texts=f"{more},{tmp_path / 'texts.txt'}")
    assert "note: the training texts: 1 of 7 sentences are longer than 8 tokens" in capsys.readouterr().err
