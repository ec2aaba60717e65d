"""Guards: exit codes, one sentence on stderr, --help without torch, and what a start chooses and records.

python -m pytest --import-mode=importlib tests/training/test_cli.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minbert.errors import UserError, one_of
from minbert.training import cli, start
from minbert.training.run import commit
from minbert.training.settings import flags_of
from tasks.contrastive import settings as contrastive
from tasks.contrastive.settings import ContrastiveSettings
from tasks.settings import PRESETS, MultitaskSettings

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ["multitask_train.py", "pretrain_cbcl.py"]
TABLES = {MultitaskSettings: PRESETS, ContrastiveSettings: contrastive.PRESETS}


def test_an_unknown_name_is_taken_whatever_its_case_or_the_nearest_is_suggested() -> None:
    known = ("STS-B", "SICK", "en", "EN")
    words = ["STS-B", "sts-b", " Sick", "EN", "en"]
    assert [one_of(word, known, "--sets") for word in words] == ["STS-B", "STS-B", "SICK", "EN", "en"]
    with pytest.raises(UserError, match=r"^--sets: 'sikc' is not one of STS-B, SICK, en, EN; did you mean 'SICK'"):
        one_of("sikc", known, "--sets")


EXITS: list[tuple[BaseException | None, int, str]] = [
    (UserError("--x: wrong"), 2, "error: --x: wrong\n"),
    (FileNotFoundError(2, "No such file or directory", "a/b"), 2, "error: a/b: No such file or directory\n"),
    (cli.Interrupted("stopped", 2), 130, "stopped\n"),
    (None, 0, ""),
]


@pytest.mark.parametrize(("error", "code", "text"), EXITS)
def test_exit_codes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    code: int,
    text: str,
) -> None:
    monkeypatch.setattr(cli, "resumable", False)  # of another test's run

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
        heavy = sys.modules.keys() & {{"torch", "transformers", "pandas", "sklearn", "scipy"}}
        print("CODE", stop.code, *heavy)
"""


@pytest.mark.parametrize("flag", ["--help", "--help-all", "--list-presets"])
def test_help_and_presets_do_not_load_torch(flag: str) -> None:
    """Nor do they mind a reader who has left."""
    code = QUIET.format(scripts=[str(ROOT / script) for script in SCRIPTS], flag=flag)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    parts = run.stdout.split("CODE 0\n")
    assert len(parts) == 3 and not parts[2], run.stdout[-200:] + run.stderr
    assert run.stderr == ""
    for said, (kind, table) in zip(parts, TABLES.items()):
        flags = [f"--{name.replace('_', '-')} " for name in flags_of(kind.kind({}))]
        expected = {"--help": flags[:1], "--help-all": flags, "--list-presets": list(table)}[flag]
        assert all(word in said.replace(", ", " ") for word in expected)
        assert flag != "--help" or len(said.splitlines()) <= 45
    if flag == "--help":  # the defaults are those of the default preset
        assert "or of the last step (default: best)" in " ".join(parts[0].split())
        assert "or of the last step (default: last)" in " ".join(parts[1].split())
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, ROOT / SCRIPTS[0], flag], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, b"")


def test_where_bf16_is_not_to_be_had_another_number_format_is_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for fast, asked, chosen in ((False, "auto", "fp16"), (True, "auto", "bf16"), (False, "fp32", "fp32")):
        monkeypatch.setattr("minbert.precision.supports_bf16", lambda device, fast=fast: fast)
        assert start.number_format(asked, torch.device("cuda")) == chosen
    for crashes in (True, False):
        monkeypatch.setattr(start, "amx_crashes", lambda crashes=crashes: crashes)
        monkeypatch.setattr("minbert.precision.supports_bf16", lambda device: False)
        assert start.number_format("auto", torch.device("cpu")) == "fp32"
        assert ("by AMX crash" in capsys.readouterr().err) == crashes


def test_the_commit_is_that_of_the_projects_own_repository(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True).stdout

    assert commit(tmp_path) is None
    (tmp_path / "project").mkdir()
    (tmp_path / "a.py").write_text("1")
    git("init", "-q")
    git("add", "a.py")
    git("commit", "-q", "-m", "a")
    head = git("rev-parse", "HEAD").strip()
    assert commit(tmp_path) == head
    (tmp_path / "a.py").write_text("2")
    assert commit(tmp_path) == f"{head}-dirty"
    assert commit(tmp_path / "project") is None, "a project in another one's repository has no commit"


def test_a_script_restarts_itself_once_with_tcmalloc(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so.4")
    monkeypatch.setattr(os, "execv", lambda path, words: started.append([path, *words]))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "train.py", "--lr", "1"])
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    cli.under_tcmalloc()
    assert started == [[sys.executable, sys.executable, "-X", "dev", "train.py", "--lr", "1"]]
    assert os.environ["LD_PRELOAD"] == "libtcmalloc_minimal.so.4" and cli.allocator() == "tcmalloc"
    cli.under_tcmalloc()
    assert len(started) == 1
