"""Guards: presets with the papers' numbers, flags without effect that are said, combinations that are refused.

python -m pytest --import-mode=importlib tests/contrastive/test_settings.py
"""

import subprocess
import sys
from typing import Any

import pytest

from minbert import UserError
from minbert.training.settings import Parsed, flags_of
from minbert.training.settings import parse as parse_words
from tasks.contrastive.presets import PRESETS
from tasks.contrastive.settings import DATA, IN_BATCH, ContrastiveSettings
from tasks.settings import PRESETS as FINE_TUNING
from tasks.settings import MultitaskSettings


def parse(*flags: str, preset: str = "cbcl") -> Parsed[ContrastiveSettings]:
    words = ["--preset", preset, *flags]
    return parse_words(ContrastiveSettings, PRESETS, words, program="pretrain_cbcl.py", about="", default="cbcl")


# Written down from the papers' texts: CBCL sections 4.3, 4.4 and 5.2; SelfCCL sections 4.3, 5.1, 5.3 and its Table 3,
# with the settings of SimCSE (supervised) and sentence-transformers that it refers to; SBERT section 3.
CBCL = {
    "objective": "nt-xent",
    "directions": "one",
    "hard_negatives": True,
    "hard_weight": 0.0,
    "temperature": 0.05,
    "epochs": 10,
    "batch_size": 32,
    "lr": 2e-5,
    "max_length": 32,
    "pooler": "pooler",
    "lr_schedule": "constant",
    "mask_false_negatives": False,
    "evaluate_every": 0,
    "metric": "spearman",
    "projection": "none",
    "sts_dev": "course",
    "keep": "last",
}
ROOT_PACING = {
    "order": "curriculum",
    "technique": "groups",
    "margin": 0.2,
    "power": 0.5,
    "pacing": "epoch",
    "start": 0.0,
}
SIMCSE = {
    "objective": "nt-xent",
    "directions": "one",
    "hard_negatives": True,
    "hard_weight": 0.0,
    "temperature": 0.05,
    "batch_size": 512,
    "lr": 5e-5,
    "max_length": 32,
    "lr_schedule": "linear",
    "warmup": 0.0,
    "weight_decay": 0.0,
    "mask_false_negatives": False,
    "evaluate_every": 125,
    "metric": "spearman",
    "synonyms": "none",
    "sts_dev": "stsb",
    "keep": "best",
}
SBERT = {
    "objective": "nt-xent",
    "directions": "one",
    "hard_negatives": True,
    "temperature": 1 / 20,
    "batch_size": 350,
    "max_length": 75,
    "pooler": "mean",
    "lr": 2e-5,
    "lr_schedule": "linear",
    "warmup": 0.1,
    "weight_decay": 0.01,
    "mask_false_negatives": False,
    "metric": "spearman",
    "synonyms": "none",
    "projection": "none",
    "sts_dev": "stsb",
    "keep": "best",
}
SELF_TAUGHT = {
    "order": "curriculum",
    "technique": "groups",
    "margin": 0.2,
    "power": 1.0,
    "scorer": "",
    "scorer_pooler": "",
    "epochs": 4,
    "start": 0.0,
}
# ConSERT sections 3.2, 3.3 and 4.1, its released scripts for the supervised half; EdaCSE sections 4 and 5.
CONSERT = {
    "objective": "views",
    "views": "feature-cutoff:0.2,shuffle",
    "texts": "sts",
    "pooler": "mean",
    "max_length": 64,
    "encoder_dropout": 0.0,
    "temperature": 0.1,
    "lr": 5e-7,
    "epochs": 10,
    "batch_size": 96,
    "lr_schedule": "linear",
    "warmup": 0.1,
    "evaluate_every": 200,
    "patience": 10,
    "metric": "spearman",
    "protect_special": False,
    "keep_duplicates": True,
    "sts_dev": "stsb",
    "keep": "best",
}
SUPERVISED = {
    "data_kind": "pairs",
    "pooler": "mean",
    "max_length": 64,
    "lr": 2e-5,
    "epochs": 1,
    "batch_size": 96,
    "warmup": 0.1,
    "lr_schedule": "linear",
    "evaluate_every": 200,
    "encoder_dropout": None,
    "sts_dev": "stsb",
    "keep": "best",
}
EDACSE = {
    "objective": "simcse",
    "texts": "chinese",
    "limit": 10_000,
    "weights": "bert-base-chinese",
    "lr": 3e-5,
    "batch_size": 32,
    "weight_decay": 0.01,
    "lr_schedule": "cosine",
    "pooler": "cls",
    "temperature": 0.05,
    "max_length": 64,
    "encoder_dropout": None,
    "keep_duplicates": False,
    "sts_dev": "zh",
    "keep": "best",
}
PAPERS = {
    "cbcl": CBCL | ROOT_PACING | {"synonyms": "none"},
    "cbcl-synonyms": CBCL
    | ROOT_PACING
    | {"synonyms": "3", "synonyms_p": 0.25, "synonyms_grow": False, "synonyms_senses": "all"},
    "contrastive": CBCL | {"order": "none", "synonyms": "none"},
    "selfccl-bert": SIMCSE | SELF_TAUGHT | {"pooler": "avg-first-last", "projection": "none"},
    "selfccl-sbert": SBERT | SELF_TAUGHT,
    "sbert-nli-v2": SBERT | {"order": "none", "epochs": 3},
    "simcse-sup": SIMCSE | {"order": "none", "epochs": 3, "pooler": "cls", "projection": "kept"},
    "sbert-nli": {
        "objective": "softmax",
        "pooler": "mean",
        "epochs": 1,
        "batch_size": 16,
        "lr": 2e-5,
        "warmup": 0.1,
        "lr_schedule": "linear",
        "data_kind": "pairs",
        "sts_dev": "stsb",
        "keep": "best",
    },
    "consert": CONSERT,
    "consert-tuned": CONSERT | {"lr": 2e-5, "temperature": 0.05, "protect_special": True},
    "consert-sup": SUPERVISED | {"objective": "softmax"},
    "consert-joint": SUPERVISED
    | {
        "objective": "joint",
        "alpha": 0.15,
        "temperature": 0.1,
        "views": "none,token-cutoff:0.1",
        "protect_special": False,
    },
    "consert-sup-unsup": CONSERT,
    "consert-joint-unsup": CONSERT,
    "simcse": EDACSE | {"eda_weight": 0.0, "marks_most": 0},
    "edacse-bert": EDACSE | {"eda_weight": 0.6, "marks_most": 3, "marks": "english"},
    "edacse-roberta": EDACSE
    | {"weights": "hfl/chinese-roberta-wwm-ext", "eda_weight": 0.3, "marks_most": 2, "marks": "english"},
    "edacse-roberta-large": EDACSE
    | {
        "weights": "hfl/chinese-roberta-wwm-ext-large",
        "eda_weight": 0.6,
        "marks_most": 5,
        "marks": "english",
        "lr": 5e-6,
        "batch_size": 16,
    },
}


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_preset_has_its_numbers(name: str) -> None:
    settings = parse(preset=name).settings
    known = settings.flat() | {"data_kind": settings.loss.data_kind}
    assert {key: known[key] for key in PAPERS[name]} == pytest.approx(PAPERS[name])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_and_told_apart_from_overrides(name: str) -> None:
    parsed = parse("--seed", "3", preset=name)
    assert (parsed.preset, parsed.overrides) == (name, {"seed": 3})
    assert parsed.settings.ignored(parsed.overrides) == []
    assert PRESETS[name][1].items() <= parsed.settings.flat().items()


@pytest.mark.parametrize("name", PRESETS)
def test_any_number_and_any_switch_of_a_preset_can_be_overridden(name: str) -> None:
    for key, value in PRESETS[name][1].items():
        dashed = key.replace("_", "-")
        if isinstance(value, bool):
            given, wanted = [f"--no-{dashed}" if value else f"--{dashed}"], not value
        elif isinstance(value, int | float) and value and name in PAPERS:
            wanted = value / 2 if isinstance(value, float) else value + 1
            given = [f"--{dashed}", str(wanted)]
        else:
            continue
        parsed = parse(*given, preset=name)
        assert parsed.settings.flat()[key] == wanted and parsed.overrides == {key: wanted}


OF_NT_XENT = (
    ["--temperature", "0.1"],
    ["--directions", "both"],
    ["--no-hard-negatives"],
    ["--hard-weight", "1"],
    ["--no-mask-false-negatives"],
)
OF_COSINES = (["--margin", "0.1"], ["--scorer", "minilm"], ["--scorer-pooler", "mean"])
OF_PACING = (["--power", "1"], ["--pacing", "step"], ["--start", "0.2"])
NO_EFFECT = [
    *((["--objective", "softmax"], given) for given in OF_NT_XENT),
    *((["--objective", "triplet"], given) for given in OF_NT_XENT[1:]),
    *((["--objective", "margin"], given) for given in (*OF_NT_XENT[1:], ["--distance", "cosine"])),
    (["--objective", "nt-xent"], ["--loss-margin", "0.5"]),
    (["--objective", "nt-xent"], ["--distance", "cosine"]),
    (["--objective", "softmax"], ["--loss-margin", "0.5"]),
    (["--objective", "softmax"], ["--distance", "cosine"]),
    (["--no-hard-negatives"], ["--hard-weight", "1"]),
    *((["--order", "none"], given) for given in (*OF_COSINES, *OF_PACING, ["--technique", "gap"], ["--equal-steps"])),
    *((["--order", "random"], given) for given in (*OF_COSINES, ["--technique", "gap"])),
    *((["--technique", how], given) for how in ("length", "rarity") for given in OF_COSINES),
    *(
        (["--objective", "softmax"], given)
        for given in (
            *OF_COSINES,
            *OF_PACING,
            ["--order", "anti"],
            ["--technique", "gap"],
            ["--equal-steps"],
            ["--triplets", "a.csv"],
            ["--per-premise", "zip"],
            ["--evaluate-triplets", "9"],
            ["--evaluate-temperature", "0.1"],
        )
    ),
    (["--synonyms-stage", "finetune"], ["--synonyms-p", "0.5", "--synonyms", "3"]),
    (["--objective", "simcse"], ["--columns", "a=b", "--texts", "sts"]),
    *((["--objective", how], ["--nli-pairs", "a.tsv"]) for how in ("nt-xent", "triplet", "margin")),
    *(
        (["--synonyms", "none"], given)
        for given in (
            ["--synonyms-p", "0.5"],
            ["--synonyms-grow"],
            ["--synonyms-senses", "all"],
            ["--synonyms-stage", "pretrain"],
        )
    ),
]


@pytest.mark.parametrize(("because", "given"), NO_EFFECT, ids=lambda flags: " ".join(flags))
def test_a_flag_without_effect_is_said_with_what_disables_it(because: list[str], given: list[str]) -> None:
    parsed = parse(*because, *given)
    (said,) = [line for line in parsed.settings.ignored(parsed.overrides) if line.startswith(f"{given[0]} ")]
    assert " ".join(because) in said and "no effect" in said and "\n" not in said


def test_the_temperature_of_a_distance_loss_is_of_no_effect_beside_that_of_its_evaluations() -> None:
    parsed = parse("--objective", "triplet", "--temperature", "0.1", "--evaluate-temperature", "0.05")
    (said,) = parsed.settings.ignored(parsed.overrides)
    assert said == "--temperature has no effect with --evaluate-temperature"


@pytest.mark.parametrize(
    "flags",
    [
        ["--objective", "triplet", "--loss-margin", "0.5", "--distance", "cosine", "--temperature", "0.1"],
        ["--objective", "softmax", "--nli-pairs", "a.tsv", "--accumulate", "2"],
        ["--no-hard-negatives", "--directions", "both", "--temperature", "0.1"],
        ["--order", "none", "--within", "sorted"],
        ["--objective", "softmax", "--within", "sorted"],
        [
            "--order",
            "random",
            "--power",
            "1",
            "--pacing",
            "step",
            "--start",
            "0.1",
            "--equal-steps",
            "--within",
            "sorted",
        ],
        ["--technique", "gap", "--scorer", "minilm", "--scorer-pooler", "mean"],
        ["--technique", "length", "--power", "2", "--pacing", "step"],
        ["--synonyms", "3", "--synonyms-p", "0.5", "--synonyms-grow", "--synonyms-senses", "all"],
        ["--synonyms", "3", "--synonyms-stage", "pretrain"],
    ],
)
def test_nothing_is_said_of_flags_with_an_effect(flags: list[str]) -> None:
    """The temperature of a distance loss is that of the frozen NT-Xent in its evaluations."""
    parsed = parse(*flags)
    assert parsed.settings.ignored(parsed.overrides) == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--accumulate", "2"], ["--accumulate 2", "--chunk"]),
        (["--objective", "triplet", "--accumulate", "2", "--chunk", "8"], ["--accumulate", "--chunk"]),
        (["--projection", "kept", "--pooler", "mean"], ["--projection kept", "--pooler cls", "mean"]),
        (["--projection", "kept", "--pooler", "cls", "--scorer-pooler", "pooler"], ["--projection", "--scorer-pooler"]),
        (["--metric", "accuracy", "--objective", "softmax"], ["--metric accuracy", "--objective softmax"]),
        (["--metric", "loss", "--objective", "softmax"], ["--metric loss", "--objective softmax"]),
        (["--batch-size", "1"], ["--batch-size 1", "in-batch"]),
        (["--synonyms", "3", "--marks-most", "2"], ["--synonyms", "--marks-most"]),
    ],
)
def test_flags_that_exclude_each_other_are_both_named(flags: list[str], named: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse(*flags)
    said = str(caught.value)
    assert all(word in said for word in named) and "\n" not in said


@pytest.mark.parametrize("objective", ["nt-xent", *sorted(set(DATA) - set(IN_BATCH))])
@pytest.mark.parametrize("size", [7, 16])
def test_a_batch_is_cut_into_as_many_parts_as_were_asked_for(objective: str, size: int) -> None:
    def settings(**more: Any) -> ContrastiveSettings:
        return ContrastiveSettings.of(objective=objective, batch_size=size, **more)

    sentences = size * (3 if DATA[objective] == "triplets" else 2)
    assert settings().parts_of == 0
    assert settings(chunk=5).parts_of == 5
    if objective not in IN_BATCH:
        for parts in (2, 3, 5):
            assert -(-sentences // settings(accumulate=parts).parts_of) <= parts
            assert settings(accumulate=parts).parts_of * (parts - 1) < sentences


def test_help_names_every_view_with_its_rate_and_every_metric() -> None:
    from tasks.contrastive.views import KINDS

    known = {name: str(option.description) for name, (_, option) in flags_of(ContrastiveSettings).items()}
    for name, kind in KINDS.items():
        assert (name if kind.default is None else f"{name}:{kind.default:g}") in known["views"]
    for metric in ("Spearman", "accuracy", "loss", "alignment", "uniformity"):
        assert metric in known["metric"]


def test_settings_and_presets_load_no_torch() -> None:
    code = "import sys, tasks.contrastive.settings, tasks.contrastive.presets, tasks.settings as _\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def fine_tuning(*flags: str) -> Parsed[MultitaskSettings]:
    return parse_words(MultitaskSettings, FINE_TUNING, flags, program="multitask_train.py", about="", default="default")


def test_columns_are_said_of_a_task_by_its_short_name() -> None:
    spec = "sst:sentence=text,label=stars; para:sentence1=a,sentence2=b"
    settings = fine_tuning("--columns", spec).settings
    assert settings.data.columns_of("sst") == "sentence=text,label=stars"
    assert settings.data.columns_of("quora") == "sentence1=a,sentence2=b"
    assert settings.data.columns_of("sts") == ""
    alone = fine_tuning("--tasks", "quora", "--columns", "sentence1=a").settings
    assert alone.data.columns_of("quora") == "sentence1=a"
    assert fine_tuning().settings.data.columns_of("sts") == ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--columns", "sentence=text"], "sst:sentence=text"),
        (["--columns", "quora:sentence1=a"], "'quora' is not one of sst, para, sts"),
        (["--columns", "sst:sentence=a;label=b"], "label=b"),
    ],
)
def test_columns_of_no_known_task_are_refused(flags: list[str], said: str) -> None:
    settings = fine_tuning(*flags).settings
    with pytest.raises(UserError, match="--columns") as caught:
        for task in settings.data.chosen:
            settings.data.columns_of(task)
    assert said in str(caught.value)


def test_synonyms_without_effect_are_said_in_fine_tuning_too() -> None:
    parsed = fine_tuning("--synonyms-p", "0.5")
    (said,) = parsed.settings.ignored(parsed.overrides)
    assert said.startswith("--synonyms-p ") and "--synonyms none" in said
