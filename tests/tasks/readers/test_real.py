"""Guards: every file of $DATA_DIR is read whole, with the counts that its makers and a plain count of lines give.

DATA_DIR=... python -m pytest --import-mode=importlib tests/tasks/readers/test_real.py -m realdata
"""

import csv
import math
from collections import Counter
from pathlib import Path

import pytest

from minbert.token_cache import Row
from tasks import readers
from tasks.readers import DataFile, open_as, senteval
from tasks.readers.kinds import NLI_CLASSES
from tests.conftest import unquoted

pytestmark = pytest.mark.realdata
COURSE = {"sst": ("single", 5), "quora": ("pair-class", 2), "sts": ("pair-score", None), "cfimdb": ("single", 2)}
REAL = [
    ("sst", "ids-sst-train.csv", "train", 8544, 0, 8544),
    ("sst", "ids-sst-dev.csv", "dev", 1101, 0, 1101),
    ("sst", "ids-sst-test-student.csv", "test", 2210, 0, 0),
    ("cfimdb", "ids-cfimdb-dev.csv", "dev", 245, 0, 245),
    ("sts", "sts-train.csv", "train", 6040, 0, 6040),
    ("sts", "sts-dev.csv", "dev", 863, 0, 863),
    ("sts", "sts-test-student.csv", "test", 1725, 0, 0),
    ("quora", "quora-dev.csv", "dev", 10107, 1, 10106),
    ("quora", "quora-test-student.csv", "test", 10106, 0, 0),
    ("quora", "quora-train.csv", "train", 41654, 0, 41654),
]


def kept(data: DataFile) -> list[Row]:
    assert len({row.id for row in data.rows}) == len(data.rows)
    return data.rows


def line_feeds(path: Path) -> int:
    """What `wc -l` says."""
    return path.read_bytes().count(b"\n")


@pytest.mark.parametrize(("kind", "name", "split", "count", "skipped", "labelled"), REAL)
def test_the_course(real_data: Path, kind: str, name: str, split: str, count: int, skipped: int, labelled: int) -> None:
    path = readers.find_file(real_data, "course", [name])
    of, classes = COURSE[kind]
    data = open_as(path, of, split, classes=classes)
    rows = kept(data)
    assert (len(rows), len(data.skipped)) == (count, skipped)
    assert sum(not math.isnan(row.label) for row in rows) == labelled
    with path.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    texts = [name for name in ("sentence", "sentence1", "sentence2") if name in table[0]]
    clean = readers.clean_sentence if texts == ["sentence"] else readers.clean_pair
    assert len(table) == len(rows) + len(data.skipped)
    expected = {row["id"].strip().lower(): tuple(clean(row[text]) for text in texts) for row in table}
    assert all(expected[row.id] == row.texts for row in rows)


def test_nli(real_data: Path) -> None:
    path = readers.find_file(real_data, "nli", ["nli_for_simcse.csv", "nli-triplets.csv"])
    with path.open(encoding="utf-8", newline="") as file:
        expected = [tuple(cell.strip() for cell in row) for row in csv.reader(file)][1:]
    assert [row.texts for row in kept(open_as(path, "triplet"))] == expected and len(expected) == 10_983
    path = real_data / "nli" / "nli-pairs.tsv"
    cells = [line.split("\t") for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")][1:]
    rows = kept(open_as(path, "nli"))
    assert [(*row.texts, NLI_CLASSES[int(row.label)]) for row in rows] == [
        (unquoted(a).strip(), unquoted(b).strip(), label) for a, b, label, _ in cells
    ]
    assert len(rows) == line_feeds(path) - 1 == 87_622


@pytest.mark.parametrize(("name", "pairs"), list(zip(senteval.STS, (3108, 1500, 3750, 3000, 1186), strict=True)))
def test_sts(real_data: Path, name: str, pairs: int) -> None:
    total = 0
    for subset, data in senteval.scored(real_data / "senteval", name).items():
        gold = real_data / f"senteval/downstream/{senteval.STS[name][0]}/STS.gs.{subset}.txt"
        scores = gold.read_text().removesuffix("\n").split("\n")
        assert len(data.rows) + len(data.skipped) == len(scores)
        assert [row.label for row in kept(data)] == [float(score) for score in scores if score.strip()]
        total += len(data.rows)
    assert total == pairs


@pytest.mark.parametrize(("name", "counts"), [("STS-B", (5749, 1500, 1379)), ("SICK", (4500, 500, 4927))])
def test_scored_pairs_with_splits(real_data: Path, name: str, counts: tuple[int, ...]) -> None:
    for split, count in zip(("train", "dev", "test"), counts, strict=True):
        (data,) = senteval.scored(real_data / "senteval" / "downstream", name, split).values()
        assert len(kept(data)) == count


# Sizes as SentEval's paper and readme give them.
SIZES = {
    "MR": 10662,
    "CR": 3775,
    "SUBJ": 10000,
    "MPQA": 10606,
    "SST2": 67349 + 872 + 1821,
    "TREC": 5952,
    "MRPC": 5801,
    "SICK-E": 9927,
}


@pytest.mark.parametrize("name", SIZES)
def test_classification(real_data: Path, name: str) -> None:
    (_, splits), total, pairs = senteval.CLASSIFICATION[name], 0, name in ("MRPC", "SICK-E")
    for split, data in senteval.classification(real_data / "senteval", name).items():
        rows = kept(data)
        files = [real_data / "senteval" / "downstream" / name_of_file for name_of_file in splits[split]]
        assert len(rows) == sum(map(line_feeds, files)) - pairs  # the files of pairs have a header
        assert {row.label for row in rows} == set(range({"TREC": 6, "SICK-E": 3}.get(name, 2)))
        assert all(len(row.texts) == 1 + pairs and all(row.texts) for row in rows)
        total += len(rows)
    assert total == SIZES[name]


CHINESE = {
    "ATEC/atec_nlp_sim_train.csv": (39346, 0),
    "ATEC_CCKS/dev.csv": (10000, 1),
    "ATEC_CCKS/test.csv": (10000, 1),
    "BQ/dev.csv": (10000, 1),
    "BQ/test.csv": (10000, 1),
    "LCQMC/dev.txt": (8802, 0),
    "LCQMC/test.txt": (12500, 0),
    "PAWS-X/dev_2k.tsv": (2000, 1),
    "PAWS-X/test_2k.tsv": (2000, 1),
    "STS-B/cnsd-sts-train.txt": (5231, 0),
    "STS-B/cnsd-sts-dev.txt": (1458, 0),
    "STS-B/cnsd-sts-test.txt": (1361, 0),
    "STS-B/sts-b-train.txt": (5231, 0),
    "STS-B/sts-b-dev.txt": (1458, 0),
    "STS-B/sts-b-test.txt": (1361, 0),
}


@pytest.mark.parametrize("name", CHINESE)
def test_chinese(real_data: Path, name: str) -> None:
    count, header = CHINESE[name]
    path = real_data / "zh" / name
    rows = kept(open_as(path, "pair-score"))
    assert len(rows) == count == line_feeds(path) - header
    last = [
        line.rstrip("\r").rsplit(",\t"["," not in line.split("\t")[0] or "\t" in line], 1)[-1].rsplit("|", 1)[-1]
        for line in path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    ][header:]
    assert Counter(row.label for row in rows) == Counter(float(label) for label in last)
    assert not any("\ufeff" in text for text in rows[0].texts)
