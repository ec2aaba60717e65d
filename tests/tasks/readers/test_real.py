"""Guards: every file of $DATA_DIR is read whole, with the counts that its makers and a plain count of lines give.

DATA_DIR=... python -m pytest --import-mode=importlib tests/tasks/readers/test_real.py -m realdata
"""

import csv
import math
from pathlib import Path

import pytest

from tasks import readers
from tasks.benchmarks import sets, transfer
from tasks.readers import open_as

pytestmark = pytest.mark.realdata
# file, kind, split, number of classes, rows kept, skipped, labelled
FILES = [
    ("course/ids-sst-train.csv", "single", "train", 5, 8544, 0, 8544),
    ("course/ids-sst-dev.csv", "single", "dev", 5, 1101, 0, 1101),
    ("course/ids-sst-test-student.csv", "single", "test", 5, 2210, 0, 0),
    ("course/ids-cfimdb-dev.csv", "single", "dev", 2, 245, 0, 245),
    ("course/sts-train.csv", "pair-score", "train", None, 6040, 0, 6040),
    ("course/sts-dev.csv", "pair-score", "dev", None, 863, 0, 863),
    ("course/sts-test-student.csv", "pair-score", "test", None, 1725, 0, 0),
    ("course/quora-dev.csv", "pair-class", "dev", 2, 10107, 1, 10106),
    ("course/quora-test-student.csv", "pair-class", "test", 2, 10106, 0, 0),
    ("course/quora-train.csv", "pair-class", "train", 2, 41654, 0, 41654),
    ("nli/nli-triplets.csv", "triplet", "train", None, 10983, 0, 0),
    ("nli/nli-pairs.tsv", "nli", "train", None, 87622, 0, 87622),
    ("zh/ATEC/atec_nlp_sim_train.csv", "pair-score", "train", None, 39346, 0, 39346),
    ("zh/ATEC_CCKS/test.csv", "pair-score", "test", None, 10000, 0, 10000),
    ("zh/BQ/dev.csv", "pair-score", "dev", None, 10000, 0, 10000),
    ("zh/LCQMC/test.txt", "pair-score", "test", None, 12500, 0, 12500),
    ("zh/PAWS-X/dev_2k.tsv", "pair-score", "dev", None, 2000, 0, 2000),
    ("zh/STS-B/cnsd-sts-train.txt", "pair-score", "train", None, 5231, 0, 5231),
    ("zh/STS-B/sts-b-test.txt", "pair-score", "test", None, 1361, 0, 1361),
]


@pytest.mark.parametrize(("name", "kind", "split", "classes", "count", "skipped", "labelled"), FILES)
def test_file_is_read_whole(
    real_data: Path, name: str, kind: str, split: str, classes: int | None, count: int, skipped: int, labelled: int
) -> None:
    path = real_data / name
    if not path.exists():  # fetched under the name that SimCSE gives it
        path = real_data / "nli" / "nli_for_simcse.csv"
    data = open_as(path, kind, split, classes=classes)
    assert (len(data.rows), len(data.skipped)) == (count, skipped)
    assert sum(not math.isnan(row.label) for row in data.rows) == labelled
    assert len({row.id for row in data.rows}) == count
    assert "\ufeff" not in "".join(data.rows[0].texts)
    if name.startswith("course"):
        with path.open(encoding="utf-8", newline="") as file:
            table = {row["id"].strip().lower(): row for row in csv.DictReader(file, delimiter="\t")}
        for row in data.rows:
            cells = table[row.id]
            if kind == "single":
                assert row.texts == (readers.clean_sentence(cells["sentence"]),)
            else:
                assert row.texts == (readers.clean_pair(cells["sentence1"]), readers.clean_pair(cells["sentence2"]))


SCORED = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STS-B": 1379, "SICK": 4927}


@pytest.mark.parametrize("name", SCORED)
def test_scored_pairs_are_read_whole(real_data: Path, name: str) -> None:
    (data,) = sets.read(real_data / "senteval", [name])
    assert len(data.pairs) == SCORED[name]


# Sizes as SentEval's paper and readme give them.
SIZES = {"MR": 10662, "CR": 3775, "SUBJ": 10000, "MPQA": 10606, "SST2": 67349 + 872 + 1821, "TREC": 5952, "MRPC": 5801}


@pytest.mark.parametrize("name", SIZES)
def test_classes_are_read_whole(real_data: Path, name: str) -> None:
    data = transfer.read_set(real_data / "senteval", name)
    assert sum(map(len, data.values())) == SIZES[name]
    class_count = 6 if name == "TREC" else 2
    for rows in data.values():
        assert {row.label for row in rows} == set(range(class_count))
        for row in rows:
            assert all(row.texts)
