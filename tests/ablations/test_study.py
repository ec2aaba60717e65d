"""Guards: every study's settings are accepted by its commands, and a mistake is reported with its file and key.

python -m pytest --import-mode=importlib tests/ablations/test_study.py
"""

import re
from collections.abc import Callable
from itertools import chain
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
QUESTIONS = Path(__file__).parents[2] / "data" / "sample" / "own" / "questions.toml"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes a study's file and returns its path."""

    def write_study(text: str) -> str:
        path = tmp_path / "margins.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_study


STUDIES_AND_MODELS: list[tuple[str, str]] = []
for name in study_names():
    models = read_toml(study_path(name)).get("models", {})
    STUDIES_AND_MODELS += [(name, model) for model in ("", *models)]

# the presets that are the project's own choice, and no paper's
OWN_PRESETS = {"minilm", "consert-tuned", "best", "best-bert", "cross-encoder", "intermediate", "default"}


@pytest.mark.parametrize(("name", "model"), STUDIES_AND_MODELS)
def test_study_is_sound(name: str, model: str) -> None:
    study = read_study(name, model)
    # raises an error if a command refuses a setting
    study.with_settings(study.quick)
    presets = {key.split()[-1] for key in study.departures()}
    assert not OWN_PRESETS & presets, "its presets are the papers'"
    assert study.paper.values.keys() <= {arm.name for arm in study.arms.values() if study.is_scored(arm)}
    printed = [*study.paper.values.values(), *(row["values"] for row in study.paper.quoted)]
    for score in chain(*printed):
        assert any(matches(score, wanted) for wanted in study.scores), score
    kept: dict[bool, set[str]] = {True: set(), False: set()}
    for arm in study.arms.values():
        if study.is_scored(arm) and not arm.measured:
            kept[arm.command == STAGE_TWO].add(arm.parsed().flat()["keep"])
    for choices in kept.values():
        assert len(choices) <= 1, "arms are compared by the same selection of weights"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("margin = 0.3", "margn = 0.3", "arms.wide: --margn"),
        ("margin = 0.3", 'command = "consert"', "arms.wide: --preset: ''"),
        ("margin = 0.3", "seed = 3", "arms.wide: --seed is set by ablations/run.py"),
        ('claim = "It does not."', "", "a key is missing or unknown: Paper"),
        ('baseline = "narrow"', "", "a key is missing or unknown: Study"),
        ('baseline = "narrow"', 'baseline = "narow"', "baseline: 'narow' is not one of"),
        ('"sts_dev_spearman"', '"dev_norm"', "scores: no arm has a score dev_norm"),
        ("margin = 0.3", 'from = "wider"', "arms.wide.from: 'wider' is not one of"),
        ("[arms.narrow]", "[suites]\nsts = 'stss'\n\n[arms.narrow]", "suites.sts: 'stss' is not one of"),
    ],
)
def test_mistake_names_file_and_key(write: Write, old: str, new: str, message: str) -> None:
    path = write(STUDY.replace(old, new))
    with pytest.raises(UserError, match=re.escape(f"{path}: {message}")):
        read_study(path)


def test_patterns_leave_cosines_out() -> None:
    assert matches("sts/STS12", "sts/*") and matches("sts/cosine neutral", "sts/cosine neutral")
    assert not matches("sts/cosine neutral", "sts/*")


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


def test_what_is_compared_cannot_be_set(write: Write) -> None:
    with pytest.raises(UserError, match="--set margin: the arms differ by it"):
        read_study(write(STUDY)).with_settings({"margin": 0.2})


def test_defaults_are_those_of_the_run(write: Write) -> None:
    """Those that depend on others too: the heads alone have a learning rate of their own."""
    text = STUDY.replace('"sts_dev_spearman"', '"dev_norm"').replace("pretrain_cbcl", "multitask_train")
    text = text.replace("margin = 0.1", 'fine-tune-mode = "last-linear-layer"').replace("margin = 0.3", "")
    arms = read_study(write(text.replace('"sample"', '"default"'))).arms
    assert [arm.parsed().flat()["lr"] for arm in arms.values()] == [1e-3, 1e-5]


def test_departures_of_equal_preset_names(write: Write) -> None:
    text = STUDY.replace("margin = 0.3", 'command = "multitask_train"\npreset = "sample"\nlimit = 9')
    departures = read_study(write(text)).departures()
    assert departures == {
        "pretrain_cbcl --preset sample": "margin 0.1 (0.2)",
        "multitask_train --preset sample": "limit 9 (0)",
    }


def test_own_task_has_a_score(write: Write) -> None:
    stage_two = f'[settings.multitask_train]\npreset = "sample"\ntasks = "{QUESTIONS}"\n\n'
    text = STUDY.replace("[arms.narrow]\nmargin = 0.1", f"{stage_two}[arms.narrow]\ncommand = 'multitask_train'")
    text = text.replace("sts_dev_spearman", "questions")
    assert read_study(write(text)).scores == ["questions"]
    with pytest.raises(UserError, match="no arm has a score questons"):
        read_study(write(text.replace('questions"]', 'questons"]')))


def test_run_stays_in_the_studys_folder(write: Write, tmp_path: Path) -> None:
    """An axis over encoders names its arms by their paths."""
    text = STUDY.partition("[arms.narrow]")[0].replace('"narrow"', '"minilm"')
    study = read_study(write(text + f'[axes]\nweights = ["minilm", "{tmp_path}"]\n'))
    runs = runs_of(study, [1], "", tmp_path / "runs")
    assert all(run.folder.parent.parent == tmp_path / "runs" for run in runs)


PAPERS = ("CBCL", "SelfCCL", "ConSERT")
BERT_BASE = [name for name in study_names() if read_toml(study_path(name))["paper"]["table"].startswith(PAPERS)]
BERT_BASE.remove("sample")


@pytest.mark.parametrize("name", BERT_BASE)
def test_bert_base_has_no_departures(name: str) -> None:
    """All rows and every setting of the paper; a control at equal steps is one that no paper has."""
    study = read_study(name, "bert-base")
    assert set(study.departures().values()) <= {"", "equal-steps True (False)"}
    assert all(arm.measured in ("", "bert-base-uncased") for arm in study.arms.values())


PAGE = (Path(__file__).parents[2] / "docs" / "papers.md").read_text(encoding="utf-8")
STUDY_ROWS = [line.split(" | ") for line in PAGE.splitlines() if "| `run.py " in line]
NAMED_SETTINGS = dict(re.findall(r"^\| `([\w-]+)` \| (.* \(.*\)) \|$", PAGE, re.MULTILINE))


def departures_of_row(text: str) -> dict[str, set[str]]:
    """The settings of each preset in the page's third column, those with a name spelt out."""
    departures = {}
    for part in text.split("; "):
        presets, _, names = part.partition(": ")
        settings: set[str] = set()
        for name in names.split(", "):
            settings.update(NAMED_SETTINGS.get(name, name).split(", "))
        for preset in presets.split(", "):
            departures[preset] = settings
    return departures


@pytest.mark.parametrize("row", STUDY_ROWS, ids=[row[1] for row in STUDY_ROWS])
def test_page_lists_departures(row: list[str]) -> None:
    """The page's third column is what `run.py list` prints; a study that is run with `--set` has this too."""
    name, *flags = row[1].strip("`").split()[1:]
    model = flags[flags.index("--model") + 1] if "--model" in flags else ""
    study = read_study(name, model)
    settings = dict(word.split("=") for word in flags if "=" in word)
    if settings:
        study = study.with_settings(settings)
    expected = {preset: set(text.split(", ")) for preset, text in study.departures().items() if text}
    assert departures_of_row(row[2]) == expected


def test_page_lists_all_studies() -> None:
    assert {row[1].strip("`").split()[1] for row in STUDY_ROWS} == {*study_names()} - {"sample"}
