"""Guards: fine-tuning from Python on data frames gives the run that the command gives.

python -m pytest --import-mode=importlib tests/tasks/test_api.py
"""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import minbert
import tasks
from minbert.modules import Normalize
from minbert.train import cli
from tasks import evaluate
from tests.e2e.conftest import ROOT

SMALL = {"epochs": 1, "max_steps": 3, "max_length": 24, "batch_size": 8, "precision": "fp32"}


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "run_module", lambda *_: None)


def test_readme_trains_and_predicts(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "tasks.train" in block]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sample").symlink_to(ROOT / "data" / "sample")
    monkeypatch.chdir(tmp_path)
    small = ", ".join(f"{name}={value!r}" for name, value in SMALL.items() if name != "epochs")
    names: dict[str, Any] = {}
    exec(code.replace('encoder="minilm"', f"encoder={str(tiny)!r}, {small}"), names)
    run = names["run"]
    assert 0 <= run.scores["reviews"]["score"] <= 1
    table = run.predict("reviews", ["What a lovely shop.", "Never again."])
    assert list(table) == ["prediction", "p(angry)", "p(happy)", "p(neutral)"]
    assert set(table["prediction"]) <= {"angry", "happy", "neutral"}
    assert table.filter(like="p(").sum(axis=1).tolist() == pytest.approx([1, 1])
    again = tasks.load(run.folder)
    pd.testing.assert_frame_equal(again.predict("reviews", ["What a lovely shop.", "Never again."]), table)


def test_encoder_keeps_length_and_normalisation(tiny: Path, tmp_path: Path) -> None:
    encoder = minbert.Encoder.load(tiny, max_length=20)
    encoder.pipeline.layers.append(Normalize())
    file = ROOT / "data" / "sample" / "own" / "questions.csv"
    task = {"kind": "similarity", "label": "score", "scale": [0, 1], "train": file}
    data = ROOT / "data" / "sample"
    run = tasks.train({"questions": task, "sst": None}, encoder, run_dir=tmp_path / "run", data=data, **SMALL)
    assert set(run.scores) == {"questions", "sst"}
    saved = minbert.Encoder.load(run.folder)
    assert saved.pipeline.normalizes and saved.max_length == 20
    assert run.predict("questions", []).empty
    pairs = pd.Series([("a cat", "the cat"), ("who", "a dog")], index=[7, 3])
    assert run.predict("questions", pairs).index.tolist() == [7, 3]


def test_frames_equal_files(tiny: Path, tmp_path: Path) -> None:
    file = ROOT / "data" / "sample" / "own" / "questions.csv"
    keys = {"kind": "similarity", "label": "score", "scale": [0, 1]}
    runs = []
    for train, encoder in ((file, tiny), (pd.read_csv(file), minbert.Encoder.load(tiny, pooler="pooler"))):
        folder = tmp_path / str(len(runs))
        run = tasks.train({"questions": {**keys, "train": train}}, encoder, run_dir=folder, **SMALL)
        runs.append(run.predict("questions", [("a cat", "the cat"), ("who", "a dog")]))
    pd.testing.assert_frame_equal(*runs)
    # a run that goes on without an update
    more = {**SMALL, "max_steps": 1, "lr": 0, "from_run": folder, "encoder_dropout": None}
    run = tasks.train({"questions": {**keys, "train": file}}, run_dir=tmp_path / "more", **more)
    pd.testing.assert_frame_equal(run.predict("questions", [("a cat", "the cat"), ("who", "a dog")]), runs[1])
    with pytest.raises(minbert.UserError, match="weights: an encoder is given as `encoder`"):
        tasks.train("sst", weights="minilm")
    with pytest.raises(minbert.UserError, match=r"labels: .* is not a list of two or more"):
        classes = {"kind": "pair-classification", "label": "score", "labels": {"0", "1"}}
        tasks.train({"questions": {**classes, "train": file}}, tiny, run_dir=tmp_path / "new", **SMALL)


def test_edited_file_gets_no_predictions(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction file repeats the data file: predictions would be on the wrong rows."""
    file = tmp_path / "questions.csv"
    file.write_text((ROOT / "data" / "sample" / "own" / "questions.csv").read_text())
    predict = evaluate.predict

    def edit_and_predict(*arguments: Any) -> Any:
        file.write_text(file.read_text() + "\n")
        return predict(*arguments)

    monkeypatch.setattr(evaluate, "predict", edit_and_predict)
    task = {"kind": "similarity", "label": "score", "scale": [0, 1], "train": file}
    with pytest.raises(minbert.UserError, match=r"questions\.csv: missing, or not the file that .* was made with"):
        tasks.train({"questions": task}, tiny, run_dir=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run" / "predictions").exists()
