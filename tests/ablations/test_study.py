"""Guards: every study's settings are taken by the scripts, and a mistake is named with its file and key.

python -m pytest --import-mode=importlib tests/ablations/test_study.py
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from ablations.cells import cells_of
from ablations.study import known_studies, read_study
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
SEARCH = """\
[search]
arm = "wide"
trials = 3
[search.settings]
"""


@pytest.fixture
def write(tmp_path: Path) -> WRITE:
    def written(text: str) -> Path:
        path = tmp_path / "margins.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


@pytest.mark.parametrize("name", known_studies())
def test_a_study_of_ours_is_sound(name: str) -> None:
    study = read_study(name)
    cells = cells_of(study, study.file.seeds, "data")
    assert len({cell.folder for cell in cells}) == len(cells)
    for cell in cells:
        if not cell.arm.measured:
            assert cell.arm.parsed(cell.words()).settings.run.run_dir == str(cell.folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("margin = 0.3", "margn = 0.3", "arms.wide.margn: no such setting; did you mean 'margin'"),
        ("margin = 0.3", "margin = -1", "arms.wide: --margin: input should be"),
        ("margin = 0.3", 'script = "pretrain"', "arms.wide.script: 'pretrain' is not one of pretrain_cbcl"),
        ("[settings.pretrain_cbcl]", "[settings.pretrain]", "settings.pretrain.[key]: input should be 'pretrain_cbcl'"),
        ("margin = 0.3", "seed = 3", "arms.wide.seed: is given by the runner; see seeds"),
        ('baseline = "narrow"', 'baseline = "narow"', "baseline: no arm narow; did you mean 'narrow'"),
        ('"sts_dev_spearman"', '"dev_norm"', "scores: no arm has a score dev_norm"),
        ("question", "querstion", "querstion: no such key; did you mean 'question'"),
        ("margin = 0.3", 'margin = 0.3\nfrom = "narrow"\n[arms.x]\nfrom = "y"\n[arms.y]\nfrom = "x"', "a cycle"),
        ("margin = 0.3", 'margin = 0.3\nfrom = "wise"', "arms.wide.from: no arm wise is trained"),
        ("margin = 0.3", "margin = 0.3" + CHAIN, "arms.fine: has none of the scores"),
        (STUDY, f'x = "order"\n{STUDY}order = "anti"', "x: order is not a number in every arm: 'curriculum'"),
        ("margin = 0.3", 'margin = 0.3\nmeasured = "minilm"', "only measured has no settings"),
        ("[arms.wide]", '[arms."wi/de"]', "an arm's name"),
        ("[paper]", "[paper", "not a TOML file"),
        ("[paper]", '[suites]\nmine = "stsuite"\n[paper]', "suites.mine: string should match pattern"),
        ("[paper]", SEARCH + "margn = [0.1]\n[paper]", "margn: no such setting; did you mean 'margin'"),
        ("[paper]", SEARCH + "margin = []\n[paper]", "search.settings.margin"),
        ("[paper]", SEARCH + "margin = { low = 0.3, high = 0.1 }\n[paper]", "low 0.3 is not below high 0.1"),
        ("[paper]", SEARCH + "power = { low = 0, high = 1, log = true }\n[paper]", "begins above 0"),
        ("[paper]", SEARCH + "order = { low = 1, high = 2 }\n[paper]", "search.settings.order: --order"),
        ("[paper]", SEARCH + "epochs = { low = -1, high = 2 }\n[paper]", "search.settings.epochs: --epochs"),
        ("[paper]", SEARCH + "seed = [1, 2]\n[paper]", "seed: no such setting"),
        ("[paper]", SEARCH.replace("wide", "wise") + "margin = [0.1]\n[paper]", "search.arm: no arm wise is trained"),
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


def test_limits_of_the_command_are_in_the_place_of_the_studys(write: WRITE) -> None:
    study = read_study(str(write(STUDY)))
    assert study.with_settings("minilm").file.limits == "" and study.with_settings(limit=None).file.limits == ""
    assert study.with_settings(limit=5000, max_steps=2).file.limits == "--limit 5,000, --max-steps 2"
    known = read_study("order")
    assert known.with_settings(limit=50).file.limits == f"--limit 50, in place of: {known.file.limits}"


def test_a_grid_is_every_combination(write: WRITE) -> None:
    grid = '[axes.first]\nnone = "none"\nmixed = "shuffle"\n[axes.second]\ncut = "token-cutoff:0.1"\nnone = "none"\n'
    settings = 'preset = "consert"\ntexts = "sts-train"\n'
    head = STUDY[: STUDY.index("preset")].replace('"narrow"', '"none+none"')
    study = read_study(str(write(head + settings + grid + '[grid]\nviews = "{first},{second}"\n')))
    views = {name: arm.settings["views"] for name, arm in study.arms.items()}
    assert views == {
        "none+cut": "none,token-cutoff:0.1",
        "none+none": "none,none",
        "mixed+cut": "shuffle,token-cutoff:0.1",
        "mixed+none": "shuffle,none",
    }
