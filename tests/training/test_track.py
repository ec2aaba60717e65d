"""Guards: TensorBoard, and W&B after it, hold what metrics.jsonl holds, a resumed run goes on in the same record.

python -m pytest --import-mode=importlib tests/training/test_track.py
"""

import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minbert.training import track

Script = Callable[..., Any]
FLAGS = ("--epochs", 2, "--batch-size", 32, "--save-every", 4, "--log-every", 3)


def test_tensorboard_has_every_number_once_after_a_kill(script: Script) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    flags = (*FLAGS, "--track", "tensorboard")
    assert script("multitask_train.py", *flags, signal=(signal.SIGKILL, "step", 10)).code == -signal.SIGKILL
    run = script("multitask_train.py", *flags, "--resume")
    assert run.code == 0, run.err
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    found = {(name, one.step): one.value for name in events.Tags()["scalars"] for one in events.Scalars(name)}
    assert len(found) == sum(len(events.Scalars(name)) for name in events.Tags()["scalars"]), "each step once"
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    expected = {(name, row["step"]): value for row in rows for name, value in track.numbers(row).items()}
    assert found == pytest.approx(expected, rel=1e-5)
    names = {name for name, _ in found}
    assert {"sst/loss", "quora/gradient_norm", "train/lr", "train/examples_per_second", "dev/dev_norm"} <= names
    assert events.Tags()["images"] == ["confusion/sst", "confusion/quora"]
    assert '"batch_size": 32' in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()


def records(folder: Path) -> list[Any]:
    """The records of W&B's offline files, oldest file first: a header, then records in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        content, place, whole = path.read_bytes(), 7, b""
        while place + 7 <= len(content):
            length, kind = struct.unpack_from("<xxxxHB", content, place)
            whole += content[place + 7 : place + 7 + length]
            place += 7 + length
            if kind in (1, 4):  # a whole record, or the last part of one
                found.append(Record.FromString(whole))
                whole = b""
            if 32768 - place % 32768 < 7:
                place += 32768 - place % 32768
    return found


def test_wandb_offline_goes_on_under_the_same_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("NETRC", str(tmp_path / "nobody"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    manifest = {"command": "x", "all_settings": {"lr": 0.5}, "parts": [{"started": "now"}]}
    (tmp_path / "run").mkdir()
    for first, last in ((1, 2), (2, 3)):  # killed after the row of step 2, of which there is no checkpoint
        tracker = track.Tracker(tmp_path / "run", manifest, first - 1, track.parse_trackers("wandb"))
        for step in range(first, last + 1):
            tracker.log({"kind": "train", "step": step, "lr": 0.5, "sst/loss": 1.5})
        tracker.log({"step": last, "kind": "evaluation", "score": 0.25, "best": True, "sts": None})
        wandb.finish()
    wandb.teardown()  # its service has then written everything
    found = records(tmp_path / "run")
    assert len({one.run.run_id for one in found if one.HasField("run")}) == 1
    assert all('"lr"' in str(one.run.config) for one in found if one.HasField("run"))
    logged = [
        {item.key or item.nested_key[0]: item.value_json for item in one.history.item}
        for one in found
        if one.HasField("history")
    ]
    print(logged)
    assert {row["global_step"] for row in logged if "sst/loss" in row} == {"1", "2", "3"}
    assert {row["sst/loss"] for row in logged if "sst/loss" in row} == {"1.5"}
    assert {row["global_step"] for row in logged if "dev/score" in row} == {"2", "3"}


def test_nothing_is_imported_unless_asked_for_and_what_is_missing_is_named(script: Script) -> None:
    for names, words in (("tensorbord", "did you mean 'tensorboard'?"), ("wandb,x", "--track: 'x' is not one of")):
        refused = script("pretrain_cbcl.py", "--track", names)
        assert refused.code == 2 and len(refused.errors) == 1 and words in refused.errors[0]
    code = (
        "import sys; from minbert.training import track; sys.modules['wandb'] = None\n"
        "assert track.parse_trackers('none') == [] and track.parse_trackers('tensorboard, none') == ['tensorboard']\n"
        "assert not {'tensorboard', 'torch.utils.tensorboard', 'matplotlib'} & sys.modules.keys()\n"
        "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]\n"
        "try: track.parse_trackers('tensorboard')\nexcept ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "--track tensorboard: tensorboard is not installed; run `pip install tensorboard`\n"
