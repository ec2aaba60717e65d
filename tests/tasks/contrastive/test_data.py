"""Guards: every form of NLI data gives the right triplets or pairs and an account of each row; mixtures are refused.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_data.py
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tasks.contrastive.data import Data

from minbert import UserError
from minbert.tokenizer import Tokenizer
from tasks.contrastive import data
from tasks.contrastive.settings import ContrastiveSettings
from tests.tasks.contrastive.conftest import texts_of, write
from tests.tasks.contrastive.test_triplets import by_loop

SAMPLE = Path(__file__).parents[3] / "data" / "sample"
E, N, C = "entailment", "neutral", "contradiction"
PAIRS = [
    ("The cat sleeps on the mat.", "A cat sleeps.", E),
    ("The cat sleeps on the mat.", "The cat is happy.", N),
    ("The cat sleeps on the mat.", "The cat runs.", C),
    ('A dog runs, "fast".', "The dog is not asleep.", E),
    ("The cat sleeps on the mat.", "A cat is on a mat.", E),
    ('A dog runs, "fast".', "The dog sat.", C),
    ("The cat sleeps on the mat.", "The mat is under a dog.", C),
    ("The bird is sad.", "A bird is not happy.", E),
    ("The cat sleeps on the mat.", "A cat is not awake.", E),
    ('A dog runs, "fast".', "A dog.", "-"),
]
TRIPLETS = [
    ("The cat, who sat.", "A cat sat.", "A cat runs."),
    ("A tree.", "The tree.", 'A "bird".'),
    ("Who is happy?", "Who is not sad?", "Who is sad?"),
]
Read = Callable[..., Data]


@pytest.fixture
def read(tiny: Path) -> Read:
    """A function that reads stage one's data under some settings, evaluation pairs from the sample."""

    def found(length: int = 64, **given: Any) -> Data:
        usual = {"data": str(SAMPLE), "sts_dev": str(SAMPLE / "course" / "sts-dev.csv")}
        usual |= {"order": "none"} if given.get("objective", "nt-xent") in ("nt-xent", "triplet", "margin") else {}
        settings = ContrastiveSettings.of(**(usual | given))
        return data.read(settings, Tokenizer.load(tiny), length)

    return found


def nli_pairs(path: Path, pairs: list[tuple[str, str, str]] = PAIRS) -> Path:
    lines = ["premise\thypothesis\tlabel\tsource"] + [f"{one}\t{two}\t{label}\tmnli" for one, two, label in pairs]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def table(path: Path, header: list[str], rows: Any) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return path


LABELLED = [(one, two, [E, N, C].index(label)) for one, two, label in PAIRS[:-1]]


@pytest.mark.parametrize("cut", [0, 4])
@pytest.mark.parametrize("rule", ["first", "zip", "cross"])
def test_labelled_pairs_become_the_triplets_of_their_premises(read: Read, tmp_path: Path, rule: str, cut: int) -> None:
    """Of two files too: an entailment in one and a contradiction in the other make a triplet."""
    parts = [part for part in (PAIRS[:cut], PAIRS[cut:]) if part]
    paths = [str(nli_pairs(tmp_path / f"{number}.tsv", part)) for number, part in enumerate(parts)]
    found = read(triplets=", ".join(paths), per_premise=rule)
    assert texts_of(found.train) == by_loop(LABELLED, rule)[0]
    account = found.entry["train"]
    counts = account["counts"]
    assert account["per_premise"] == rule and [one["file"] for one in account["files"]] == paths
    assert found.inputs["train"][0] == " or ".join(paths), "one of them has changed if the hash has"
    assert counts["read"] == len(PAIRS) == counts["skipped"] + counts["neutral"] + counts["usable"]
    assert (counts["skipped"], counts["neutral"], counts["triplets"]) == (1, 1, len(found.train))
    why = "1.tsv: no gold label" if cut else "no gold label"
    assert account["skipped"] == [{"line": len(parts[-1]) + 1, "why": why}]


@pytest.mark.parametrize("header", [["sent0", "sent1", "hard_neg"], ["anchor", "positive"]])
def test_rows_that_are_triplets_are_kept_one_to_one(read: Read, tmp_path: Path, header: list[str]) -> None:
    width = len(header)
    good = [row[:width] for row in TRIPLETS]
    same, empty = ("A tree.", " a  TREE.", "A mat.")[:width], ("", "A cat.", "A dog.")[:width]
    rows = [*good[:2], good[0], same, empty, good[2]]
    found = read(triplets=str(table(tmp_path / "own.csv", header, rows)))
    assert texts_of(found.train) == good
    account = found.entry["train"]
    assert account["counts"]["read"] == len(rows) == len(found.train) + len(account["skipped"])
    assert sorted(row["line"] for row in account["skipped"]) == [4, 5, 6]


def test_phrases_follow_the_pairs_as_two_further_classes(read: Read, tmp_path: Path) -> None:
    pairs = str(table(tmp_path / "pairs.csv", ["premise", "hypothesis", "label"], PAIRS))
    phrases = tmp_path / "SST" / "binary" / "sentiment-train"
    write(phrases, "a fine film \t1\n \t0\ndull\t0\n")
    how = {"objective": "cross", "keep": "last", "nli_pairs": pairs}
    alone = read(**how)
    for name in (str(phrases), "sst"):
        found = read(**how, phrases=name, data=str(tmp_path))
        assert texts_of(found.train) == [*texts_of(alone.train), ("a fine film", ""), ("dull", "")]
        assert found.train.labels.tolist() == [*alone.train.labels.tolist(), 4.0, 3.0]
        assert [one["file"] for one in found.entry["train"]["files"]] == [pairs, str(phrases)]
        assert found.entry["train"]["skipped"][-1] == {"line": 2, "why": "sentiment-train: sentence: empty"}
        assert found.inputs["train"] != alone.inputs["train"]
    write(phrases, "a fine film\t2\n")
    missing = ContrastiveSettings.of(**how, phrases=str(phrases) + "s", data=str(SAMPLE))
    with pytest.raises(UserError, match="sentiment-trains: no such file"):
        data.check_files(missing)
    with pytest.raises(UserError, match="sentiment-train:1: label: '2'"):
        read(**how, phrases=str(phrases))


def test_phrases_that_equal_a_dev_or_test_sentence_are_skipped(
    read: Read, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Letters and digits alone decide: the course's files are spaced and cased differently from SentEval's."""
    pairs = str(table(tmp_path / "pairs.csv", ["premise", "hypothesis", "label"], PAIRS))
    phrases = tmp_path / "SST" / "binary" / "sentiment-train"
    write(phrases, "a fine film \t1\nDull , and long .\t0\nthe end\t0\n")
    write(tmp_path / "course" / "ids-sst-dev.csv", "\tid\tsentence\tsentiment\n0\ta\t Dull and long\t1\n")
    write(tmp_path / "ids-sst-test-student.csv", "0\t\tid\tsentence\n1\t0\tb\t The end .\n")
    how = {"objective": "cross", "keep": "last", "nli_pairs": pairs, "data": str(tmp_path)}
    found = read(**how, phrases="sst")
    assert texts_of(found.train)[-1] == ("a fine film", "")
    assert found.entry["train"]["skipped"][-2:] == [
        {"line": 2, "why": "sentiment-train: equals a sentence of ids-sst-dev.csv"},
        {"line": 3, "why": "sentiment-train: equals a sentence of ids-sst-test-student.csv"},
    ]
    (tmp_path / "ids-sst-test-student.csv").unlink()
    assert texts_of(read(**how, phrases=str(phrases)).train)[-1] == ("the end", ""), "read anew"
    assert "has no ids-sst-test-student.csv" in capfd.readouterr().err


def test_files_of_different_kinds_are_refused_by_name(read: Read, tmp_path: Path) -> None:
    with_hard = table(tmp_path / "hard.csv", ["sent0", "sent1", "hard_neg"], TRIPLETS)
    without = table(tmp_path / "two.csv", ["anchor", "positive"], [row[:2] for row in TRIPLETS])
    pairs = nli_pairs(tmp_path / "pairs.tsv")
    for others in ((pairs, with_hard), (with_hard, pairs), (with_hard, without)):
        with pytest.raises(UserError, match="--triplets") as caught:
            read(triplets=",".join(map(str, others)))
        assert all(str(path) in str(caught.value) for path in others)


@pytest.mark.parametrize("there", [("snli_1.0",), ("multinli_1.0",), ("snli_1.0", "multinli_1.0")])
def test_without_our_own_file_the_originals_are_read(read: Read, tmp_path: Path, there: tuple[str, ...]) -> None:
    for number, name in enumerate(there):
        (tmp_path / "nli" / name).mkdir(parents=True)
        nli_pairs(tmp_path / "nli" / name / f"{name}_train.jsonl", PAIRS[4 * number : 4 * number + 4])
    found = read(objective="softmax", data=str(tmp_path))
    assert texts_of(found.train) == [row[:2] for row in PAIRS[: 4 * len(there)]]
    nli_pairs(tmp_path / "nli" / "nli-pairs.tsv")
    assert len(read(objective="softmax", data=str(tmp_path)).train) == len(PAIRS) - 1, "the joined file comes first"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"objective": "triplet", "order": "none"}, "--objective triplet needs hard negatives"),
        ({"order": "curriculum"}, "--order curriculum needs hard negatives.*; choose --order none or random"),
    ],
)
def test_rows_without_hard_negatives_train_what_needs_none(
    read: Read, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    path = table(tmp_path / "two.csv", ["anchor", "positive"], [row[:2] for row in TRIPLETS])
    with pytest.raises(UserError, match=said) as caught:
        read(triplets=str(path), **given)
    assert str(path) in str(caught.value)
    for order in ("none", "random"):
        assert read(triplets=str(path), order=order).train.cache.columns == 2


def test_hashes_follow_what_is_trained_on(read: Read, tmp_path: Path) -> None:
    """They decide whether a run may be resumed."""
    path = nli_pairs(tmp_path / "pairs.tsv")
    one, other = (read(triplets=str(path), per_premise=rule).inputs for rule in ("first", "cross"))
    assert one["sts_dev"] == other["sts_dev"] and one["train"] != other["train"]
    assert read(triplets=str(path), per_premise="first").inputs == one
    nli_pairs(path, [*PAIRS[:-1], ("A tree.", "Trees.", E), ("A tree.", "A dog.", C)])
    assert read(triplets=str(path), per_premise="first").inputs["train"] != one["train"]


def test_overlaps_of_dev_pairs_with_scored_sets_are_counted_where_the_pairs_choose(
    read: Read, corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "own.csv", ["sent0", "sent1", "hard_neg"], TRIPLETS)
    dev = corpora / "downstream/STS/STSBenchmark/sts-test.csv"
    for keep, counted in (("best", True), ("last", False)):
        how = {"keep": keep, "sts_dev": str(dev), "data": str(corpora)}
        found = read(triplets=str(path), **how).entry["sts_dev"]["also_in"]
        assert bool(found) == counted and found.get("STS-B", 2) == 2
        said = (
            "of the 2 pairs that choose the encoder some are also in scored sets: 2 in STS-B" in capsys.readouterr().err
        )
        assert said == counted


def test_what_is_cut_and_what_is_skipped_is_said(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ("the cat " * 30, "the dog", "the bird")
    path = table(tmp_path / "own.csv", ["sent0", "sent1", "hard_neg"], [*TRIPLETS, long, ("A cat.", "", "A dog.")])
    read(length=32, triplets=str(path))
    said = capsys.readouterr().err.splitlines()
    assert f"note: {path}: 1 of 12 sentences are longer than 32 tokens and are truncated" in said
    assert any("skipped" in line and "line 6" in line and "sent1: empty" in line for line in said)
