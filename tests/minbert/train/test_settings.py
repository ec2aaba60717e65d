"""Guards: settings come from defaults, a preset, a TOML file and flags, in this order; a mistake names its place.

python -m pytest --import-mode=importlib tests/minbert/train/test_settings.py
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from minbert import UserError
from minbert.train.settings import (
    EncoderSettings,
    FileSettings,
    Parsed,
    RunSettings,
    Settings,
    TrainingSettings,
    flag,
    parse,
    read_presets,
)


@dataclass(frozen=True)
class GardenSettings:
    """A group with an older name for a flag."""

    tallest_tree: float = flag(2.0, "in metres", aliases=["--height"])


@dataclass(frozen=True)
class CommandSettings(Settings):
    """All settings of a command."""

    encoder: EncoderSettings
    garden: GardenSettings
    training: TrainingSettings
    files: FileSettings
    run: RunSettings


PRESETS = """
[plain]
about = "the default"

[slow]
about = "small steps"
lr = 1e-6
epochs = 3

[slower]
about = "smaller steps"
base = "slow"
lr = 1e-7

[other]
about = "of another command"
command = "-m other"
lr = 1.0
"""


@pytest.fixture
def presets(tmp_path: Path) -> Path:
    path = tmp_path / "presets.toml"
    path.write_text(PRESETS)
    return path


def parse_words(presets: Path, *words: str | Path) -> Parsed[CommandSettings]:
    presets_read = read_presets(presets, "command.py")
    arguments = [str(word) for word in words]
    return parse(CommandSettings, presets_read, arguments, program="command.py", default="plain")


def test_flags_override_file_and_preset(presets: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('preset = "slow"\nepochs = 4\nbatch-size = 8\nresume = true\n')
    parsed = parse_words(presets, "--config", config, "--epochs", "2", "--resume", "false")
    training = parsed.settings.training
    assert (training.epochs, training.batch_size, training.lr, training.clip) == (2, 8, 1e-6, 1.0)
    assert parsed.preset == "slow" and not parsed.settings.run.resume
    assert parsed.overrides == {"epochs": 2, "batch_size": 8, "resume": False}
    assert parsed.command == f"python command.py --config {config} --epochs 2 --resume false"
    slower = parse_words(presets, "--preset", "slower").settings.training
    assert (slower.epochs, slower.lr) == (3, 1e-7), "what a preset does not set is its base's"
    assert parse_words(presets, "--config", config, "--preset", "slower").settings.training.lr == 1e-7
    config.write_text('data = ["a", "b"]\n')
    assert parse_words(presets, "--config", config).settings.files.data == "a,b"
    config.write_text("\ufeffpreset = 3\n", encoding="utf-8")
    with pytest.raises(UserError, match="--preset: '3' is not one of"):
        parse_words(presets, "--config", config)


def test_both_spellings_and_aliases_work(presets: Path) -> None:
    for words in (["--batch-size", "8"], ["--batch_size", "8"], ["--batch-size=8"], ["--batch_size=8"]):
        parsed = parse_words(presets, *words)
        assert parsed.settings.training.batch_size == 8 and parsed.overrides == {"batch_size": 8}, words
    for name in ("--tallest-tree", "--tallest_tree", "--height"):
        parsed = parse_words(presets, name, "3")
        assert parsed.settings.garden.tallest_tree == 3 and parsed.overrides == {"tallest_tree": 3.0}, name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--epoch 3", "--epoch: no such flag; did you mean '--epochs'"),  # no abbreviations
        ("--learning_rate=1e-5", "--learning_rate=1e-5: no such flag; did you mean '--lr'"),
        ("--data spring autumn", "autumn: belongs to no flag; a list has commas and no spaces"),
        ("--lr fast", "--lr.*fast"),
        ("--epochs 0", "--epochs 0: must be from 1 to 10000"),
        ("--patience -1", "--patience -1: must be at least 0"),
        ("--lr inf", "--lr inf: must be finite"),
        ("--patience 2 --average 0.5", "--average and --patience"),
        ("--precision fp8", "--precision.*'fp8'"),
        ("--preset slo", "--preset: 'slo' is not one of plain, slow, slower; did you mean 'slow'"),
        ("--preset other", "--preset other: belongs to another command: python -m other --preset other"),
    ],
)
def test_mistake_names_the_flag(presets: Path, words: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse_words(presets, *words.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr = 'fast'", "--lr"),
        ("config = 'b.toml'", "a file of settings cannot name another"),
        ("[training]\nlr = 1", "--training"),
        ("lr = ", "not a TOML file"),
    ],
)
def test_mistake_names_the_file(presets: Path, tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "run.toml"
    config.write_text(text)
    with pytest.raises(UserError, match=f"^{config}: .*{message}") as caught:
        parse_words(presets, "--config", config)
    assert "\n" not in str(caught.value)


def test_paths_do_not_identify_a_run() -> None:
    usual = CommandSettings.of()
    same = usual.changed(run_dir="a", data="x", save_every=3, log_every=7, resume=True)
    assert same.identity() == usual.identity()
    for changes in ({"seed": 1}, {"lr": 1.0}, {"weights": "x"}, {"tallest_tree": 9.0}):
        assert usual.changed(**changes).identity() != usual.identity(), changes


def test_presets_are_listed(presets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_words(presets, "--list-presets")
    assert "plain (default): the default\nslow: small steps\n    --lr 1e-06\n" in capsys.readouterr().out
