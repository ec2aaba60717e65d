"""Guards: the leaderboard's files byte for byte, for every task and whatever the model says.

python -m pytest --import-mode=importlib tests/tasks/test_predictions.py
"""

from pathlib import Path

import numpy as np
import pytest

from minbert.tokenizer import Tokenizer
from tasks import TASKS, predictions

FILES = {
    "sst": "\tid\tsentence\tsentiment\n0\tB2\t x\t3\n1\ta1\t y\t0\n5\tc3 \t z\t1\n",
    "quora": "\tid\tsentence1\tsentence2\tis_duplicate\n0\tB2\tx\ty\t1.0\n1\ta1\tx\tz\t\n5\tc3\tx\tw\t0.0\n",
    "sts": "\tid\tsentence1\tsentence2\tsimilarity\n0\tB2\tx\ty\t1.0\n1\ta1\tx\tz\t5\n5\tc3\tx\tw\t0.2\n",
}
LOGITS = np.array([[0.1, 0.2, 0.3, 0.4, 9], [1, 0, 0, 0, 0], [0, 0, 5, 5, 0]], dtype=np.float32)
NUMBERS = np.array([3.2, -0.1, 1e-12], dtype=np.float32)
EXPECTED = {
    "sst": b"id \t Predicted_Sentiment \nb2 , 4 \na1 , 0 \nc3 , 2 \n",
    "quora": b"id \t Predicted_Is_Paraphrase \nb2 , 1.0 \na1 , 0.0 \nc3 , 1.0 \n",
    "sts": b"id \t Predicted_Similiary \n"
    b"b2 , 3.200000047683716 \na1 , -0.10000000149011612 \nc3 , 9.999999960041972e-13 \n",
}


@pytest.mark.parametrize("name", TASKS)
def test_prediction_files_are_byte_exact(name: str, tiny: Path, tmp_path: Path) -> None:
    task = TASKS[name]("cross")
    source = tmp_path / "source.csv"
    source.write_text(FILES[name])
    examples = task.open(source, "dev", Tokenizer.load(tiny), 32)
    predicted = task.predict(LOGITS if name == "sst" else NUMBERS)
    assert predicted.dtype == np.float64
    path = tmp_path / "new" / predictions.file_name(task, "dev")
    predictions.write(path, task, examples, predicted)
    assert path.read_bytes() == EXPECTED[name]
    assert path.name == {"sst": "sst", "quora": "para", "sts": "sts"}[name] + "-dev-output.csv"


@pytest.mark.parametrize("name", TASKS)
def test_no_numpy_representation_leaks(name: str) -> None:
    task = TASKS[name]("cross")
    for kind in (np.float32, np.float64, np.float16, np.int64, int):
        text = task.written(kind(1))
        assert "np." not in text and "(" not in text
        assert float(text) == 1


def test_a_similarity_is_written_without_loss() -> None:
    value = float(np.float32(3.1415927))
    assert float(TASKS["sts"]("cross").written(value)) == value
