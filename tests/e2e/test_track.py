"""Guards: TensorBoard, and W&B after it, hold what metrics.jsonl holds, a resumed run goes on in the same record.

python -m pytest --import-mode=importlib tests/e2e/test_track.py
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minbert import UserError
from minbert.train import track
from minbert.train.run import RunFolder
from tests.e2e.conftest import Script
from tests.toy import die

MANIFEST = {"command": "x", "all_settings": {"lr": 0.5}, "sessions": [{"started": "now"}]}


def scalars(run: Path) -> dict[tuple[str, int], float]:
    """The numbers of TensorBoard's records, each of which must occur once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    values = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            assert (name, event.step) not in values
            values[name, event.step] = event.value
    return values


def test_resumed_run_is_recorded_once(toy: Any, tmp_path: Path) -> None:
    """All rows of `metrics.jsonl`, although the run was killed after some that it logs again."""
    pytest.importorskip("tensorboard")
    manifest = {"settings": {}, "command": "toy", "all_settings": {}, "environment": {"started": "now"}}
    run = RunFolder(tmp_path, tracked="tensorboard")
    run.start_session(manifest)
    usual = {"log_every": 1, "evaluate_every": 4}
    with pytest.raises(KeyboardInterrupt):
        toy.fit(run, objective=toy.Objective(after={9: die}), **usual)
    toy.fit(run, resume=True, **usual)
    expected = {}
    for row in run.metrics():
        for name, value in track.scalars(row).items():
            expected[name, row["step"]] = pytest.approx(value)
    assert scalars(tmp_path) == expected
    assert {name for name, _ in expected} >= {"toy/loss", "train/lr", "dev/score"}


def test_flag_records_the_run(script: Script) -> None:
    pytest.importorskip("tensorboard")
    flags = ("--tasks", "sst", "--limit", 16, "--limit-eval", 8, "--max-steps", 1, "--track", "tensorboard")
    run = script("multitask_train.py", *flags)
    assert run.code == 0, run.err
    assert ("sst/loss", 1) in scalars(run.folder)


def test_wandb_resumes_under_same_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    starts: list[dict[str, Any]] = []
    ends: list[int] = []
    stub = SimpleNamespace(login=lambda **_: False, Settings=dict, init=lambda **options: starts.append(options))
    stub.finish = lambda: ends.append(len(starts))
    monkeypatch.setitem(sys.modules, "wandb", stub)
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for folder, step in (("run", 0), ("run", 2), ("other", 0)):
        track.Tracker(tmp_path / folder, MANIFEST, step, "wandb").close()
    assert ends == [1, 2, 3], "each ends before the next one starts"
    first, resumed, other = starts
    assert first == resumed and first["id"] != other["id"]
    assert (first["resume"], first["mode"], first["sync_tensorboard"]) == ("allow", "offline", True)


def test_missing_tracker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "tensorboard" or None)
    track.require_installed("tensorboard")
    with pytest.raises(UserError, match="--track wandb: wandb is not installed"):
        track.require_installed("wandb")
