"""Guards: a CPU whose AMX products are illegal instructions is detected, and the process that asks survives.

python -m pytest --import-mode=importlib tests/minbert/test_precision.py
"""

import os
import signal
import subprocess
import sys

import pytest
import torch

from minbert import UserError, precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(("number", "crashes"), [(signal.SIGILL, True), (signal.SIGKILL, False)])
def test_only_illegal_instructions_count(monkeypatch: pytest.MonkeyPatch, number: int, crashes: bool) -> None:
    def die(*_: object, dtype: torch.dtype) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr(torch, "ones", die)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(precision, "amx_crashes", precision.amx_crashes.__wrapped__)  # without its cache
    monkeypatch.setattr(precision, "cpu_has", lambda feature: True)
    assert precision.amx_crashes() == crashes
    assert precision.supports_bf16(CPU) != crashes
    monkeypatch.setattr(precision, "cpu_has", lambda feature: False)
    assert not precision.amx_crashes()


@pytest.mark.skipif(not precision.cpu_has("amx_tile"), reason="the processor has no AMX")
def test_bf16_products_run_after_choice() -> None:
    """In a fresh process, because oneDNN chooses its instructions once."""
    product = (
        "import torch; from minbert import precision; precision.choose('bf16', torch.device('cpu'))\n"
        "a = torch.ones(64, 64).bfloat16(); assert (a @ a)[3, 5] == 64"
    )
    variables = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    subprocess.run([sys.executable, "-c", product], env=variables, check=True, timeout=60)


def test_limited_instructions_have_no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "cpu_has", lambda feature: True)
    monkeypatch.setattr(precision, "amx_crashes", lambda: False)
    for limit, supported in (("AVX2", False), ("avx512_core", False), ("AVX512_CORE_BF16", True), ("DEFAULT", True)):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        assert precision.supports_bf16(CPU) == supported


def test_fp16_is_for_gpus() -> None:
    assert precision.choose("fp16", torch.device("cuda")) == "fp16"
    with pytest.raises(UserError, match="precision fp16 needs a GPU"):
        precision.choose("fp16", CPU)
