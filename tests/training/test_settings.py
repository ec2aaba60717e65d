"""Guards: settings come from defaults, a preset, a TOML file and flags, in this order; a mistake names its place.

python -m pytest --import-mode=importlib tests/training/test_settings.py
"""

from pathlib import Path

import pytest

from minbert import UserError
from minbert.training.settings import PLACES, Parsed, flags_of, parse
from tasks.contrastive.settings import ContrastiveSettings
from tasks.settings import PRESETS, MultitaskSettings


def multitask(*words: str) -> Parsed[MultitaskSettings]:
    return parse(MultitaskSettings, PRESETS, words, program="p", about="a", default="default")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(
        'preset = "paper"\nlr = 3e-5\n[training]\nepochs = 4\nbatch-size = 8\n[synonyms]\nsynonyms = 3\n'
        "[run]\nresume = true\n"
    )
    return path


def test_flags_override_the_file_which_overrides_the_preset_which_overrides_defaults(config: Path) -> None:
    parsed = multitask("--config", str(config), "--epochs", "2", "--no-resume")
    training = parsed.settings.training
    assert (training.epochs, training.batch_size, training.lr) == (2, 8, 3e-5)
    assert (parsed.preset, parsed.settings.model.hidden_dropout_prob) == ("paper", 0.5)
    assert parsed.settings.synonyms.synonyms == "3" and not parsed.settings.run.resume
    given = {"lr": 3e-5, "epochs": 2, "batch_size": 8, "synonyms": "3", "resume": False}
    assert parsed.overrides == given
    assert multitask("--config", str(config), "--preset", "default").settings.model.hidden_dropout_prob == 0.3


MISTAKES = [
    ("[training]\nlr = 'fast'", "training.lr"),
    ("lr = 'fast'", "lr"),
    ("[training]\nlr = true", "training.lr"),
    ("[training]\nepochs = 3.5", "training.epochs"),
    ("epochs = true", "epochs"),
    ("[training]\nclip = -1", "training.clip"),
    ("[trainin]\nlr = 1", "[trainin]"),
    ("[training]\nlearning = 1", "training.learning"),
    ("[data]\nlr = 1", "data.lr"),
    ("seed = [1]", "seed"),
    ("lr = 1\n[training]\nlr = 1", "training.lr"),
    ("lr = ", "not a TOML file"),
    ("[model]\npairs = 'triple'", "model.pairs"),
    ("data = 3", "data"),
    ("preset = 'none such'", "preset"),
]


@pytest.mark.parametrize(("text", "key"), MISTAKES)
def test_a_mistake_in_a_file_names_the_file_and_the_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        multitask("--config", str(path))
    assert str(caught.value).startswith(f"{path}: {key}: ") and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--config .*No such file"):
        multitask("--config", str(tmp_path / "none.toml"))


def test_a_flag_may_be_written_with_its_records_name() -> None:
    plain = multitask("--lr", "1", "--pairs", "bi", "--no-synonyms-grow", "--encoder", "x").settings
    words = ("--training.lr=1", "--model.pairs", "BI", "--synonyms.no-synonyms_grow", "--encoder.encoder", "x")
    assert multitask(*words).settings == plain
    with pytest.raises(UserError, match=r"--data\.lr: no such flag"):
        multitask("--data.lr", "1")


@pytest.mark.parametrize("kind", [MultitaskSettings, ContrastiveSettings])
def test_a_flags_name_is_in_one_record_and_the_identity_is_all_but_places(kind: type) -> None:
    names = [name for field in kind.model_fields.values() for name in field.annotation.model_fields]
    assert len(names) == len(set(names))
    settings, flags = kind.of(seed=3, run_dir="x"), flags_of(kind)
    assert settings.identity() == {n: v for n, v in settings.flat().items() if flags[n][0] not in PLACES}
    assert kind.of(**settings.flat()) == settings and settings.changed(run_dir="y").run.run_dir == "y"


def test_the_last_layers_have_their_own_learning_rate_unless_it_is_given() -> None:
    for words, rate in (([], 1e-5), (["--option", "pretrain"], 1e-3), (["--option", "pretrain", "--lr", "1"], 1.0)):
        assert multitask(*words).settings.training.lr == rate
