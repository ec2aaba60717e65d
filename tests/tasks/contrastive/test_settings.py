"""Guards: presets of stage one have the papers' values; older flags still work; flags that exclude each other.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_settings.py
"""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from minbert import UserError
from minbert.train.settings import Settings, parse
from pretrain_cbcl import PretrainSettings, find_data
from tasks.contrastive.consert import ConsertSettings
from tasks.contrastive.data import find_dev_pairs
from tasks.contrastive.fit import next_command
from tasks.contrastive.nli import NliSettings
from tasks.contrastive.simcse import SimcseSettings
from tasks.presets import PRESETS
from tasks.settings import MultitaskSettings, resolve_defaults

SAMPLE = Path(__file__).parents[3] / "data" / "sample"
PRETRAIN = "pretrain_cbcl.py"
CONSERT = "-m tasks.contrastive.consert"
SIMCSE = "-m tasks.contrastive.simcse"
NLI = "-m tasks.contrastive.nli"
COMMANDS: dict[str, tuple[type[Settings], str]] = {
    PRETRAIN: (PretrainSettings, "cbcl-synonyms"),
    CONSERT: (ConsertSettings, "consert"),
    SIMCSE: (SimcseSettings, "simcse"),
    NLI: (NliSettings, "sbert-nli"),
}


def settings_of(command: str, *words: str) -> Any:
    kind, default = COMMANDS[command]
    return parse(kind, PRESETS, words, program=command, default=default).settings


CONSERT_OPTIMIZER = {"weight_decay": 0.01, "correct_bias": False}  # of the released code; the paper says Adam
CONSERT_LENGTHS = {"max_length": 64, "batch_size": 96, "warmup": 0.1, "evaluate_every": 200, "temperature": 0.1}
# SimCSE's settings, which SelfCCL takes (section 5.1)
SIMCSE_SUPERVISED = {"lr": 5e-5, "batch_size": 512, "max_length": 32, "temperature": 0.05, "evaluate_every": 125}
SIMCSE_SUPERVISED |= {"keep": "best"}
PAPERS = [
    (PRETRAIN, "cbcl", {"margin": 0.2, "pacing_exponent": 0.5, "temperature": 0.05, "epochs": 10}),
    (PRETRAIN, "simcse-sup", SIMCSE_SUPERVISED | {"epochs": 3, "projection": "kept"}),
    (PRETRAIN, "selfccl-bert", SIMCSE_SUPERVISED | {"epochs": 4, "pacing_exponent": 1.0, "margin": 0.2}),
    (PRETRAIN, "selfccl-bert", {"pooler": "avg-first-last", "projection": "none"}),
    (PRETRAIN, "selfccl-sbert", {"epochs": 4, "batch_size": 350, "pacing_exponent": 1.0, "margin": 0.2}),
    (PRETRAIN, "sbert-nli-v2", {"epochs": 3, "batch_size": 350, "order": "none"}),
    # section 4.1
    (CONSERT, "consert", CONSERT_LENGTHS | CONSERT_OPTIMIZER | {"lr": 5e-7, "encoder_dropout": 0.0, "sts_dev": "stsb"}),
    (CONSERT, "consert", {"views": "feature-cutoff:0.2,shuffle", "epochs": 10, "patience": 10, "pooler": "mean"}),
    (CONSERT, "consert", {"keep_duplicates": True, "protect_special": False}),
    (CONSERT, "consert-joint", CONSERT_LENGTHS | CONSERT_OPTIMIZER | {"alpha": 0.15}),
    (NLI, "consert-sup", CONSERT_OPTIMIZER | {"max_length": 64, "batch_size": 96, "warmup": 0.1}),
    # Table 4; the interval is that of SimCSE's released scripts
    (SIMCSE, "simcse", {"lr": 3e-5, "batch_size": 32, "weight_decay": 0.01, "evaluate_every": 125}),
    (SIMCSE, "edacse-bert", {"lr_schedule": "cosine", "marks_most": 3, "eda_weight": 0.6, "evaluate_every": 125}),
    (SIMCSE, "edacse-roberta", {"lr": 3e-5, "marks_most": 2, "eda_weight": 0.3}),
    (SIMCSE, "edacse-roberta-large", {"lr": 5e-6, "batch_size": 16, "marks_most": 5, "eda_weight": 0.6}),
]


@pytest.mark.parametrize(("command", "preset", "values"), PAPERS)
def test_presets_are_the_papers(command: str, preset: str, values: dict[str, Any]) -> None:
    assert values.items() <= settings_of(command, "--preset", preset).flat().items()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_flags_and_defaults(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        settings_of(command, "--help")
    assert not stop.value.code
    printed = capsys.readouterr().out
    assert "--lr" in printed and "(default:" in printed


@pytest.mark.parametrize("command", COMMANDS)
def test_no_pairs_choose_no_weights(command: str) -> None:
    words = ("--sts-dev", "none", "--patience")
    for patience, keep in (("0", "best"), ("3", "last")):
        with pytest.raises(UserError, match="--sts-dev none and --keep best or --patience exclude each other"):
            settings_of(command, *words, patience, "--keep", keep)
    assert settings_of(command, *words, "0", "--keep", "last").files.sts_dev == "none"


def test_older_curriculum_flags_work() -> None:
    older = ["--power", "2", "--technique", "entailment", "--pacing", "step", "--within", "sorted"]
    curriculum = settings_of(PRETRAIN, *older).curriculum
    assert (curriculum.pacing_exponent, curriculum.difficulty) == (2, "entailment")
    assert (curriculum.pace_by, curriculum.order_within) == ("step", "sorted")


def test_paths_may_begin_with_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell expands `~` neither after `=` nor in a TOML file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("nli/nli-triplets.csv", "course/sts-dev.csv"):
        shutil.copy(SAMPLE / name, tmp_path)
    settings = settings_of(PRETRAIN, "--triplets=~/nli-triplets.csv", "--sts-dev=~/sts-dev.csv")
    assert find_data(settings).paths == [tmp_path / "nli-triplets.csv"]
    assert find_dev_pairs(settings.files).paths == {"sts": tmp_path / "sts-dev.csv"}


BAD = [
    (PRETRAIN, "--batch-size 1", "--batch-size 1: .*in-batch"),
    (PRETRAIN, "--projection kept --pooler mean", "--projection kept .*--pooler cls"),
    (PRETRAIN, "--phrases sst", "--phrases: no such flag"),
    (NLI, "--phrases sst", "--phrases needs --objective cross"),
    (NLI, "--objective cross --keep best", "--objective cross .*--sts-dev.*--keep last"),
    (SIMCSE, "--eda-weight 1 --marks-most 2 --synonyms 3", "--synonyms and --marks-most"),
    (SIMCSE, "--eda-weight 0.6", "--eda-weight and --marks-most"),
    (CONSERT, "--views Adversarial,none", "adversarial.*--objective joint"),
    (SIMCSE, "--marks chinese", "--marks needs --marks-most"),
    (PRETRAIN, "--difficulty task", "--difficulty task and --difficulty-run RUN"),
    (PRETRAIN, "--preset", "--preset"),
    # flags without effect
    (PRETRAIN, "--objective triplet --temperature 0.1", "--temperature belongs to --objective nt-xent"),
    (PRETRAIN, "--order random --difficulty entailment", "--difficulty belongs to --order curriculum or anti"),
    (PRETRAIN, "--preset contrastive --pacing-exponent 2", "--pacing-exponent does not belong to --order none"),
    (PRETRAIN, "--difficulty task --difficulty-run a --margin 0.3", "--margin does not belong to --difficulty task"),
    (PRETRAIN, "--loss-margin 2", "--loss-margin belongs to --objective triplet"),
    (PRETRAIN, "--synonyms none --synonyms-p 0.5", "--synonyms-p belongs to --synonyms 1, 2 or 3"),
    (CONSERT, "--preset consert-joint --texts a.txt", "--texts does not belong to --objective joint"),
    (CONSERT, "--alpha 0.5", "--alpha does not belong to --objective views"),
]


@pytest.mark.parametrize(("command", "words", "message"), BAD)
def test_mistake_names_the_flag(command: str, words: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        settings_of(command, *words.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("flags", "encoder"), [((), "runs/cbcl"), (("--preset", "minilm"), "runs/cbcl/encoder")])
def test_next_command_starts_from_the_run(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], encoder: str
) -> None:
    """Also with a preset of both stages, which names other weights."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny, "runs/cbcl/encoder")
    program = "multitask_train.py"
    words = shlex.split(next_command(Path("runs/cbcl/encoder"), str(SAMPLE), flags))
    script = [Path(word).name for word in words].index(program)
    parsed = parse(MultitaskSettings, PRESETS, words[script + 1 :], program=program, default="default")
    assert resolve_defaults(parsed).settings.encoder.encoder == encoder
