"""Guards: flags, presets and their checks: one sentence for every mistake; --help imports no torch.

python -m pytest --import-mode=importlib tests/training/test_cli.py
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from minbert.errors import UserError, one_of
from minbert.training import cli, start
from minbert.training.settings import Parsed, TrainingSettings, flags_of, parse
from tasks.contrastive import presets
from tasks.contrastive import settings as contrastive
from tasks.registry import build
from tasks.settings import PRESETS, MultitaskSettings

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ["multitask_train.py", "pretrain_cbcl.py"]
TABLES = {MultitaskSettings: PRESETS, contrastive.ContrastiveSettings: presets.PRESETS}


def multitask(*words: str) -> Parsed[MultitaskSettings]:
    return parse(MultitaskSettings, PRESETS, words, program="p", about="a", default="default")


def pretrain(*words: str) -> Parsed[contrastive.ContrastiveSettings]:
    kind = contrastive.ContrastiveSettings
    return parse(kind, presets.PRESETS, words, program="p", about="a", default="cbcl")


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


def test_a_flag_overrides_the_preset_which_overrides_the_default() -> None:
    assert multitask().settings.model.hidden_dropout_prob == 0.3
    assert multitask("--preset", "paper").settings.model.hidden_dropout_prob == 0.5
    parsed = multitask("--hidden_dropout_prob", "0.2", "--preset", "paper", "--run-dir", "x")
    assert parsed.settings.model.hidden_dropout_prob == 0.2
    assert parsed.settings.model.pairs == "paper"
    assert parsed.preset == "paper"
    assert parsed.overrides == {"hidden_dropout_prob": 0.2, "run_dir": "x"}
    assert parsed.command == "p --hidden_dropout_prob 0.2 --preset paper --run-dir x"


def test_every_preset_is_valid_and_the_papers_hold_its_numbers() -> None:
    """CBCL, sections 4 and 5: 10 epochs, batch 32, lr 1e-5, dropout 0.5; CBCL lr 2e-5, tau .05, root, m .2."""
    for kind, table in TABLES.items():
        for _, values in table.values():
            assert values.items() <= kind.of(**values).flat().items()
    paper = multitask("--preset", "paper").settings
    found = (paper.model.pairs, paper.model.hidden_dropout_prob, *rate_epochs_batch(paper.training))
    assert found == ("paper", 0.5, 1e-5, 10, 32)
    cbcl = pretrain("--preset", "cbcl").settings
    found = (cbcl.loss.temperature, cbcl.curriculum.power, cbcl.curriculum.margin)
    assert (*found, *rate_epochs_batch(cbcl.training)) == (0.05, 0.5, 0.2, 2e-5, 10, 32)


def rate_epochs_batch(training: TrainingSettings) -> tuple[float, int, int]:
    return training.lr, training.epochs, training.batch_size


BAD = [
    (multitask, "--no-such", "--no-such"),
    (multitask, "--epoch 3", "--epoch"),  # no abbreviations: a later flag could change what they mean
    (multitask, "--epochs 3.0", "--epochs 3.0"),
    (multitask, "--epochs 0", "--epochs 0"),
    (multitask, "--lr", "--lr"),
    (multitask, "--lr fast", "--lr fast"),
    (multitask, "--lr NaN", "--lr NaN"),
    (multitask, "--lr -1", "--lr -1"),
    (multitask, "--power inf", "--power inf"),
    (multitask, "--hidden_dropout_prob 1", "--hidden-dropout-prob"),
    (multitask, "--resume=maybe", "--resume"),
    (multitask, "--pairs triple", "--pairs triple cross"),
    (multitask, "--sampling squared", "--sampling squared round-robin"),
    (multitask, "--preset x", "--preset x paper"),
    (multitask, "--accumulate 33", "--accumulate --batch-size"),
    (multitask, "--tasks sst,sst", "--tasks sst"),
    (multitask, "--tasks ,", "--tasks"),
    (multitask, "--patience 2 --sampling sequential", "--patience --sampling"),
    (multitask, "--encoder x --weights y", "--encoder --weights"),
    (multitask, "--option finetune --fine-tune-mode full-model", "--option --fine-tune-mode"),
    (multitask, "--encoder runs/nowhere/encoder", "--encoder runs/nowhere/encoder"),
    (multitask, "--sst-dev-out a.csv --sts-dev-out a.csv", "_out a.csv"),
    (pretrain, "--batch_size 1", "--batch-size 1"),
    (pretrain, "--temperature 0", "--temperature 0"),
    (pretrain, "--pooler sum", "--pooler sum mean"),
    (pretrain, "--hidden_dropout_prob 0.1", "--hidden"),
    (pretrain, "--encoder x", "--encoder"),
]


@pytest.mark.parametrize(("parse", "arguments", "words"), BAD)
def test_a_mistake_is_one_sentence_that_names_the_flag(parse: Any, arguments: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed = parse(*arguments.split())
        parsed.settings.ignored(parsed.overrides)
        build(parsed.settings.data.tasks, "cross", "--tasks")
        parsed.settings.encoder.source  # noqa: B018
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words.split()), caught.value


def test_an_unknown_name_is_taken_whatever_its_case_or_the_nearest_is_suggested() -> None:
    known = ("STS-B", "SICK", "en", "EN")
    words = ["STS-B", "sts-b", " Sick", "EN", "en"]
    assert [one_of(word, known, "--sets") for word in words] == ["STS-B", "STS-B", "SICK", "EN", "en"]
    with pytest.raises(UserError, match=r"^--sets: 'sikc' is not one of STS-B, SICK, en, EN; did you mean 'SICK'"):
        one_of("sikc", known, "--sets")


EFFECTS = [
    ("--tasks sst --para-train x", "--para_train has no effect: --tasks sst does not hold its task"),
    ("--tasks sst,sts --sts-dev x", ""),
    ("--tasks sts --sampling hybrid", "--sampling hybrid has no effect on a single task"),
    ("--tasks sst --pairs bi", "--pairs bi has no effect: no task of --tasks sst has pairs"),
    ("--tasks quora --pairs bi", ""),
    ("--power 0.3", "--power 0.3 has no effect with --sampling round-robin"),
    ("--power 1.5 --sampling proportional", ""),
    ("--no-synonyms-grow", "--no-synonyms-grow has no effect with --synonyms none"),
    ("--sst-dev-out a.csv --sst-test-out b.csv", ""),
]


@pytest.mark.parametrize(("words", "said"), EFFECTS)
def test_a_flag_without_effect_is_said(words: str, said: str) -> None:
    parsed = multitask(*words.split())
    assert parsed.settings.ignored(parsed.overrides) == ([said] if said else [])


def test_only_flags_that_change_no_result_stay_out_of_a_runs_identity() -> None:
    places = "--run-dir a --data x --save-every 3 --log-every 7 --keep-checkpoints --resume"
    one = multitask(*places.split()).settings.identity()
    assert one == multitask().settings.identity()
    for words in ["--seed 1", "--limit 9", "--max-steps 9", "--lr 1", "--clip 0", "--power 0.1", "--tasks sst"]:
        assert multitask(*words.split()).settings.identity() != one


EXITS: list[tuple[BaseException | None, int, str]] = [
    (UserError("--x: wrong"), 2, "error: --x: wrong\n"),
    (FileNotFoundError(2, "No such file or directory", "a/b"), 2, "error: a/b: No such file or directory\n"),
    (KeyboardInterrupt(), 130, "stopped\n"),
    (None, 0, ""),
]


@pytest.mark.parametrize(("error", "code", "text"), EXITS)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException | None, code: int, text: str) -> None:
    def main() -> None:
        if error:
            raise error

    with pytest.raises(SystemExit) as stop:
        cli.run(main)
    assert (stop.value.code, capsys.readouterr().err) == (code, text)


def test_our_own_mistakes_keep_their_traceback() -> None:
    def main() -> None:
        raise ValueError("a bug, not a user's mistake")

    with pytest.raises(ValueError, match="a bug"):
        cli.run(main)


QUIET = """
import runpy, sys
for script in {scripts!r}:
    sys.argv = [script, {flag!r}]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        heavy = [name for name in ("torch", "transformers", "numpy", "sklearn", "tokenizers") if name in sys.modules]
        print("CODE", stop.code, *heavy)
"""


@pytest.mark.parametrize("flag", ["--help", "--list-presets"])
def test_help_and_presets_load_neither_torch_nor_numpy(flag: str) -> None:
    """Nor do they mind a reader who has left."""
    code = QUIET.format(scripts=[str(ROOT / script) for script in SCRIPTS], flag=flag)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    parts = run.stdout.split("CODE 0\n")
    assert len(parts) == 3 and not parts[2], run.stdout[-200:] + run.stderr
    assert run.stderr == ""
    for said, (kind, table) in zip(parts, TABLES.items()):
        expected = [f"--{name.replace('_', '-')}" for name in flags_of(kind)] if flag == "--help" else list(table)
        assert all(word in said for word in expected)
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, ROOT / SCRIPTS[0], flag], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, b"")


def test_a_run_folder_stands_for_its_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    for place in (tmp_path, tmp_path / "encoder", f"~/{tmp_path.name}"):
        for parsed in (
            multitask("--encoder", str(place)),
            multitask("--weights", str(place)),
            pretrain("--weights", str(place)),
        ):
            assert Path(parsed.settings.encoder.source).expanduser() == tmp_path / "encoder"
    assert multitask("--weights", "minilm").settings.encoder.source == "minilm"


def test_a_gpu_without_bf16_trains_in_fp32_and_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for fast, asked, chosen in ((False, "auto", "fp32"), (True, "auto", "bf16"), (False, "fp32", "fp32")):
        monkeypatch.setattr("minbert.precision.supports_bf16", lambda device, fast=fast: fast)
        assert start.number_format(asked, torch.device("cuda")) == chosen
        assert ("note: --precision auto" in capsys.readouterr().err) == (asked == "auto" and not fast)
    start.number_format("auto", torch.device("cpu"))
    assert not capsys.readouterr().err
