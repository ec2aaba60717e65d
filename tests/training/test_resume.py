"""Guards: a run that was killed or stopped anywhere, and resumed, leaves the same bits as one that was not.

python -m pytest --import-mode=importlib tests/training/test_resume.py
"""

import json
import random
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

Script = Callable[..., object]
MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"
# 15 steps an epoch of which the last of each task is smaller; a checkpoint every 4 steps falls on no epoch's end.
SHORT = ("--epochs", 2, "--batch-size", 32, "--lr", 1e-3, "--save-every", 4, "--lr-schedule", "cosine", "--warmup", 0.2)
FLAGS = {
    MULTITASK: (*SHORT, "--hidden-dropout-prob", 0.3),
    PRETRAIN: (*SHORT, "--batch-size", 8, "--temperature", 0.5, "--keep", "best"),
}
STEPS = {MULTITASK: 30, PRETRAIN: 11 + 15}
RANDOM = random.Random(20240611)


@pytest.fixture(scope="module")
def _whole() -> dict[str, tuple[dict[str, str], list[object]]]:
    return {}


@pytest.fixture
def whole(script: Script, _whole: dict) -> Callable[[str], tuple[dict[str, str], list[object]]]:
    """Hashes and metrics of each script's run that nothing disturbed, made once."""

    def get(name: str) -> tuple[dict[str, str], list[object]]:
        if name not in _whole:
            run = script(name, *FLAGS[name], run_dir="whole")
            assert run.code == 0, run.err
            assert run.rows()[-1]["step"] == STEPS[name]
            _whole[name] = run.bits(), run.rows()
        return _whole[name]

    return get


KILLS = [
    (MULTITASK, "step", 2),  # before the first checkpoint
    (MULTITASK, "step", RANDOM.randrange(5, 15)),
    (MULTITASK, "step", RANDOM.randrange(16, 30)),
    (MULTITASK, "after row", 15),  # the rows of an epoch are there, its checkpoint is not
    (MULTITASK, "in checkpoint", RANDOM.randrange(5, 29)),
    (MULTITASK, "in strip", 1),  # the run is finished, and some of what it no longer needs is gone
    (PRETRAIN, "in strip", 2),
    (PRETRAIN, "step", RANDOM.randrange(1, 26)),
    (PRETRAIN, "in checkpoint", RANDOM.randrange(5, 26)),
]


@pytest.mark.parametrize(("name", "place", "step"), KILLS)
def test_killed_and_resumed_equals_undisturbed(
    script: Script, whole: Callable, name: str, place: str, step: int
) -> None:
    killed = script(name, *FLAGS[name], signal=(signal.SIGKILL, place, step))
    assert killed.code == -signal.SIGKILL
    assert not (killed.folder / "scores.json").exists()
    resumed = script(name, *FLAGS[name], "--resume")
    assert resumed.code == 0, resumed.err
    bits, rows = whole(name)
    assert resumed.rows() == rows
    assert resumed.bits() == bits, "weights, predictions, scores and checkpoints must be the same bits"
    beside = [path.name for path in resumed.folder.glob("checkpoints/.*")]
    assert not beside, "what the kill left half-written must be gone"


@pytest.mark.parametrize(("name", "number"), [(MULTITASK, signal.SIGINT), (PRETRAIN, signal.SIGTERM)])
def test_a_signal_leaves_a_resumable_run_and_exit_code_130(
    script: Script, whole: Callable, name: str, number: int
) -> None:
    stopped = script(name, *FLAGS[name], signal=(number, "step", 9))
    assert stopped.code == 130
    assert len(stopped.errors) == 1 and stopped.errors[0].startswith("stopped after step 10 of "), stopped.err
    assert (stopped.folder / "checkpoints" / "step-00000010").is_dir()
    words = shlex.split(stopped.errors[0].partition("; to go on: ")[2])
    place = next(place for place, word in enumerate(words) if word.endswith(name))
    assert {"OMP_NUM_THREADS=2"} <= set(words[: place - 1]) and shutil.which(words[place - 1])
    resumed = script(name, argv=words[place:])
    assert resumed.code == 0
    parts = [(part["from_step"], part["to_step"], part["command"]) for part in resumed.manifest()["parts"]]
    assert parts[0] == (0, 10, resumed.manifest()["command"])
    assert parts[1:] == [(10, STEPS[name], f"{parts[0][2]} --resume")]
    bits, rows = whole(name)
    assert resumed.bits() == bits
    assert resumed.rows() == rows


def test_the_same_command_gives_the_same_bits_and_another_seed_does_not(script: Script, whole: Callable) -> None:
    for name in (MULTITASK, PRETRAIN):
        again = script(name, *FLAGS[name], run_dir=f"again-{name}")
        assert again.bits() == whole(name)[0]
        other = script(name, *FLAGS[name], "--seed", 1, run_dir=f"other-{name}")
        model = "encoder/model.safetensors"
        assert other.bits()[model] != whole(name)[0][model]


def test_saving_often_changes_no_bit(script: Script, whole: Callable) -> None:
    run = script(MULTITASK, *FLAGS[MULTITASK], "--save-every", 0)
    assert run.bits() == whole(MULTITASK)[0]
    assert run.rows() == whole(MULTITASK)[1]


def test_resuming_a_finished_run_trains_nothing_and_writes_the_same_files(script: Script, whole: Callable) -> None:
    first = script(MULTITASK, *FLAGS[MULTITASK])
    predictions = first.folder / "predictions" / "sst-dev-output.csv"
    predictions.unlink()
    again = script(MULTITASK, *FLAGS[MULTITASK], "--resume")
    assert again.code == 0
    assert again.bits() == whole(MULTITASK)[0]
    assert again.rows() == whole(MULTITASK)[1]


def test_resume_with_a_changed_setting_names_the_flag_and_both_values(script: Script) -> None:
    stopped = script(MULTITASK, *FLAGS[MULTITASK], signal=(signal.SIGINT, "step", 3))
    before = stopped.bits(), stopped.manifest(), stopped.rows() if (stopped.folder / "metrics.jsonl").exists() else []
    refused = script(MULTITASK, *FLAGS[MULTITASK], "--hidden_dropout_prob", 0.25, "--resume")
    assert refused.code == 2
    assert len(refused.errors) == 1 and refused.errors[0].startswith("error: ")
    assert "--hidden-dropout-prob" in refused.errors[0] and "0.3" in refused.errors[0] and "0.25" in refused.errors[0]
    after = refused.bits(), refused.manifest(), refused.rows() if (refused.folder / "metrics.jsonl").exists() else []
    assert after == before


def test_resume_with_changed_data_is_refused(script: Script, tmp_path: Path) -> None:
    sample = Path(__file__).parent.parent.parent / "data" / "sample" / "course" / "sts-train.csv"
    script(MULTITASK, *FLAGS[MULTITASK], signal=(signal.SIGINT, "step", 3))
    changed = tmp_path / "sts-train.csv"
    changed.write_text("".join(sample.read_text().splitlines(keepends=True)[:-1]))
    refused = script(MULTITASK, *FLAGS[MULTITASK], "--sts_train", changed, "--resume")
    assert refused.code == 2
    assert "sts" in refused.errors[0]


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_refused_by_name(script: Script, file: str) -> None:
    stopped = script(MULTITASK, *FLAGS[MULTITASK], signal=(signal.SIGINT, "step", 5))
    path = stopped.folder / "checkpoints" / "step-00000006" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content[:-2]) if file == "state.json" else bytes(content))
    before = {path: path.read_bytes() for path in stopped.folder.rglob("*") if path.is_file()}
    refused = script(MULTITASK, *FLAGS[MULTITASK], "--resume")
    assert refused.code == 2
    assert len(refused.errors) == 1 and refused.errors[0].startswith(f"error: {path}: damaged ("), refused.err
    assert refused.errors[0].endswith(f"); delete {path.parent} to start over"), refused.err
    assert {path: path.read_bytes() for path in stopped.folder.rglob("*") if path.is_file()} == before


def test_resume_where_there_is_no_run_starts_one(script: Script, whole: Callable) -> None:
    run = script(PRETRAIN, *FLAGS[PRETRAIN], "--resume")
    assert run.code == 0
    assert run.bits() == whole(PRETRAIN)[0]


def test_checkpoints_keep_only_the_newest_and_the_best(script: Script) -> None:
    run = script(MULTITASK, *FLAGS[MULTITASK], "--epochs", 3)
    best = json.loads((run.folder / "scores.json").read_text())["step"]
    kept = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    assert kept == sorted({f"step-{step:08d}" for step in (best, 45)})


WITHOUT_DROPOUT = ("--clip", 0, "--encoder-dropout", 0, "--hidden-dropout-prob", 0)
ONE_STEP = ("--epochs", 1, "--batch-size", 150, *WITHOUT_DROPOUT, "--keep-checkpoints")


def gradients(folder: Path) -> dict[str, torch.Tensor]:
    """The gradients of a run's one step: after it Adam's first moments are (1 - b1) times them."""
    moments = load_file(folder / "checkpoints" / "step-00000001" / "optimizer.safetensors")
    return {name: tensor / 0.1 for name, tensor in moments.items() if name.startswith("exp_avg/")}


def assert_equal_gradients(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys() and len(ours) > 30
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("task", ["sst", "quora"])
def test_an_accumulated_step_has_the_gradients_of_one_pass(script: Script, task: str) -> None:
    whole = script(MULTITASK, *ONE_STEP, "--tasks", task, run_dir="whole")
    parts = script(MULTITASK, *ONE_STEP, "--tasks", task, "--accumulate", 4, run_dir="parts")
    assert whole.code == parts.code == 0, whole.err + parts.err
    assert_equal_gradients(gradients(parts.folder), gradients(whole.folder))
    assert parts.rows()[0]["step"] == 1
    assert parts.rows()[0][f"{task}/loss"] == pytest.approx(whole.rows()[0][f"{task}/loss"], rel=1e-5)


def test_two_ranks_have_the_gradients_of_one_process(script: Script) -> None:
    # Bi-encoder pairs, so that a rank's share also has to keep both sides of a pair together.
    flags = (*ONE_STEP, "--tasks", "quora", "--pairs", "bi")
    alone = script(MULTITASK, *flags, run_dir="alone")
    both = script(MULTITASK, *flags, run_dir="both", ranks=2)
    assert both.codes == [0, 0], both.err
    assert_equal_gradients(gradients(both.folder), gradients(alone.folder))
    assert both.rows()[0]["quora/loss"] == pytest.approx(alone.rows()[0]["quora/loss"], rel=1e-5)
    assert len(both.rows()) == len(alone.rows()) == 2, "one rank alone writes the metrics"


def test_the_runner_reports_a_crash(forks: subprocess.Popen[str], script: Script) -> None:
    """The tests above rely on it: a traceback must not pass for success."""
    assert script("tests/training/forks.py/no-such-script.py").code == 1
