"""Guards: every study's settings are taken by the scripts, and a mistake is named with its file and key.

python -m pytest --import-mode=importlib tests/ablations/test_study.py
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ablations.cells import cells_of
from ablations.files import read_file, study_names
from ablations.study import SCRIPTS, matches, read_study
from minbert.errors import UserError

WRITE = Callable[[str], Path]
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
CHAIN = """
[settings.multitask_train]
preset = "sample"

[arms.fine]
script = "multitask_train"
from = "wide"
"""


@pytest.fixture
def write(tmp_path: Path) -> WRITE:
    def written(text: str) -> Path:
        path = tmp_path / "margins.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


OURS = [(name, model) for name in study_names() for model in ["", *read_file(name).models]]


@pytest.mark.parametrize(("name", "model"), OURS)
def test_a_study_of_ours_is_sound(name: str, model: str, tmp_path: Path) -> None:
    study = read_study(name, model)
    assert study.changed(study.file.quick) != study, "it has quick settings"
    cells = cells_of(study, study.file.seeds, "data", tmp_path)
    assert len({cell.folder for cell in cells}) == len(cells)
    paper = study.file.paper
    assert paper.values.keys() <= study.scored.keys(), "the paper's values are of arms of the study"
    for values in [*paper.values.values(), *(row.values for row in paper.quoted)]:
        assert all(any(matches(score, wanted) for wanted in study.file.scores) for score in values)
    for script in SCRIPTS:
        kept = {arm.flat["keep"] for arm in study.scored.values() if arm.script == script}
        assert len(kept) <= 1, "arms are compared after the same rule"
    for cell in cells:
        if not cell.arm.measured:
            assert cell.arm.parsed(cell.words()).settings.run.run_dir == str(cell.folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("margin = 0.3", "margn = 0.3", "arms.wide: --margn: no such flag; did you mean '--margin'"),
        ("margin = 0.3", "seed = 3", "arms.wide: seed is given by the runner (see seeds)"),
        ('baseline = "narrow"', 'baseline = "narow"', "baseline: no arm narow; did you mean 'narrow'"),
        ('"sts_dev_spearman"', '"dev_norm"', "scores: no arm has a score dev_norm"),
        ("margin = 0.3", 'margin = 0.3\nfrom = "narrow"\n[arms.x]\nfrom = "y"\n[arms.y]\nfrom = "x"', "a cycle"),
        ("margin = 0.3", 'margin = 0.3\nfrom = "wise"', "arms.wide.from: no arm wise is trained"),
        ("margin = 0.3", "margin = 0.3" + CHAIN, "arms.fine: has none of the scores"),
        ("margin = 0.3", 'margin = 0.3\nmeasured = "minilm"', "only measured has no settings"),
        ("[arms.wide]", '[arms."wi/de"]', "an arm's name"),
        (
            "[arms.wide]",
            '[suites]\nsts = "sts_suite --resample 0"\n[arms.wide]',
            "suites.sts: unrecognized arguments: --resample",
        ),
        ("[arms.wide]", '[suites]\nsts = "sts_suite --pooler mean,cls"\n[arms.wide]', "suites.sts: scores several"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(write: WRITE, old: str, new: str, said: str) -> None:
    path = write(STUDY.replace(old, new))
    with pytest.raises(UserError) as raised:
        read_study(str(path))
    message = str(raised.value)
    assert said in message and message.startswith(f"{path}: ")
    assert "\n" not in message


def test_an_arm_starts_at_the_encoder_of_another_with_the_same_seed(write: WRITE, tmp_path: Path) -> None:
    text = STUDY.replace('"sts_dev_spearman"', '"sts_dev_spearman", "dev_norm"')
    study = read_study(str(write(text.replace("[arms.narrow]", f"{CHAIN}\n[arms.narrow]"))))
    cells = {cell.name: cell for cell in cells_of(study, [1, 2], "data", tmp_path)}
    words = cells["fine seed 2"].words()
    assert words[words.index("--encoder") + 1] == str(tmp_path / "margins" / "wide" / "seed-2" / "encoder")
    assert list(cells).index("wide seed 2") < list(cells).index("fine seed 2")


def test_a_setting_of_the_command_is_in_every_arm_and_in_the_tables(write: WRITE) -> None:
    study = read_study(str(write(STUDY))).changed({"limit": "5000", "max-steps": 2, "weights": "elsewhere"})
    for arm, margin in zip(study.arms.values(), (0.1, 0.3), strict=True):
        assert arm.flat.items() >= {"limit": 5000, "max_steps": 2, "weights": "elsewhere", "margin": margin}.items()
    assert study.file.limits == "--set limit=5000, --set max-steps=2, --set weights=elsewhere"
    order = read_study("order")
    assert order.changed({"limit": 50}).file.limits == f"--set limit=50, in place of: {order.file.limits}"


def test_a_setting_that_makes_two_arms_the_same_is_an_error(write: WRITE) -> None:
    with pytest.raises(UserError, match=r"--set margin=0\.2: two arms would be the same"):
        read_study(str(write(STUDY))).changed({"margin": 0.2})


def test_the_page_of_the_papers_names_every_study() -> None:
    page = (Path(__file__).parents[2] / "docs" / "papers.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`run\.py ([\w-]+)", page)) == set(study_names()) - {"sample"}
