"""Guards: presets with the papers' numbers, flags without effect that are said, combinations that are refused.

python -m pytest --import-mode=importlib tests/contrastive/test_settings.py
"""

import subprocess
import sys
from typing import Any

import pytest

from minbert import UserError
from minbert.training.settings import Parsed
from minbert.training.settings import parse as parse_words
from tasks.contrastive.settings import DATA, IN_BATCH, PRESETS, ContrastiveSettings


def parse(*flags: str, preset: str = "cbcl") -> Parsed[ContrastiveSettings]:
    words = ["--preset", preset, *flags]
    return parse_words(ContrastiveSettings, PRESETS, words, program="pretrain_cbcl.py", about="", default="cbcl")


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
# For the packaged weights, as docs/stage-one.md and docs/results.md describe them.
OURS = """
minilm               nt-xent   mean           64         0.05        64         2e-5 3      linear      0.1    course
cross-encoder        cross     mean           128        0.05        32         5e-5 1      linear      0.1    course
intermediate         cross     mean           128        0.05        32         5e-5 1      linear      0.1    course
"""
NAMES, *TABLE = (line.split() for line in (PAPERS.strip() + OURS.rstrip()).splitlines())
GROUPS = {"order": "curriculum", "technique": "groups", "margin": 0.2, "pacing": "epoch", "start": 0.0, "scorer": ""}
FEATURES = {"views": "feature-cutoff:0.2,shuffle", "texts": "sts", "encoder_dropout": 0.0, "patience": 10}
MORE: dict[str, dict[str, Any]] = {
    "cbcl": GROUPS | {"power": 0.5, "synonyms": "none", "directions": "one", "hard_weight": 0.0, "clip": 0.0},
    "cbcl-synonyms": GROUPS | {"power": 0.5, "synonyms": "3", "synonyms_p": 0.25, "synonyms_senses": "all"},
    "contrastive": {"order": "none", "synonyms": "none", "mask_false_negatives": False},
    "selfccl-bert": GROUPS | {"power": 1.0, "scorer_pooler": "", "projection": "none", "evaluate_every": 125},
    "selfccl-sbert": GROUPS | {"power": 1.0, "weight_decay": 0.01, "mask_false_negatives": False},
    "sbert-nli-v2": {"order": "none", "weight_decay": 0.01},
    "simcse-sup": {"order": "none", "projection": "kept", "weight_decay": 0.0, "hard_negatives": True},
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
def test_a_preset_has_its_numbers(row: list[str]) -> None:
    expected = dict(zip(NAMES[1:], row[1:], strict=True)) | MORE.get(row[0], {})
    expected["keep"] = "last" if expected["sts_dev"] == "course" else "best"
    known = parse(preset=row[0]).settings.flat()
    assert known == known | {
        name: type(known[name])(value) if value is not None else None for name, value in expected.items()
    }


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_and_told_apart_from_overrides(name: str) -> None:
    parsed = parse("--seed", "3", preset=name)
    assert (parsed.preset, parsed.overrides) == (name, {"seed": 3})
    assert parsed.settings.ignored(parsed.overrides) == []
    assert PRESETS[name][1].items() <= parsed.settings.flat().items()


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
        (["--objective", "cross", "--keep", "best"], ["--objective cross", "--sts-dev", "--keep last"]),
        (["--objective", "softmax", "--phrases", "sst"], ["--phrases", "--objective softmax", "--objective cross"]),
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
def test_a_batch_is_cut_into_the_smallest_parts_that_are_no_more_than_asked_for(objective: str, size: int) -> None:
    def settings(**more: Any) -> ContrastiveSettings:
        return ContrastiveSettings.of(objective=objective, batch_size=size, keep="last", **more)

    sentences = size * (1 if objective == "cross" else 3 if DATA[objective] == "triplets" else 2)
    assert settings().parts_of == 0
    assert settings(chunk=5).parts_of == 5
    if objective not in IN_BATCH:
        for parts in (2, 3, 5):
            found = settings(accumulate=parts).parts_of
            assert found * parts >= sentences > (found - 1) * parts


@pytest.mark.parametrize("objective", DATA)
@pytest.mark.parametrize("technique", ["groups", "entailment", "contradiction", "gap", "length", "rarity"])
@pytest.mark.parametrize("order", ["curriculum", "anti", "random", "none"])
def test_an_encoder_scores_where_its_cosines_put_triplets_in_order(objective: str, technique: str, order: str) -> None:
    data = {"texts": "sts", "views": "none,shuffle"} if objective in ("views", "joint", "simcse") else {}
    how = ContrastiveSettings.of(objective=objective, technique=technique, order=order, keep="last", **data)
    by_cosine = technique not in ("length", "rarity") and order in ("curriculum", "anti")
    assert how.by_cosine == (DATA[objective] == "triplets" and by_cosine)


def test_settings_and_presets_load_no_torch() -> None:
    code = "import sys, tasks.contrastive.settings, tasks.settings as _\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
