"""Guards: nothing is lost or mixed: locks, signals, damaged files, strays.

python -m pytest --import-mode=importlib tests/e2e/test_reliability.py
"""

import errno
import json
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
import torch

from minbert import UserError
from minbert.train import checkpoint, cli, loop
from minbert.train.run import RunFolder, environment

BROKEN = [b"", b"{", b"[]", b"{}", b'{"settings": {}, "parts": "x"}', b'{"settings": {}, "parts": [1]}']


@pytest.mark.parametrize("content", BROKEN)
def test_a_damaged_manifest_is_one_sentence(saved: Callable[[], RunFolder], content: bytes) -> None:
    manifest = saved().path / "manifest.json"
    manifest.write_bytes(content)
    with (
        pytest.raises(UserError, match=re.escape(str(manifest))),
        RunFolder.open(manifest.parent, resume=True, identity={}),
    ):
        pass


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_run_after_its_step_with_a_checkpoint(toy: Any, run: RunFolder, number: int) -> None:
    def kill(*_: Any) -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # clusters send it twice

    whole, *_ = toy.fit(toy.begin(run.path.parent / "whole"))
    with pytest.raises(SystemExit) as stop:
        cli.run(lambda: toy.fit(run, objective=toy.Objective(after={5: kill})))
    assert stop.value.code == 128 + number
    assert checkpoint.steps(run.checkpoints) == [4, 6]
    resumed, *_ = toy.fit(run, resume=True)
    assert torch.equal(resumed.weight, whole.weight)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_an_evaluation_stops_it_and_the_run_later_begins_with_it(
    toy: Any, run: RunFolder, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def signalled() -> float:
        os.kill(os.getpid(), number)
        pytest.fail("the evaluation goes on")

    whole, state, _ = toy.fit(toy.begin(run.path.parent / "whole"), scores=[0.1, 0.3, 0.2])
    with pytest.raises(SystemExit) as stop:
        cli.run(lambda: toy.fit(run, scores=[0.1, signalled]))
    assert stop.value.code == 128 + number
    assert "stopped after step 8 of 12, before its evaluation" in capsys.readouterr().err
    assert checkpoint.steps(run.checkpoints) == [4, 8]
    resumed, later, _ = toy.fit(run, resume=True, scores=[0.3, 0.2])
    assert torch.equal(resumed.weight, whole.weight) and later == state
    assert [row["step"] for row in run.metrics() if row["kind"] == "evaluation"] == [4, 8, 12]


def test_a_signal_just_after_an_evaluation_loses_nothing_of_it(
    toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, state, _ = toy.fit(toy.begin(run.path.parent / "whole"), scores=[0.1, 0.3, 0.2])
    update = loop._update

    def signalled(state: loop.LoopState, *rest: Any) -> dict[str, Any]:
        if state.step == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(state, *rest)

    monkeypatch.setattr(loop, "_update", signalled)
    toy.fit(run, scores=[0.1, 0.3, 0.2])
    resumed, later, seen = toy.fit(run, resume=True)
    assert torch.equal(resumed.weight, whole.weight) and later == state and not seen


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_outside_the_loop_ends_the_command_with_the_one_that_goes_on(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def main() -> None:
        with RunFolder.open(tmp_path / "run", resume=False, identity={}):
            os.kill(os.getpid(), number)
            pytest.fail("the command goes on")

    monkeypatch.setattr(sys, "argv", ["multitask_train.py", "--preset", "best"])
    with pytest.raises(SystemExit) as stop:
        cli.run(main)
    shown = capsys.readouterr().err
    assert stop.value.code == 128 + number
    assert shown.startswith("stopped; resume with: ") and shown.endswith("multitask_train.py --preset best --resume\n")


def test_a_second_signal_ends_at_once_and_an_ignored_one_is_ignored(
    toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _, state, _ = toy.fit(run, objective=toy.Objective(after={5: lambda *_: os.kill(os.getpid(), signal.SIGHUP)}))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert state.finished
    monkeypatch.setattr(cli, "_ONE_NOTICE", -1.0)
    other, objective = toy.begin(run.path.parent / "other"), toy.Objective(after={5: again})
    with pytest.raises(SystemExit) as stop:
        toy.fit(other, objective=objective)
    assert stop.value.code == 128 + signal.SIGUSR1 and len(objective.asked) == 6
    assert checkpoint.steps(other.checkpoints) == [4]


def flipped(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


MUTATIONS: list[Callable[[bytes, random.Random], bytes | None]] = [
    flipped,
    lambda content, draw: content[: draw.randrange(len(content))],
    lambda content, draw: content + draw.randbytes(3),
    lambda content, draw: b"",
    lambda content, draw: b"[" * 100_000,
    lambda content, draw: None,
]


def parsed(record: bytes, *files: str) -> Any:
    """What the record of a checkpoint says, with the hashes of some files only; None where it cannot be read."""
    try:
        content = json.loads(record)
        return {**content, "sha256": [content["sha256"][name] for name in files]}
    except (ValueError, RecursionError, LookupError):
        return None


@pytest.fixture
def saved(toy: Any, tmp_path: Path) -> Callable[[], RunFolder]:
    """A function that gives a copy of a run that was killed in its step 10: 4 is its best checkpoint, 9 its newest."""
    origin = toy.begin(tmp_path / "origin")
    with pytest.raises(UserError, match="step 10"):
        toy.fit(origin, scores=[0.9, 0.1], save_every=9, objective=toy.Objective(scalars={9: {"loss": float("nan")}}))
    assert checkpoint.steps(origin.checkpoints) == [4, 9]

    def copied() -> RunFolder:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(origin.path, tmp_path / "run")
        return RunFolder(tmp_path / "run", resume=True)

    return copied


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_is_set_aside_and_the_last_good_one_taken(
    toy: Any, saved: Callable[[], RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """Whatever is damaged, training ends with the bits of a run that nothing disturbed."""
    draw = random.Random(count)
    *_, whole = toy.fit(toy.begin(tmp_path / "whole"), scores=[0.9, 0.1, 0.2])
    files = [path.relative_to(tmp_path / "run") for path in saved().checkpoints.glob("*/*.*")]
    assert len(files) == 6
    for number, (name, mutate) in enumerate(product(files * count, MUTATIONS)):
        run = saved()
        before = (run.path / name).read_bytes()
        after = mutate(before, draw)
        (run.path / name).unlink() if after is None else (run.path / name).write_bytes(after)
        run.begin_part({"settings": {}})
        step, aside = int(name.parts[1][-8:]), run.checkpoints / f"damaged-{name.parts[1]}" / name.name
        read = ["state.json", "model.safetensors"] + ["optimizer.safetensors"] * (step == 9)  # 4 is not trained from
        same = aside.name == "state.json" and parsed(before, *read) == parsed(after or b"", *read)  # 1e-5 and 1E-5
        harmless = same or aside.name not in read
        said = capsys.readouterr().err
        assert said.count("note: ") == (0 if harmless else 1), (number, said)
        assert harmless or (f"{name.parent}/" in said and ": damaged (" in said), said
        assert harmless or said.endswith(f"; the run goes on from step {13 - step}\n"), said
        assert harmless or after is None or aside.read_bytes() == after, "nothing is deleted"
        _, state, seen = toy.fit(run, scores=[0.2] if step == 4 else [0.1, 0.2], resume=True)
        assert torch.equal(seen[-1], whole[-1]), name
        assert (state.best, state.kept_step) == ((0.9, 4) if harmless or step == 9 else (0.2, 12))


def test_a_finished_run_whose_kept_model_is_damaged_trains_again(
    toy: Any, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    model, *_ = toy.fit(run, scores=[0.3, 0.9, 0.5])
    (run.checkpoints / "step-00000008" / "model.safetensors").write_bytes(b"")
    again = RunFolder(run.path, resume=True)
    again.begin_part({"settings": {}})
    assert checkpoint.steps(run.checkpoints) == []
    assert capsys.readouterr().err.endswith("; none is left, so the run starts again\n")
    assert torch.equal(toy.fit(again, scores=[0.3, 0.9, 0.5], resume=True)[0].weight, model.weight)


def test_what_a_kill_has_left_is_swept(saved: Callable[[], RunFolder], toy: Any) -> None:
    run = saved()
    shutil.copytree(run.checkpoints / "step-00000009", run.checkpoints / "step-00000007")
    killed = (".encoder.minbert-77.tmp/1_Pooling", ".encoder.minbert-77.old")
    replaced = "checkpoints/.step-00000007.minbert-77.old"  # whose new folder is complete
    for name in (*killed, replaced, "checkpoints/.step-00000009.minbert-77.tmp", "predictions"):
        (run.path / name).mkdir(parents=True)
    strays = [run.path / "predictions" / ".sst-dev-output.csv.minbert-77.tmp", run.path / ".scores.json.minbert-77.tmp"]
    for path in (*strays, run.path / ".notes.2024.old"):
        path.write_text("")
    (run.checkpoints / "step-00000009").rename(run.checkpoints / ".step-00000009.minbert-77.old")
    run.begin_part({"settings": {}})
    assert checkpoint.steps(run.checkpoints) == [4, 7, 9], "a folder that was being replaced comes back"
    toy.fit(run, scores=[0.1], resume=True)
    assert {str(path.relative_to(run.path)) for path in run.path.rglob(".*")} == {".notes.2024.old"}
    assert checkpoint.steps(run.checkpoints) == [4, 12]


def train(toy: Any, folder: Path) -> torch.Tensor:
    run = RunFolder(folder, resume=True)
    run.begin_part({"settings": {}})
    model, *_ = toy.fit(run, baseline=0.5, save_every=3, evaluate_every=100, resume=True)
    return model.weight


def crashed(toy: Any, folder: Path, point: int, full: bool) -> int:
    """Train in another process that before its file operation `point` is killed, or finds the disk full once.

    Returns its exit code; if it is 0, the number of operations is in a file beside the folder.
    """
    if not (child := os.fork()):
        code, places, sync = 1, count(), os.fsync
        sys.dont_write_bytecode = True

        def operation(event: str, given: tuple[Any, ...]) -> None:
            writing = event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR)
            if (writing or event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "fsync")) and next(
                places
            ) == point:
                if full:
                    raise OSError(errno.ENOSPC, "No space left on device")
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(operation)
            os.fsync = lambda descriptor: (sys.audit("fsync"), sync(descriptor))[1]
            train(toy, folder)
            (folder.parent / "operations").write_text(str(next(places)))
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("full", [False, True], ids=["kill", "full disk"])
def test_a_crash_between_any_two_file_operations_leaves_sound_checkpoints(
    toy: Any, tmp_path: Path, full: bool, every: int
) -> None:
    """Of the whole run, saves and the deletion of old checkpoints included."""
    whole = train(toy, tmp_path / "whole")  # first, as the first update of a process makes a folder for torch
    assert crashed(toy, tmp_path / "counted", -1, full) == 0
    operations = int((tmp_path / "operations").read_text())
    assert operations > 80
    for point in range(0, operations, every):
        run = RunFolder(tmp_path / "run")
        code = crashed(toy, run.path, point, full)
        assert code in ((errno.ENOSPC, 0) if full else (-signal.SIGKILL,)), (point, code)
        assert not checkpoint.set_damaged_aside(run.checkpoints), point
        assert torch.equal(train(toy, run.path), whole), point
        assert checkpoint.steps(run.checkpoints) == [12] and not [*run.path.rglob(".*")], point
        shutil.rmtree(run.path)


@pytest.mark.parametrize("bad", [b"\0" * 40, b"{}", b"[1]", b'{"step": "9"}', b"\xff\xfe", b"[" * 9999, b"9" * 5000])
def test_rows_after_the_checkpoint_are_forgotten_and_unreadable_ones_dropped(
    run: RunFolder, bad: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"step": step}).encode() for step in (5, 10, 15)]
    path = run.path / "metrics.jsonl"
    path.write_bytes(b"\n".join([rows[0], bad, *rows[1:], b'{"step": 1']))
    assert [row["step"] for row in run.metrics()] == [5, 10, 15]
    run.forget_after(10)
    assert path.read_bytes() == b'{"step": 5}\n{"step": 10}\n'
    assert capsys.readouterr().err == f"note: {path}: 1 unreadable line dropped\n"


def test_an_evaluation_that_is_repeated_is_forgotten(run: RunFolder) -> None:
    rows = [{"kind": kind, "step": step} for step in (5, 10) for kind in ("train", "evaluation")]
    (run.path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run.forget_after(10, unevaluated=True)
    assert run.metrics() == rows[:3]


def test_a_resumed_run_says_what_changed_in_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = []
    for isa in ("AVX512_CORE_BF16", "AVX512_CORE_BF16", "AVX2"):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
        changed.append(
            RunFolder(tmp_path / "run").begin_part({"settings": {}, "environment": environment(torch.device("cpu"))})
        )
    assert changed == [[], [], ["instructions AVX2 (was AVX512_CORE_BF16)"]]
