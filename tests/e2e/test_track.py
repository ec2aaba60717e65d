"""Guards: TensorBoard, and W&B after it, hold what metrics.jsonl holds, a resumed run goes on in the same record.

python -m pytest --import-mode=importlib tests/e2e/test_track.py
"""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minbert import UserError
from minbert.train import track

Script = Callable[..., Any]
FLAGS = ("--epochs", 2, "--batch-size", 32, "--save-every", 4, "--log-every", 3)


def test_tensorboard_has_each_number_once(script: Script) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    flags = (*FLAGS, "--track", "tensorboard")
    assert script("multitask_train.py", *flags, signal=(signal.SIGKILL, 10)).code == -signal.SIGKILL
    run = script("multitask_train.py", *flags, "--resume")
    assert run.code == 0, run.err
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    found = {(name, one.step): one.value for name in events.Tags()["scalars"] for one in events.Scalars(name)}
    assert len(found) == sum(len(events.Scalars(name)) for name in events.Tags()["scalars"]), "each step once"
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    expected = {(name, row["step"]): value for row in rows for name, value in track.scalars(row).items()}
    assert found == pytest.approx(expected, rel=1e-5)
    names = {name for name, _ in found}
    assert {"sst/loss", "quora/gradient_norm", "train/lr", "train/examples_per_second", "dev/dev_norm"} <= names
    assert '"batch_size": 32' in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()


def test_wandb_resumes_under_same_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    started: list[dict[str, Any]] = []
    stub = SimpleNamespace(login=lambda **_: False, Settings=dict, init=lambda **given: started.append(given))
    monkeypatch.setitem(sys.modules, "wandb", stub)
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    manifest = {"command": "x", "all_settings": {"lr": 0.5}, "sessions": [{"started": "now"}]}
    for folder, step in (("run", 0), ("run", 2), ("other", 0)):
        track.Tracker(tmp_path / folder, manifest, step, "wandb")
    first, resumed, other = started
    assert first == resumed and first["id"] != other["id"]
    assert (first["resume"], first["mode"], first["sync_tensorboard"]) == ("allow", "offline", True)
    assert (first["dir"], first["config"]) == (tmp_path / "run", {"lr": 0.5})


def test_missing_tracker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "tensorboard" or None)
    track.require_installed("tensorboard")
    with pytest.raises(UserError, match="--track wandb: wandb is not installed; run `pip install wandb`"):
        track.require_installed("wandb")
