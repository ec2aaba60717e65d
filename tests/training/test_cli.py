"""Guards: flags, presets and their checks: one sentence for every mistake; --help is fast and imports no torch.

python -m pytest --import-mode=importlib tests/training/test_cli.py
"""

import io
import os
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from minbert import UserError
from minbert.training import cli
from tasks.contrastive import presets
from tasks.contrastive import settings as contrastive
from tasks.settings import PRESETS, MultitaskSettings

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ["multitask_train.py", "pretrain_cbcl.py"]
TABLES = {MultitaskSettings: PRESETS, contrastive.ContrastiveSettings: presets.PRESETS}


def multitask(*words: str) -> cli.Parsed[MultitaskSettings]:
    return cli.parse(MultitaskSettings, PRESETS, words, program="p", about="a", default="default")


def pretrain(*words: str) -> cli.Parsed[contrastive.ContrastiveSettings]:
    kind = contrastive.ContrastiveSettings
    return cli.parse(kind, presets.PRESETS, words, program="p", about="a", default="cbcl")


def test_dashes_and_underscores_are_alike_and_values_are_kept() -> None:
    for flag in ("--sst_dev_out", "--sst-dev-out"):
        assert multitask(flag, "my_file_a-b").settings.sst_dev_out == "my_file_a-b"
        assert multitask(f"{flag}=my_file_a-b").settings.sst_dev_out == "my_file_a-b"
    assert multitask("--batch_size=8").settings == multitask("--batch-size", "8").settings


COURSE = {
    "--sst_train": "a", "--sst_dev": "a", "--sst_test": "a", "--para_train": "a", "--para_dev": "a", "--para_test": "a",
    "--sts_train": "a", "--sts_dev": "a", "--sts_test": "a", "--sst_dev_out": "a", "--sst_test_out": "a",
    "--para_dev_out": "a", "--para_test_out": "a", "--sts_dev_out": "a", "--sts_test_out": "a", "--seed": 3,
    "--epochs": 4, "--batch_size": 5, "--hidden_dropout_prob": 0.25, "--lr": 1e-4, "--use_gpu": None,
    "--fine-tune-mode": "last-linear-layer",
}  # fmt: skip


def test_the_flags_students_know_are_there() -> None:
    words = [str(word) for pair in COURSE.items() for word in pair if word is not None]
    given = multitask(*words).settings
    for flag, value in COURSE.items():
        assert getattr(given, flag.strip("-").replace("-", "_")) == (True if value is None else value)
    usual = multitask().settings
    found = (usual.seed, usual.epochs, usual.weights, usual.run_dir)
    assert found == (11711, 10, "bert-base-uncased", "runs/multitask")


@pytest.mark.parametrize(("option", "mode"), [("pretrain", "last-linear-layer"), ("finetune", "full-model")])
def test_the_older_option_flag_means_the_newer_one(option: str, mode: str) -> None:
    assert multitask("--option", option).settings.fine_tune_mode == mode
    assert multitask("--option", option).settings.rate == multitask("--fine-tune-mode", mode).settings.rate


def test_a_flag_overrides_the_preset_which_overrides_the_default() -> None:
    assert multitask().settings.hidden_dropout_prob == 0.3
    assert multitask("--preset", "paper").settings.hidden_dropout_prob == 0.5
    parsed = multitask("--hidden_dropout_prob", "0.2", "--preset", "paper", "--run-dir", "x")
    assert parsed.settings.hidden_dropout_prob == 0.2
    assert parsed.settings.pairs == "paper"
    assert parsed.preset == "paper"
    assert parsed.overrides == {"hidden_dropout_prob": 0.2, "run_dir": "x"}
    assert parsed.command == "p --hidden_dropout_prob 0.2 --preset paper --run-dir x"


def test_the_paper_presets_hold_the_papers_numbers() -> None:
    """CBCL, sections 4 and 5: 10 epochs, batch 32, lr 1e-5, dropout 0.5; CBCL lr 2e-5, tau .05, root, m .2."""
    paper = multitask("--preset", "paper").settings
    found = (paper.pairs, paper.hidden_dropout_prob, paper.rate, paper.epochs, paper.batch_size)
    assert found == ("paper", 0.5, 1e-5, 10, 32)
    cbcl = pretrain("--preset", "cbcl").settings
    assert (cbcl.temperature, cbcl.power, cbcl.margin, cbcl.epochs, cbcl.batch_size, cbcl.rate) == (
        0.05, 0.5, 0.2, 10, 32, 2e-5,
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "table"), TABLES.items())
def test_every_preset_holds_valid_settings_of_the_right_type(kind: type, table: dict) -> None:
    options = {item.name: item for item in fields(kind)}
    for name, (text, values) in table.items():
        assert text, name
        kind(**values)
        for key, value in values.items():
            assert cli._checked(options[key], value) == value
            default = options[key].default
            assert isinstance(value, float if default is None else type(default)), (name, key)


@pytest.mark.parametrize("kind", TABLES)
def test_help_names_the_default_of_every_switch(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parse(kind, TABLES[kind], ["--help"], program="p", about="a", default="default")
    said = " ".join(capsys.readouterr().out.split())
    for item in fields(kind):
        if isinstance(item.default, bool):
            assert f"{item.metadata['help']} (default: {'on' if item.default else 'off'})" in said, item.name


@pytest.mark.parametrize("kind", TABLES)
def test_what_list_presets_prints_of_a_preset_can_be_typed(kind: type) -> None:
    table = TABLES[kind]
    plain = {"plain": ("nothing", {})}
    for name, preset in table.items():
        title, *lines = cli._list({name: preset}, "").splitlines()
        assert title == f"{name}: {preset[0]}"
        asked = {key: "x" for key, value in preset[1].items() if value == ""}
        assert [line.split(" ", 5)[4:] for line in lines if "(to be given)" in line] == [
            [f"--{key}", "(to be given)"] for key in asked
        ]
        typed = [word for line in lines for word in shlex.split(line.replace("(to be given)", "x"))]
        parsed = cli.parse(kind, plain, typed, program="p", about="a", default="plain")
        assert parsed.settings == kind(**table[name][1] | asked), name


BAD: list[tuple[Any, list[str], list[str]]] = [
    (multitask, ["--no-such"], ["--no-such"]),
    (multitask, ["--epoch", "3"], ["--epoch"]),  # no abbreviations: a later flag could change what they mean
    (multitask, ["--epochs", "3.0"], ["--epochs", "3.0", "whole number"]),
    (multitask, ["--lr", "fast"], ["--lr", "fast", "a number"]),
    (multitask, ["--lr", "NaN"], ["--lr", "nan", "finite"]),
    (multitask, ["--power", "inf"], ["--power", "inf"]),
    (multitask, ["--power", "-0.5"], ["--power", "-0.5", "less than 0"]),
    (multitask, ["--epochs", "0"], ["--epochs", "0"]),
    (multitask, ["--warmup", "-0.1"], ["--warmup"]),
    (multitask, ["--resume=maybe"], ["--resume"]),
    (multitask, ["--pairs", "triple"], ["--pairs", "triple", "cross, paper, bi"]),
    (multitask, ["--preset", "x"], ["--preset", "x"]),
    (multitask, ["--accumulate", "33"], ["--accumulate 33", "--batch-size 32"]),
    (pretrain, ["--batch_size", "1"], ["--batch-size 1"]),
    (pretrain, ["--temperature", "-1"], ["--temperature", "-1"]),
    (pretrain, ["--hidden_dropout_prob", "0.1"], ["--hidden"]),
]


@pytest.mark.parametrize(("parse", "arguments", "words"), BAD)
def test_a_mistake_is_one_sentence_that_names_the_flag(parse: Any, arguments: list[str], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse(*arguments)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_flags_that_exclude_each_other_are_both_named() -> None:
    for one, other in (("--encoder", "--weights"), ("--option", "--fine-tune-mode")):
        values = {"--option": "finetune", "--fine-tune-mode": "full-model"}
        parsed = multitask(one, values.get(one, "x"), other, values.get(other, "x"))
        with pytest.raises(UserError, match=f"{one}.*{other}"):
            parsed.settings.ignored(parsed.overrides)


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
            assert Path(parsed.settings.source).expanduser() == tmp_path / "encoder"
    assert multitask("--weights", "minilm").settings.source == "minilm"


@pytest.mark.parametrize(("given", "kept"), [
    ("sst,para", "sst,quora"), ("para", "quora"), ("sst, sts", "sst, sts"), ("sst,x", "sst,x"),
])  # fmt: skip
def test_tasks_go_by_their_words_too(given: str, kept: str) -> None:
    assert multitask("--tasks", given).settings.tasks == kept


def test_a_preset_with_weights_gives_way_to_encoder(tmp_path: Path) -> None:
    parsed = multitask("--preset", "minilm", "--encoder", str(tmp_path))
    assert parsed.settings.ignored(parsed.overrides) == []
    assert parsed.settings.source == str(tmp_path)


def test_only_flags_that_change_no_result_stay_out_of_a_runs_identity() -> None:
    places = ["--run-dir", "a", "--data", "x", "--save-every", "3", "--log-every", "7", "--keep-checkpoints"]
    one = cli.identity(multitask(*places, "--resume").settings)
    assert one == cli.identity(multitask().settings)
    for words in (
        ["--seed", "1"],
        ["--limit", "9"],
        ["--max-steps", "9"],
        ["--lr", "1"],
        ["--clip", "0"],
        ["--power", "0.1"],
        ["--tasks", "sst"],
    ):
        assert cli.identity(multitask(*words).settings) != one


@pytest.mark.parametrize(("error", "code", "text"), [
    (UserError("--x: wrong"), 2, "error: --x: wrong\n"),
    (FileNotFoundError(2, "No such file or directory", "a/b"), 2, "error: a/b: No such file or directory\n"),
    (PermissionError(13, "Permission denied", "a/b"), 2, "error: a/b: Permission denied\n"),
    (KeyboardInterrupt(), 130, "stopped\n"),
    (None, 0, ""),
])  # fmt: skip
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException | None, code: int, text: str) -> None:
    def main() -> None:
        if error:
            raise error

    with pytest.raises(SystemExit) as stop:
        cli.run(main)
    assert stop.value.code == code
    assert capsys.readouterr().err == text


def test_our_own_mistakes_keep_their_traceback() -> None:
    def main() -> None:
        raise ValueError("a bug, not a user's mistake")

    with pytest.raises(ValueError, match="a bug"):
        cli.run(main)


QUIET = """
import runpy, sys
sys.argv = [{script!r}, {flag!r}]
try:
    runpy.run_path({script!r}, run_name="__main__")
except SystemExit as stop:
    heavy = [name for name in ("torch", "transformers", "numpy", "sklearn", "tokenizers") if name in sys.modules]
    print("CODE", stop.code, *heavy)
"""


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("flag", ["--help", "--list-presets"])
def test_help_and_presets_load_neither_torch_nor_numpy(script: str, flag: str) -> None:
    code = QUIET.format(script=str(ROOT / script), flag=flag)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=60)
    assert run.stdout.splitlines()[-1] == "CODE 0", run.stdout[-200:] + run.stderr
    assert run.stderr == ""
    kind, table = list(TABLES.items())[SCRIPTS.index(script)]
    expected = [f"--{item.name.replace('_', '-')}" for item in fields(kind)] if flag == "--help" else list(table)
    for word in expected:
        assert word in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 120 or flag == "--list-presets"


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("flag", ["--help", "--list-presets"])
def test_a_reader_of_help_may_leave(script: str, flag: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, ROOT / script, flag], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, b"")


def test_the_command_to_resume_holds_what_the_process_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA_DIR", "NLTK_DATA", "OMP_NUM_THREADS", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["multitask_train.py", "--data", "my sets"])
    monkeypatch.setattr(sys, "executable", str(Path.cwd() / ".venv" / "bin" / "python9"))
    assert cli.to_resume() == ".venv/bin/python9 multitask_train.py --data 'my sets' --resume"
    monkeypatch.setenv("DATA_DIR", "a b")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["multitask_train.py", "--resume"])
    assert cli.to_resume() == "DATA_DIR='a b' torchrun --nproc-per-node 2 multitask_train.py --resume"


def test_a_line_is_out_as_soon_as_it_is_said() -> None:
    sink = io.BytesIO()
    stream = io.TextIOWrapper(io.BufferedWriter(sink))  # type: ignore[arg-type]
    cli.say("half way", stream)
    assert sink.getvalue() == b"half way\n"


def test_an_encoder_folder_that_is_not_there_is_named_by_its_own_flag() -> None:
    parsed = multitask("--encoder", "runs/nowhere/encoder")
    with pytest.raises(UserError, match="--encoder runs/nowhere/encoder: no such folder"):
        parsed.settings.source  # noqa: B018


def test_patience_could_end_a_sequential_run_before_its_later_tasks() -> None:
    with pytest.raises(UserError, match="--patience and --sampling sequential exclude each other"):
        multitask("--patience", "2", "--sampling", "sequential")


@pytest.mark.parametrize(("words", "said"), [
    (["--tasks", "sst", "--para-train", "x"], ["--para_train has no effect: --tasks sst lacks its task"]),
    (["--tasks", "sst,sts", "--sts-dev", "x"], []),
    (["--tasks", "sts", "--sampling", "hybrid"], ["--sampling hybrid has no effect on a single task"]),
    (["--tasks", "sst", "--pairs", "bi"], ["--pairs bi has no effect: no task of --tasks sst has pairs"]),
    (["--tasks", "quora", "--pairs", "bi"], []),
    (["--power", "0.3"], ["--power 0.3 has no effect with --sampling round-robin"]),
    (["--power", "1.5", "--sampling", "proportional"], []),
    (["--power", "0.3", "--tasks", "sst", "--preset", "minilm"], ["--power 0.3 has no effect on a single task"]),
    (["--no-synonyms-grow"], ["--no-synonyms-grow has no effect with --synonyms none"]),
    (["--sst-dev-out", "a.csv", "--sst-test-out", "b.csv"], []),
    (["--lr", "0"], ["--lr 0: nothing is learnt, the weights stay as they are"]),
])  # fmt: skip
def test_a_flag_without_effect_is_said(words: list[str], said: list[str]) -> None:
    parsed = multitask(*words)
    assert parsed.settings.ignored(parsed.overrides) == said


def test_two_outputs_of_one_name_are_refused() -> None:
    parsed = multitask("--sst-dev-out", "a.csv", "--sts-dev-out", "a.csv")
    with pytest.raises(UserError, match=r"--\*_out flags name the same file, a\.csv"):
        parsed.settings.ignored(parsed.overrides)


def test_a_tilde_is_the_home_folder_in_the_data_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from minbert.training import start

    (tmp_path / "sets").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert start.data_folder("~/sets") == tmp_path / "sets"
    monkeypatch.setenv("DATA_DIR", "~/sets")
    assert start.data_folder("") == tmp_path / "sets"


@pytest.mark.parametrize(("words", "kept"), [([], {"DATA_DIR": "my sets"}), (["--data", "x"], {})])
def test_a_manifest_holds_the_variable_that_names_the_data(
    words: list[str], kept: dict[str, str], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from minbert.training import start

    monkeypatch.setenv("DATA_DIR", "my sets")
    found = start.manifest(multitask(*words), {}, tiny, precision="fp32", on=torch.device("cpu"))
    assert found["variables"] == kept


def test_a_gpu_without_bf16_trains_in_fp32_and_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from minbert.training import start

    for fast, asked, chosen in ((False, "auto", "fp32"), (True, "auto", "bf16"), (False, "fp32", "fp32")):
        monkeypatch.setattr("minbert.precision.supports_bf16", lambda device, fast=fast: fast)
        assert start.number_format(asked, torch.device("cuda")) == chosen
        assert ("note: --precision auto" in capsys.readouterr().err) == (asked == "auto" and not fast)
    start.number_format("auto", torch.device("cpu"))
    assert not capsys.readouterr().err
