"""Guards: the course's flags, the defaults of stage two that depend on others, and flags that exclude each other.

python -m pytest --import-mode=importlib tests/tasks/test_settings.py
"""

import shutil
from pathlib import Path

import pytest

from minbert import UserError
from minbert.train.settings import Parsed, parse
from tasks.presets import CBCL_RUN, PRESETS
from tasks.registry import build
from tasks.settings import MultitaskSettings, resolve_defaults

COURSE: dict[str, str | float] = {"--fine-tune-mode": "last-linear-layer"}
COURSE |= {"--seed": 3, "--epochs": 4, "--batch_size": 5, "--hidden_dropout_prob": 0.25, "--lr": 1e-4}
for _task in ("sst", "para", "sts"):
    COURSE |= {f"--{_task}_train": "a", f"--{_task}_dev": "a", f"--{_task}_test": "a"}
    COURSE |= {f"--{_task}_dev_out": f"{_task}-dev", f"--{_task}_test_out": f"{_task}-test"}


def multitask(*words: str) -> Parsed[MultitaskSettings]:
    program = "multitask_train.py"
    parsed = parse(MultitaskSettings, PRESETS, words, program=program, default="default")
    return resolve_defaults(parsed)


def test_course_flags_work() -> None:
    words = ["--use_gpu"]
    for name, value in COURSE.items():
        words += [name, str(value)]
    values = multitask(*words).settings.flat()
    assert values["use_gpu"] is True
    for name, value in COURSE.items():
        assert values[name.strip("-").replace("-", "_")] == value
    for older, newer, freezes in (("pretrain", "last-linear-layer", True), ("finetune", "full-model", False)):
        assert multitask("--option", older).settings.model.freezes_encoder is freezes
        assert multitask("--fine-tune-mode", newer).settings.model.freezes_encoder is freezes


def test_heads_alone_have_higher_rate() -> None:
    for words, rate in (("", 1e-5), ("--option pretrain", 1e-3), ("--option pretrain --lr 1", 1.0)):
        assert multitask(*words.split()).settings.training.lr == rate
    own_rate = multitask("--option", "pretrain", "--lr", "1", "--head-lr", "2").settings.training
    assert own_rate.lr == 2, "the rate that is printed and recorded is the one that trains"


@pytest.fixture
def stage_one(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has the encoder that stage one leaves by default."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny, tmp_path / CBCL_RUN / "encoder")


@pytest.mark.usefixtures("stage_one")
@pytest.mark.parametrize(
    ("words", "encoder"),
    [
        ([], CBCL_RUN),
        (["--preset", "paper"], CBCL_RUN),
        (["--encoder", ""], ""),
        (["--weights", "minilm"], ""),
        (["--preset", "best"], ""),  # it names weights
        (["--encoder", "."], "."),
    ],
)
def test_stage_one_encoder_is_the_default(words: list[str], encoder: str) -> None:
    assert multitask(*words).settings.encoder.encoder == encoder


def test_weights_are_used_without_stage_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encoder = multitask().settings.encoder
    assert (encoder.encoder, encoder.weights) == ("", "bert-base-uncased")


@pytest.mark.usefixtures("stage_one")
def test_resumed_run_keeps_its_start(tmp_path: Path) -> None:
    """Stage one was run while the run was stopped."""
    run = tmp_path / "runs" / "multitask"
    run.mkdir()
    (run / "manifest.json").write_text('{"all_settings": {"encoder": ""}}')
    assert multitask("--resume").settings.encoder.encoder == ""
    assert multitask("--resume", "--run-dir", "runs/other").settings.encoder.encoder == CBCL_RUN


def test_run_has_a_sentence_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--pairs` is always that of the run, and is known only when its manifest has been read."""
    manifest = {"all_settings": {"pairs": "joint", "tasks": "sts"}}
    monkeypatch.setattr("tasks.settings.fine_tuned", lambda folder: (manifest, {}))
    settings = multitask("--from", "runs/first", "--sentence-encoder", "minilm").settings
    assert (settings.model.pairs, settings.encoder.sentence_encoder) == ("joint", "minilm")


BAD = [
    ("--tasks sst,sst", "--tasks: 'sst,sst'"),
    ("--patience 2 --sampling sequential", "--patience and --sampling"),
    ("--from . --weights y", "--from, --encoder and --weights exclude each other"),
    ("--option finetune --fine-tune-mode full-model", "--fine-tune-mode excludes --option"),
    ("--encoder runs/nowhere/encoder", "--encoder runs/nowhere/encoder: no such folder"),
    ("--sentence-encoder minilm", "--sentence-encoder belongs to --pairs joint"),
    ("--power 1", "--power belongs to --sampling proportional"),
    ("--synonyms-p 0.5", "--synonyms-p belongs to --synonyms 1, 2 or 3"),
    ("--preset cbcl", "python pretrain_cbcl.py --preset cbcl"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_mistake_names_the_flag(words: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        settings = multitask(*words.split()).settings
        build(settings.data.tasks, settings.model.pairs, "--tasks")
    assert "\n" not in str(caught.value)
