"""Guards: runs with synonyms write what they train on, evaluate when asked, and go on with the same bits.

python -m pytest --import-mode=importlib tests/e2e/test_synonym_runs.py
"""

import csv
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from minbert.train import checkpoint
from tasks.augment import wordnet
from tests.e2e.conftest import SAMPLE, Script

MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"


@pytest.fixture
def small_wordnet(write_wordnet: Callable[..., Path], tmp_path: Path) -> Path:
    """An NLTK folder with a WordNet of a few adjectives of the sample."""
    groups = [("old", "aged"), ("open", "unfastened"), ("white", "snowy"), ("wooden", "timbered"), ("good", "fine")]
    return write_wordnet(tmp_path / "nltk_data", *(("a", dict.fromkeys(words, 2)) for words in groups))


# 120 triplets: 8 steps an epoch, whose ends (8 and 16) are no evaluation but the last.
SHORT = "--epochs 2 --batch-size 16 --order none --lr 1e-3 --evaluate-every 3 --save-every 4"
FLAGS = (*SHORT.split(), "--pooler", "mean", "--keep", "best")
SYNONYMS = ("--synonyms", 3, "--synonyms-p", 0.5)


def test_augmented_run_resumes_bit_equal(script: Script, small_wordnet: Path) -> None:
    texts = (SAMPLE / "nli" / "nli-triplets.csv").read_text(encoding="utf-8").splitlines()
    assert len(wordnet.tag(texts, wordnet.WordNet(small_wordnet)).spans) > 10, "else this test shows nothing"
    where = {"NLTK_DATA": str(small_wordnet)}
    whole = script(PRETRAIN, *FLAGS, *SYNONYMS, run_dir="whole", **where)
    assert whole.code == 0, whole.err
    killed = script(PRETRAIN, *FLAGS, *SYNONYMS, signal=(signal.SIGKILL, 10), **where)
    assert killed.code == -signal.SIGKILL and max(checkpoint.steps(killed.folder / "checkpoints")) == 9
    index = small_wordnet / wordnet.WORDNET / "index.adj"
    before = index.read_text()
    index.write_text("  1 Another licence.\n" + before)
    refused = script(PRETRAIN, *FLAGS, *SYNONYMS, "--resume", **where)
    assert refused.code == 2 and "data WordNet (" in refused.errors[0]
    index.write_text(before)
    resumed = script(PRETRAIN, *FLAGS, *SYNONYMS, "--resume", **where)
    assert resumed.code == 0, resumed.err
    assert resumed.rows() == whole.rows() and resumed.bits() == whole.bits()


@pytest.mark.slow
def test_fine_tuning_writes_its_synonyms(script: Script, small_wordnet: Path) -> None:
    flags = ("--tasks", "sst", "--epochs", 1, "--batch-size", 75, "--lr", 1e-3)
    plain = script(MULTITASK, *flags, "--synonyms", "none", run_dir="plain")
    run = script(MULTITASK, *flags, "--synonyms", 2, "--synonyms-p", 1, NLTK_DATA=str(small_wordnet))
    assert run.code == plain.code == 0, run.err
    assert run.rows()[0]["sst/loss"] != plain.rows()[0]["sst/loss"]
    with open(run.folder / "synonyms" / "sst.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 150 and any(row["before"] != row["after"] for row in rows)
