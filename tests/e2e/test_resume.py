"""Guards: a run that was killed or stopped anywhere, and resumed, leaves the same bits as one that was not.

python -m pytest --import-mode=importlib tests/e2e/test_resume.py
"""

import json
import os
import random
import shlex
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from minbert.train import checkpoint
from minbert.train.run import RunFolder

Script = Callable[..., Any]
MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"
MODEL = "encoder/model.safetensors"
COURSE = Path(__file__).parent.parent.parent / "data" / "sample" / "course"
# 15 steps an epoch of which the last of each task is smaller; a checkpoint every 4 steps falls on no epoch's end.
SHORT = ("--epochs", 2, "--batch-size", 32, "--lr", 1e-3, "--save-every", 4, "--lr-schedule", "cosine", "--warmup", 0.2)
HEADS = ("--head-lr", 2e-3, "--r-drop", 1, "--average", 0.8)  # the mean of the steps after 6
FLAGS = {
    MULTITASK: (*SHORT, "--hidden-dropout-prob", 0.3, "--pairs", "joint", *HEADS),
    PRETRAIN: (*SHORT, "--batch-size", 8, "--temperature", 0.5, "--keep", "best"),
}
STEPS = {MULTITASK: 30, PRETRAIN: 11 + 15}
RANDOM = random.Random(20240611)


@pytest.fixture
def whole(shared: Script) -> Script:
    """Each script's run that nothing disturbed."""

    def get(name: str) -> Any:
        run = shared(name, *FLAGS[name])
        assert run.code == 0, run.err
        assert run.rows()[-1]["step"] == STEPS[name]
        return run

    return get


KILLS = {
    MULTITASK: [
        ("step", 2),  # before the first checkpoint
        ("step", RANDOM.randrange(5, 14)),
        ("after row", 15),  # the rows of an epoch are there, its checkpoint is not
        ("in checkpoint", RANDOM.randrange(17, 24)),
        ("step", RANDOM.randrange(25, 30)),
        ("in strip", 1),  # the run is finished, and some of what it no longer needs is gone
    ],
    PRETRAIN: [
        ("step", RANDOM.randrange(1, 9)),
        ("after row", 11),
        ("in checkpoint", RANDOM.randrange(13, 26)),
        ("in strip", 2),
    ],
}


def random_kills(name: str) -> list[tuple[str, int]]:
    """Five places, one after the other."""
    steps = sorted(RANDOM.sample(range(STEPS[name] - 1), 5))
    return [(RANDOM.choice(("step", "after row", "in checkpoint")), step) for step in steps]


SLOW = [pytest.param(name, random_kills(name), marks=pytest.mark.slow) for name in FLAGS for _ in range(20)]


@pytest.mark.parametrize(("name", "kills"), [*KILLS.items(), *SLOW])
def test_killed_again_and_again_and_resumed_equals_undisturbed(
    script: Script, whole: Script, tmp_path: Path, name: str, kills: list[tuple[str, int]]
) -> None:
    for number, (place, at) in enumerate(kills):
        if place == "step":  # of which a run that is resumed does not come to those before its checkpoint
            at = max([at, *checkpoint.steps(tmp_path / "run" / "checkpoints")])
        killed = script(name, *FLAGS[name], *(["--resume"] if number else []), signal=(signal.SIGKILL, place, at))
        assert killed.code == -signal.SIGKILL, (place, at, killed.err)
    resumed = script(name, *FLAGS[name], "--resume")
    assert resumed.code == 0, resumed.err
    assert resumed.rows() == whole(name).rows()
    assert resumed.bits() == whole(name).bits(), "weights, predictions, scores and checkpoints must be the same bits"
    assert not [*resumed.folder.rglob(".*")], "what a kill left half-written must be gone"


@pytest.mark.parametrize(("name", "number"), [(MULTITASK, signal.SIGINT), (PRETRAIN, signal.SIGTERM)])
def test_a_signal_leaves_a_resumable_run_and_names_the_command(
    script: Script, whole: Script, name: str, number: int
) -> None:
    stopped = script(name, *FLAGS[name], signal=(number, "step", 9))
    assert stopped.code == 128 + number
    assert stopped.errors[-1].startswith("stopped after step 10 of "), stopped.err
    assert (stopped.folder / "checkpoints" / "step-00000010").is_dir()
    words = shlex.split(stopped.errors[-1].partition("; resume with: ")[2])
    place = next(place for place, word in enumerate(words) if word.endswith(name))
    assert {"OMP_NUM_THREADS=2"} <= set(words[: place - 1]) and shutil.which(words[place - 1])
    resumed = script(name, argv=words[place:])
    assert resumed.code == 0
    parts = [(part["from_step"], part["to_step"], part["command"]) for part in resumed.manifest()["parts"]]
    assert parts[0] == (0, 10, resumed.manifest()["command"])
    assert parts[1:] == [(10, STEPS[name], f"{parts[0][2]} --resume")]
    assert resumed.bits() == whole(name).bits() and resumed.rows() == whole(name).rows()


@pytest.mark.parametrize("name", FLAGS)
def test_the_same_command_gives_the_same_bits_and_another_seed_does_not(
    script: Script, whole: Script, name: str
) -> None:
    """Saving at every step changes no bit, and `--resume` where there is no run starts one."""
    again = script(name, *FLAGS[name], "--save-every", 0, "--resume", run_dir="again")
    assert again.bits() == whole(name).bits() and again.rows() == whole(name).rows()
    other = script(name, *FLAGS[name], "--seed", 1, run_dir="other")
    assert other.bits()[MODEL] != whole(name).bits()[MODEL]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_resume_with_anything_changed_is_refused_by_name(
    script: Script, tiny_copy: Callable[..., Path], tmp_path: Path
) -> None:
    weights = tiny_copy()
    flags = (*FLAGS[MULTITASK], "--weights", weights)
    folder = script(MULTITASK, *flags, signal=(signal.SIGUSR1, "step", 1)).folder
    before, data = contents(folder), tmp_path / "sts-train.csv"
    data.write_text("".join((COURSE / "sts-train.csv").read_text().splitlines(keepends=True)[:-1]))

    def refused(*words: str, more: Sequence[Any] = (), ranks: int = 1) -> None:
        run = script(MULTITASK, *flags, *more, "--resume", ranks=ranks)
        assert set(run.codes) == {2} and len(run.errors) == 1 and run.errors[0].startswith("error: "), run.err
        assert all(word in run.errors[0] for word in words), run.errors
        assert contents(folder) == before

    refused("--hidden-dropout-prob (was 0.3, now 0.25)", more=("--hidden-dropout-prob", 0.25))
    refused(f"data train sts ({data} is not what it was", more=("--sts_train", data))
    refused("number of processes (was 1, now 2)", ranks=2)
    config, vocabulary_text = weights / "config.json", (weights / "vocab.txt").read_text()
    vocabulary, content = vocabulary_text.splitlines(), json.loads(config.read_text())
    config.write_text(json.dumps(content | {"layer_norm_eps": 1e-6, "hidden_dropout_prob": 0.2}))
    refused("config layer_norm_eps (was 1e-12, now 1e-06)", "config hidden_dropout_prob (was 0.1, now 0.2)")
    config.write_text(json.dumps(content))
    vocabulary[6:8] = reversed(vocabulary[6:8])
    (weights / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    refused(f"vocabulary ({weights} is not what it was")
    (weights / "vocab.txt").write_text(vocabulary_text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["settings"]["mask"] = True  # of a version that had such a setting
    (folder / "manifest.json").write_text(json.dumps(manifest))
    before = contents(folder)
    refused("mask (was True, and is no setting of this version)")


def gradients(folder: Path) -> dict[str, torch.Tensor]:
    """The gradients of a run's one step: after it Adam's first moments are (1 - b1) times them."""
    moments = load_file(folder / "checkpoints" / "step-00000001" / "optimizer.safetensors")
    return {name: tensor / 0.1 for name, tensor in moments.items() if name.startswith("exp_avg/")}


def test_two_ranks_that_accumulate_have_the_gradients_of_one_pass(script: Script) -> None:
    # Bi-encoder pairs, so that a share of the batch also has to keep both sides of a pair together.
    still = ("--clip", 0, "--encoder-dropout", 0, "--hidden-dropout-prob", 0)
    flags = (MULTITASK, "--batch-size", 150, *still, "--tasks", "quora", "--pairs", "bi", "--evaluate-every", 9)
    stop = (signal.SIGUSR1, "step", 0)  # in the first step, as a finished run keeps no optimizer
    alone = script(*flags, run_dir="alone", signal=stop)
    both = script(*flags, "--accumulate", 2, run_dir="both", ranks=2, signal=stop)
    assert both.codes == [128 + signal.SIGUSR1] * 2, both.err
    ours, theirs = gradients(both.folder), gradients(alone.folder)
    assert ours.keys() == theirs.keys() and len(ours) > 30
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-6, rtol=1e-4, msg=name)
    assert both.rows()[0]["quora/loss"] == pytest.approx(alone.rows()[0]["quora/loss"], rel=1e-5)
    assert len(both.rows()) == len(alone.rows()) == 1, "one rank alone writes the metrics"


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAGS)
def test_stopped_after_every_step_and_resumed_equals_undisturbed(script: Script, whole: Script, name: str) -> None:
    for step in range(STEPS[name] - 1):
        stopped = script(name, *FLAGS[name], "--resume", signal=(signal.SIGHUP, "step", step))
        assert stopped.code == 128 + signal.SIGHUP, stopped.err
    assert script(name, *FLAGS[name], "--resume").bits() == whole(name).bits()


ONE = ("--epochs", 2, "--max-steps", 12, "--batch-size", 8, "--lr", 1e-3, "--limit", 60, "--evaluate-every", 5)
SETTINGS = {
    PRETRAIN: [
        "--order anti --technique contradiction --pacing step --lr-schedule linear --warmup 0.3",
        "--order random --within sorted --objective triplet --equal-steps --lr-schedule constant",
        "--technique entailment --within sorted --objective margin --keep best",
        "--order none --chunk 5 --patience 1",
        "--projection kept --pooler cls",
        "--objective softmax --nli-pairs PAIRS --pooler mean --chunk 7",
        "--objective cross --nli-pairs PAIRS --pooler mean",
        "--objective joint --nli-pairs PAIRS --views feature-cutoff:0.2,adversarial --pooler mean --lr-schedule cosine",
        "--objective views --views span-cutoff,dropout --texts TEXTS --pooler avg-first-last",
        "--objective simcse --texts TEXTS --projection training --pooler cls --marks-most 2 --eda-weight 0.5",
    ],
    MULTITASK: [
        "--sampling hybrid --pairs bi --lr-schedule linear --warmup 0.3",
        "--sampling sequential --pairs paper --accumulate 2 --lr-schedule constant --keep last",
        "--sampling proportional --power 0.7 --pairs cross --patience 1",
        "--fine-tune-mode last-linear-layer --lr-schedule cosine",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flags"), [(name, flags) for name in SETTINGS for flags in SETTINGS[name]])
def test_a_run_of_any_setting_is_resumed_with_the_same_bits(
    script: Script, corpora: Path, name: str, flags: str
) -> None:
    """Stopped after its steps 2, 5 and 7: before, with and after an evaluation."""
    places = {"TEXTS": str(corpora / "texts.txt"), "PAIRS": str(corpora / "pairs.tsv")}
    words = [*ONE, *(places.get(word, word) for word in flags.split())]
    whole = script(name, *words, run_dir="whole")
    assert whole.code == 0, whole.err
    for step in (1, 4, 6):
        assert script(name, *words, "--resume", signal=(signal.SIGUSR1, "step", step)).code == 128 + signal.SIGUSR1
    resumed = script(name, *words, "--resume")
    assert resumed.bits() == whole.bits() and resumed.rows() == whole.rows()


def test_ranks_stop_together_when_one_is_told_to_or_refused(script: Script, tmp_path: Path) -> None:
    flags = (*SHORT, "--max-steps", 6)
    with RunFolder.open(tmp_path / "run", resume=False, identity={}):
        refused = script(MULTITASK, *flags, ranks=2)
    assert refused.codes == [2, 2] and f"is in use by process {os.getpid()} on" in refused.errors[0], refused.err
    assert not refused.folder.exists()
    nowhere = script(MULTITASK, *flags, ranks=2, run_dir="/proc/nowhere")
    assert nowhere.codes == [2, 2] and nowhere.errors == ["error: /proc/nowhere: No such file or directory"]
    assert all(not path.read_text() for path in tmp_path.glob("*.err1")), (
        "the other process waits for none, and is quiet"
    )
    stopped = script(MULTITASK, *flags, signal=(signal.SIGTERM, "step", 2), ranks=2)
    assert stopped.codes == [128 + signal.SIGTERM] * 2, stopped.err
