"""Guards: a run that was killed or stopped anywhere, and resumed, leaves the same bits as one that was not.

python -m pytest --import-mode=importlib tests/e2e/test_resume.py
"""

import json
import os
import random
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.e2e.conftest import SAMPLE, Script

MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"
MODEL = "encoder/model.safetensors"
COURSE = SAMPLE / "course"
# 15 steps an epoch of which the last of each task is smaller; a checkpoint every 4 steps falls on no epoch's end.
SHORT = ("--epochs", 2, "--batch-size", 32, "--lr", 1e-3, "--save-every", 4, "--lr-schedule", "cosine", "--warmup", 0.2)
HEADS = ("--head-lr", 2e-3, "--r-drop", 1, "--average", 0.8)  # the mean of the steps after 6
FLAGS = {
    MULTITASK: (*SHORT, "--hidden-dropout-prob", 0.3, "--pairs", "joint", *HEADS),
    PRETRAIN: (*SHORT, "--batch-size", 8, "--temperature", 0.5, "--keep", "best"),
}
STEPS = {MULTITASK: 30, PRETRAIN: 11 + 15}


@pytest.fixture(scope="module")
def whole(runner: Script, tmp_path_factory: pytest.TempPathFactory) -> Script:
    """Each script's run that nothing disturbed, whose changes of files are counted."""

    @cache
    def get(name: str) -> Any:
        run = runner(tmp_path_factory.mktemp("whole"), name, *FLAGS[name], kill=-1)
        assert run.code == 0, run.err
        assert run.rows()[-1]["step"] == STEPS[name]
        return run

    return get


def assert_equal(run: Any, whole: Any) -> None:
    assert run.code == 0, run.err
    assert run.rows() == whole.rows()
    assert run.bits() == whole.bits(), "weights, predictions, scores and checkpoints must be the same bits"
    assert not [*run.folder.rglob(".*")], "what a kill left half-written must be gone"


@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FLAGS)
def test_killed_run_resumes_bit_equal(script: Script, whole: Script, name: str, count: int) -> None:
    """Of each run three starts are killed, each before a random change of a file."""
    changes = whole(name).changes
    assert changes > 100
    draw = random.Random(f"{name} {count}")
    for number in range(count):
        folder = f"run{number}"
        resume: tuple[str, ...] = ()
        codes = []
        for _ in range(3):
            point = draw.randrange(changes * 2 // 3)
            killed = script(name, *FLAGS[name], *resume, run_dir=folder, kill=point)
            assert killed.code in (0, -signal.SIGKILL), (point, killed.err)
            codes.append(killed.code)
            resume = ("--resume",)
        assert codes[0] == -signal.SIGKILL, "a resumed start may have ended before its change"
        assert_equal(script(name, *FLAGS[name], "--resume", run_dir=folder), whole(name))


def test_stopped_run_names_resuming_command(script: Script, whole: Script) -> None:
    stopped = script(MULTITASK, *FLAGS[MULTITASK], signal=(signal.SIGINT, 9))
    assert stopped.code == 128 + signal.SIGINT
    assert stopped.errors[-1].startswith("stopped after step 10 of "), stopped.err
    words = shlex.split(stopped.errors[-1].partition("; resume with: ")[2])
    assert f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}" in words
    python = words.index(sys.executable)  # the interpreter that the user typed
    resumed = script(MULTITASK, argv=words[python + 1 :])
    assert_equal(resumed, whole(MULTITASK))
    first, second = resumed.manifest()["sessions"]
    assert (first["from_step"], first["to_step"]) == (0, 10)
    assert (second["from_step"], second["to_step"]) == (10, STEPS[MULTITASK])
    assert second["command"] == f"{first['command']} --resume"


def test_resumed_run_keeps_its_order(script: Script) -> None:
    """The scores of its first start, which differ on another processor."""
    path = script(PRETRAIN, *FLAGS[PRETRAIN], signal=(signal.SIGINT, 9)).folder / "difficulty.safetensors"
    scores = load_file(path)
    exchanged = {"positive": scores["negative"], "negative": scores["positive"]}
    save_file(exchanged, path)
    assert script(PRETRAIN, *FLAGS[PRETRAIN], "--resume").code == 0
    np.testing.assert_equal(load_file(path), exchanged)


def test_same_command_gives_same_bits(script: Script, whole: Script) -> None:
    """The interval of checkpoints changes no bit, and `--resume` where there is no run starts one."""
    again = script(PRETRAIN, *FLAGS[PRETRAIN], "--save-every", 0, "--resume", run_dir="again")
    assert_equal(again, whole(PRETRAIN))
    other = script(PRETRAIN, *FLAGS[PRETRAIN], "--seed", 1, run_dir="other")
    assert other.bits()[MODEL] != whole(PRETRAIN).bits()[MODEL]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_changed_run_is_refused(script: Script, tiny_copy: Callable[..., Path], tmp_path: Path) -> None:
    weights = tiny_copy()
    flags = (*FLAGS[MULTITASK], "--weights", weights)
    folder = script(MULTITASK, *flags, signal=(signal.SIGUSR1, 1)).folder
    before = contents(folder)
    data = tmp_path / "sts-train.csv"
    data.write_text("".join((COURSE / "sts-train.csv").read_text().splitlines(keepends=True)[:-1]))

    def assert_refused(*words: str, more: Sequence[Any] = (), ranks: int = 1) -> None:
        run = script(MULTITASK, *flags, *more, "--resume", ranks=ranks)
        assert set(run.codes) == {2} and len(run.errors) == 1, run.err
        for word in words:
            assert word in run.errors[0]
        assert contents(folder) == before

    assert_refused("--hidden-dropout-prob (was 0.3, now 0.25)", more=("--hidden-dropout-prob", 0.25))
    assert_refused(f"data train sts ({data} is not what it was", more=("--sts_train", data))
    assert_refused("number of processes (was 1, now 2)", ranks=2)
    config = weights / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps(content | {"layer_norm_eps": 1e-6, "hidden_dropout_prob": 0.2}))
    assert_refused("config layer_norm_eps (was 1e-12, now 1e-06)", "config hidden_dropout_prob (was 0.1, now 0.2)")
    config.write_text(json.dumps(content))
    tokenizer = json.loads((weights / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {"cat": vocabulary["dog"], "dog": vocabulary["cat"]}
    (weights / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert_refused("vocabulary (", "is not what it was")


ONE = ("--epochs", 2, "--max-steps", 12, "--batch-size", 8, "--lr", 1e-3, "--limit", 60, "--evaluate-every", 5)
NLI = "tasks/contrastive/nli.py"
CONSERT = "tasks/contrastive/consert.py"
SIMCSE = "tasks/contrastive/simcse.py"
QUICK = (SIMCSE, "--texts TEXTS --sts-dev course --projection training --pooler cls --marks-most 2 --eda-weight 0.5")
SLOW = [
    (PRETRAIN, "--order anti --technique contradiction --pacing step --lr-schedule linear --warmup 0.3"),
    (PRETRAIN, "--order random --within sorted --objective triplet --equal-steps --lr-schedule constant"),
    (PRETRAIN, "--order none --chunk 5 --patience 2 --projection kept --pooler cls"),
    (NLI, "--objective softmax --nli-pairs PAIRS --pooler mean --chunk 7"),
    (NLI, "--objective cross --nli-pairs PAIRS --pooler mean --keep last"),
    (CONSERT, "--objective joint --nli-pairs PAIRS --views feature-cutoff:0.2,adversarial --pooler mean"),
    (CONSERT, "--objective views --views span-cutoff,dropout --texts TEXTS --pooler avg-first-last"),
    (MULTITASK, "--sampling hybrid --pairs bi --lr-schedule linear --warmup 0.3"),
    (MULTITASK, "--sampling sequential --pairs paper --accumulate 2 --lr-schedule constant --keep last"),
    (MULTITASK, "--sampling proportional --power 0.7 --pairs cross --patience 1"),
    (MULTITASK, "--fine-tune-mode last-linear-layer --lr-schedule cosine"),
]


@pytest.mark.parametrize(("name", "flags"), [QUICK, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)])
def test_any_setting_resumes_bit_equal(script: Script, corpora: Path, name: str, flags: str) -> None:
    """Stopped after its steps 2 and 5, and killed in step 7: before, with and after an evaluation."""
    places = {"TEXTS": str(corpora / "texts.txt"), "PAIRS": str(corpora / "pairs.tsv")}
    words = [*ONE, *(places.get(word, word) for word in flags.split())]
    whole = script(name, *words, run_dir="whole")
    assert whole.code == 0, whole.err
    stop, kill = signal.SIGUSR1, signal.SIGKILL
    for number, step, code in ((stop, 1, 128 + stop), (stop, 4, 128 + stop), (kill, 6, -kill)):
        assert script(name, *words, "--resume", signal=(number, step)).code == code
    assert_equal(script(name, *words, "--resume"), whole)
