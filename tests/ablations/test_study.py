"""Guards: every study's settings are accepted by its commands, and a mistake is reported with its file and key.

python -m pytest --import-mode=importlib tests/ablations/test_study.py
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ablations.study import STAGE_TWO, read_study, runs_of, study_names, study_path
from ablations.table import matches
from minbert.errors import UserError
from minbert.files import read_toml

STUDY = """\
question = "Does the margin matter?"
baseline = "narrow"
scores = ["sts_dev_spearman"]

[paper]
table = "Table 5"
claim = "It does not."

[settings.pretrain_cbcl]
preset = "sample"

[arms.narrow]
margin = 0.1

[arms.wide]
margin = 0.3
"""
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes a study's file and returns its path."""

    def write_study(text: str) -> str:
        path = tmp_path / "margins.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_study


STUDIES_AND_MODELS = [
    (name, model) for name in study_names() for model in ["", *read_toml(study_path(name)).get("models", {})]
]


@pytest.mark.parametrize(("name", "model"), STUDIES_AND_MODELS)
def test_study_is_sound(name: str, model: str) -> None:
    study = read_study(name, model)
    # raises an error if a command refuses a setting
    study.with_settings(study.quick)
    assert study.paper.values.keys() <= {arm.name for arm in study.arms.values() if study.is_scored(arm)}
    printed = [*study.paper.values.values(), *(row["values"] for row in study.paper.quoted)]
    for values in printed:
        assert all(any(matches(score, wanted) for wanted in study.scores) for score in values)
    for stage_two in (True, False):
        arms = [arm for arm in study.arms.values() if study.is_scored(arm) and not arm.measured]
        kept = {arm.parsed().flat()["keep"] for arm in arms if (arm.command == STAGE_TWO) == stage_two}
        assert len(kept) <= 1, "arms are compared by the same selection of weights"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("margin = 0.3", "margn = 0.3", "arms.wide: --margn"),
        ("margin = 0.3", 'command = "consert"', "arms.wide: name a preset"),
        ('baseline = "narrow"', 'baseline = "narow"', "baseline: no arm narow"),
        ('"sts_dev_spearman"', '"dev_norm"', "scores: no arm has a score dev_norm"),
        ("margin = 0.3", 'from = "wide"', "arms.wide.from: a cycle"),
    ],
)
def test_mistake_names_file_and_key(write: Write, old: str, new: str, message: str) -> None:
    path = write(STUDY.replace(old, new))
    with pytest.raises(UserError, match=re.escape(f"{path}: {message}")):
        read_study(path)


def test_axes_give_all_combinations(write: Write) -> None:
    head = STUDY.partition("[arms.narrow]")[0].replace('"narrow"', '"0.1+1"')
    study = read_study(write(f"{head}[axes]\nmargin = [0.1, 0.3]\npacing-exponent = [1, 2]\n"))
    assert list(study.arms) == ["0.1+1", "0.1+2", "0.3+1", "0.3+2"]
    assert study.arms["0.3+1"].parsed().flat().items() >= {"margin": 0.3, "pacing_exponent": 1.0}.items()


def test_arm_starts_from_same_seed(write: Write, tmp_path: Path) -> None:
    fine = '[settings.multitask_train]\npreset = "sample"\n\n[arms.fine]\ncommand = "multitask_train"\nfrom = "wide"\n'
    text = STUDY.replace('"sts_dev_spearman"', '"dev_norm"').replace('"narrow"', '"fine"') + fine
    study = read_study(write(text))
    runs = {run.name: run for run in runs_of(study, [1, 2], "", tmp_path)}
    (command,) = runs["fine seed 2"].pending()
    assert command[command.index("--encoder") + 1] == str(tmp_path / "wide" / "seed-2" / "encoder")
    assert list(runs).index("wide seed 2") < list(runs).index("fine seed 2")
    assert not study.is_scored(study.arms["wide"])


def test_set_changes_every_arm(write: Write) -> None:
    study = read_study(write(STUDY)).with_settings({"limit": "5000", "max-steps": 2, "weights": "elsewhere"})
    for arm, margin in zip(study.arms.values(), (0.1, 0.3), strict=True):
        expected = {"limit": 5000, "max_steps": 2, "weights": "elsewhere", "margin": margin}
        assert arm.parsed().flat().items() >= expected.items()
    assert study.limits == "--set limit=5000, --set max-steps=2, --set weights=elsewhere"
