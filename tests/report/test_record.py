"""Guards: dev rows survive writing and reading, and carry the head's probabilities.

python -m pytest --import-mode=importlib tests/report/test_record.py
"""

from pathlib import Path

import numpy as np
import torch

from minbert.tokenizer import Tokenizer
from tasks import record
from tasks.registry import TASKS


def test_rows_of_a_task_hold_its_texts_labels_and_probabilities(tmp_path: Path) -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "cat", "dog", "bird", "tree"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    source = tmp_path / "quora-dev.csv"
    lines = ["\tid\tsentence1\tsentence2\tis_duplicate", "0\tA1\tthe cat\ta dog\t1.0", "1\tB2\tthe bird\tthe tree\t"]
    source.write_text("\n".join(lines) + "\n")
    task = TASKS["quora"]("cross")
    examples = task.open(source, "dev", Tokenizer.load(tmp_path), 32)
    logits = np.array([-1.5, 2.0], dtype=np.float32)
    record.write_rows(tmp_path, "quora", record.task_rows(task, examples, logits))
    rows = record.read_rows(tmp_path / "dev" / "quora.jsonl")
    assert rows.ids == ["a1", "b2"]
    assert rows.texts == [("the cat", "a dog"), ("the bird", "the tree")]
    np.testing.assert_array_equal(rows.gold, [1.0, np.nan])
    np.testing.assert_array_equal(rows.predicted, [0.0, 1.0])
    assert rows.probabilities is not None
    np.testing.assert_allclose(rows.probabilities[:, 1], torch.sigmoid(torch.tensor(logits)).numpy(), atol=1e-6)
    assert rows.labelled().ids == ["a1"]


def test_probabilities_are_torchs_softmax_and_none_for_a_regression() -> None:
    logits = torch.randn(7, 5) * 4
    found = TASKS["sst"]().probabilities(logits.numpy())
    np.testing.assert_allclose(found, torch.softmax(logits.double(), 1).numpy(), rtol=1e-12)
    two = TASKS["quora"]().probabilities(np.array([800.0, -800.0, 0.0], dtype=np.float32))
    np.testing.assert_array_equal(two, [[0, 1], [1, 0], [0.5, 0.5]])
    assert TASKS["sts"]().probabilities(np.zeros(3)) is None
