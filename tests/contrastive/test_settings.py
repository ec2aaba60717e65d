"""Guards: presets with the papers' numbers, flags that exist with their objective, combinations refused.

python -m pytest --import-mode=importlib tests/contrastive/test_settings.py
"""

from typing import Any

import pytest

from minbert import UserError
from minbert.training.settings import Parsed
from minbert.training.settings import parse as parse_words
from tasks.contrastive.settings import PRESETS, ContrastiveSettings


def parse(*flags: str, preset: str = "cbcl") -> Parsed[ContrastiveSettings]:
    words = ["--preset", preset, *flags]
    return parse_words(ContrastiveSettings, PRESETS, words, program="pretrain_cbcl.py", description="", default="cbcl")


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
GROUPS = {"order": "curriculum", "technique": "groups", "margin": 0.2, "pacing": "epoch"}
FEATURES = {"views": "feature-cutoff:0.2,shuffle", "texts": "sts", "encoder_dropout": 0.0, "patience": 10}
MORE: dict[str, dict[str, Any]] = {
    "cbcl": GROUPS | {"power": 0.5, "synonyms": "none", "clip": 0.0},
    "cbcl-synonyms": GROUPS | {"power": 0.5, "synonyms": "3", "synonyms_p": 0.25, "synonyms_senses": "all"},
    "contrastive": {"order": "none", "synonyms": "none", "mask_false_negatives": False},
    "selfccl-bert": GROUPS | {"power": 1.0, "projection": "none", "evaluate_every": 125},
    "selfccl-sbert": GROUPS | {"power": 1.0, "weight_decay": 0.01, "mask_false_negatives": False},
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
def test_a_preset_has_its_numbers(row: list[str]) -> None:
    expected = dict(zip(NAMES[1:], row[1:], strict=True)) | MORE.get(row[0], {})
    if expected["objective"] in ("softmax", "cross"):
        del expected["temperature"]  # a flag that does not exist
    expected["pooler"] = expected["pooler"].replace("pooler", "")  # as the folder says, else the pooling layer
    expected["keep"] = "last" if expected["sts_dev"] == "course" else "best"
    known = parse(preset=row[0]).settings.flat()
    assert known == known | {
        name: type(known[name])(value) if value is not None else None for name, value in expected.items()
    }


def test_of_a_preset_for_another_objective_the_shared_flags_are_taken() -> None:
    settings = parse("--objective", "triplet", preset="cbcl").settings
    assert settings.objective.objective == "triplet" and settings.training.clip == 0.0
    assert settings.flat()["power"] == 0.5 and "temperature" not in settings.flat()


def test_paths_are_no_part_of_a_runs_identity() -> None:
    flags = ["--triplets", "a.csv", "--run-dir", "b", "--sts-dev", "c", "--margin", "0.3"]
    identity, flat = parse(*flags).settings.identity(), parse(*flags).settings.flat()
    assert identity["margin"] == 0.3 and flat.items() >= {"triplets": "a.csv", "run_dir": "b", "sts_dev": "c"}.items()
    assert not identity.keys() & {"triplets", "run_dir", "sts_dev", "data", "log_every"}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--loss-margin", "1"], ["--loss-margin", "--objective nt-xent has no such flag", "triplet, margin"]),
        (["--no-lr"], ["--no-lr: no such flag"]),
        (["--objective", "softmax", "--margin", "0.1"], ["--margin", "--objective softmax has no such flag"]),
        (["--objective", "softmax", "--phrases", "sst"], ["--phrases", "belongs to --objective cross"]),
        (["--objective", "triplet", "--temperature", "0.1"], ["--temperature", "nt-xent"]),
        (["--projection", "kept", "--pooler", "mean"], ["--projection kept", "--pooler cls"]),
        (["--batch-size", "1"], ["--batch-size 1", "in-batch"]),
        (["--objective", "cross", "--keep", "best"], ["--objective cross", "--sts-dev", "--keep last"]),
        (["--synonyms", "3", "--marks-most", "2"], ["--synonyms", "--marks-most"]),
        (["--objective", "views", "--texts", "sts"], ["--views", "two views"]),
        (["--objective", "views", "--views", "none,shuffle"], ["--objective views", "--texts"]),
        (["--objective", "views", "--texts", "sts", "--views", "Adversarial,none"], ["adversarial", "joint"]),
        (["--objective", "simcse", "--texts", "sts", "--eda-weight", "0.6"], ["--eda-weight", "--marks-most"]),
    ],
)
def test_a_flag_that_does_not_apply_is_named(flags: list[str], named: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse(*flags)
    assert all(word in str(caught.value) for word in named) and "\n" not in str(caught.value)
