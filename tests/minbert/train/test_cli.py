"""Guards: names of choices, exit codes, and what a start chooses and records.

python -m pytest --import-mode=importlib tests/minbert/train/test_cli.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minbert.errors import UserError, one_of
from minbert.train import cli, start


def test_an_unknown_name_is_taken_whatever_its_case_or_the_nearest_is_suggested() -> None:
    known = ("STS-B", "SICK", "en", "EN")
    words = ["STS-B", "sts-b", " Sick", "EN", "en"]
    assert [one_of(word, known, "--sets") for word in words] == ["STS-B", "STS-B", "SICK", "EN", "en"]
    with pytest.raises(UserError, match=r"^--sets: 'sikc' is not one of STS-B, SICK, en, EN; did you mean 'SICK'"):
        one_of("sikc", known, "--sets")


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


def test_a_new_run_leaves_busy_cores_alone_and_a_resumed_one_keeps_its_threads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cli, "load_at_start", (100.0, 50.0))
    for usual, cores, seconds, threads in (
        (4, 4, 1.2, 4),
        (4, 4, 1.5, 3),
        (4, 4, 2.6, 3),
        (4, 4, 9.0, 1),
        (2, 4, 2.0, 2),  # two physical cores
        (2, 4, 6.0, 1),
    ):
        monkeypatch.setattr(torch, "get_num_threads", lambda usual=usual: usual)
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: set(range(cores)))
        monkeypatch.setattr(cli, "load_of_others", lambda seconds=seconds: (102.0, 50.0 + seconds))
        start.set_threads(None)
        assert taken.pop() == threads, seconds
        assert (f"note: {threads} of {usual} threads, as other" in capsys.readouterr().err) == (threads < usual)
    for earlier, threads in ((1, 1), (2, 2), (8, 2)):
        start.set_threads(earlier)
        assert taken.pop() == threads
        assert ("as the resumed run had as many" in capsys.readouterr().err) == (threads < 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    start.set_threads(1)
    assert taken == [2]


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="the load of other programs is known on Linux only")
def test_the_load_of_others_is_their_processor_time() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        begun, before = now, load = cli.load_of_others()
        while load < before + 0.3 and now < begun + 20:
            now, load = cli.load_of_others()
        busy.kill()
    assert load >= before + 0.3
