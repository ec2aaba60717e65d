"""Guards: how a command ends: its exit code and one sentence; and the names and number formats that a start chooses.

python -m pytest --import-mode=importlib tests/minbert/train/test_cli.py
"""

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertModel

from minbert.errors import UserError, one_of
from minbert.train import cli, start
from minbert.train.settings import EncoderSettings


def test_names_ignore_case_or_suggest() -> None:
    names = ("STS-B", "SICK", "en", "EN")
    words = ["STS-B", "sts-b", " Sick", "EN", "en"]
    assert [one_of(word, names, "--sets") for word in words] == ["STS-B", "STS-B", "SICK", "EN", "en"]
    with pytest.raises(UserError, match=r"^--sets: 'sikc' is not one of STS-B, SICK, en, EN; did you mean 'SICK'"):
        one_of("sikc", names, "--sets")


@pytest.mark.parametrize(("fast", "precision"), [(False, "fp16"), (True, "bf16")])
def test_gpu_takes_bf16_if_fast(monkeypatch: pytest.MonkeyPatch, fast: bool, precision: str) -> None:
    monkeypatch.setattr("minbert.precision.supports_bf16", lambda device: fast)
    assert start.choose_precision("auto", torch.device("cuda")) == precision


@pytest.mark.parametrize("crashes", [True, False])
def test_amx_crash_is_noted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], crashes: bool) -> None:
    monkeypatch.setattr("minbert.precision.supports_bf16", lambda device: False)
    monkeypatch.setattr(start, "amx_crashes", lambda: crashes)
    assert start.choose_precision("auto", torch.device("cpu")) == "fp32"
    assert ("by AMX crash" in capsys.readouterr().err) == crashes


def test_pooler_that_weights_lack_is_refused(tiny: Path, tmp_path: Path) -> None:
    BertModel.from_pretrained(tiny, add_pooling_layer=False).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path)
    settings = EncoderSettings(weights=str(tmp_path), max_length=0)
    device = torch.device("cpu")
    with pytest.raises(UserError, match=f"^--weights {tmp_path}: the weights have no pooling layer"):
        start.load_initial_encoder(settings, device)
    assert start.load_initial_encoder(replace(settings, pooler="mean"), device).pooler == "mean"


def test_failed_report_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    """The run, which is saved, does not fail."""
    cli.run_module("no.such.module")
    assert capsys.readouterr().err.startswith("note: python -m no.such.module failed: ")


def test_other_threads_keep_their_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def train() -> signal.Handlers | Any:
        with cli.catch_signals():
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train).result() == before
    assert train() != before


def test_output_of_any_encoding() -> None:
    code = "from minbert.train import cli; cli.run(lambda: cli.say('1\\u20132'))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\\u20132\n"), done.stderr


def test_full_disk_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SystemExit) as stop:
        cli.run(main)
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: a file or the output: No space left on device\n"


TORCHRUN = f"{sys.executable} -m torch.distributed.run"


@pytest.mark.parametrize(
    ("typed", "processes", "command"),
    [
        (".venv/bin/python pretrain_cbcl.py --lr 1", "1", ".venv/bin/python pretrain_cbcl.py --lr 1 --resume"),
        ("/v/python -u pretrain_cbcl.py", "2", f"{TORCHRUN} --nproc-per-node 2 pretrain_cbcl.py --resume"),
        ("/v/python -u -m tasks.x", "2", f"{TORCHRUN} --nproc-per-node 2 -m tasks.x --resume"),
        ("/v/python /v/minbert-train --lr 1", "1", "minbert-train --lr 1 --resume"),
        ("/v/python /v/minbert-train", "2", f"{TORCHRUN} --nproc-per-node 2 --no-python minbert-train --resume"),
    ],
)
def test_resuming_command_is_as_typed(
    monkeypatch: pytest.MonkeyPatch, typed: str, processes: str, command: str
) -> None:
    words = typed.split()
    monkeypatch.setattr(sys, "orig_argv", words)
    monkeypatch.setattr(sys, "argv", words[1:])
    monkeypatch.setenv("WORLD_SIZE", processes)
    for name in ("DATA_DIR", "NLTK_DATA", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    # set to nothing it hides the GPUs
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cli.resume_command() == f"CUDA_VISIBLE_DEVICES='' {command}"


PRINTER = """
from minbert.train import cli
def main():
    for _ in range(99_999):
        print("a")
cli.run(main)
"""


def test_closed_pipe_ends_quietly() -> None:
    """A reader that leaves early, as `head` does, is no error; `test_short_run_is_whole` has that of `say`."""
    with subprocess.Popen(
        [sys.executable, "-c", PRINTER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "a\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
