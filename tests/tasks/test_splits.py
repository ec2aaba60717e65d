"""Guards: which rows a run of stage two reads.

python -m pytest --import-mode=importlib tests/tasks/test_splits.py
"""

from pathlib import Path

from minbert.tokenizer import Tokenizer
from tasks import TASKS, splits
from tasks.settings import MultitaskSettings
from tests.e2e.conftest import SAMPLE


def test_runs_of_all_seeds_are_scored_alike(tiny: Path) -> None:
    """A seed draws other training rows for `--limit`, and no other dev and test rows for `--limit-eval`."""
    task = TASKS["sst"]()
    ids: dict[str, list[list[str]]] = {"train": [], "dev": [], "test": []}
    for seed in (1, 2):
        settings = MultitaskSettings.of(data=str(SAMPLE), limit=20, limit_eval=8, seed=seed, allow_unknown=True)
        files = splits.find_splits([task], settings, {})
        for split, examples in splits.read([task], files, settings, Tokenizer.load(tiny), 64).items():
            ids[split].append([row.id for row in examples["sst"].cache.rows()])
    assert ids["train"][0] != ids["train"][1]
    assert ids["dev"][0] == ids["dev"][1] and ids["test"][0] == ids["test"][1]
    assert [len(rows) for rows, _ in ids.values()] == [20, 8, 8]
