"""The device of a model, and the precision of its matrix products: `auto`, `fp32`, `bf16` or `fp16`."""

import os
import signal
from contextlib import AbstractContextManager
from functools import cache

import torch

from minbert.errors import UserError, one_of

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_ISA_WITHOUT_BF16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI")
"""Values of `$ONEDNN_MAX_CPU_ISA` with which oneDNN computes no bfloat16 products."""


def default_device() -> torch.device:
    """CUDA if available, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose(name: str, device: torch.device) -> str:
    """Resolve `auto` to bf16 if the device supports it, else to fp16 on a GPU and fp32 on a CPU.

    On a CPU whose AMX crashes, oneDNN is kept from it in the whole process.

    Raises `UserError` for an unknown name, and for fp16 on a CPU.
    """
    name = one_of(name, ("auto", *DTYPES), "precision")
    if name == "fp16" and device.type == "cpu":
        raise UserError("precision fp16 needs a GPU; a CPU has fp32 and bf16")
    if device.type == "cpu" and amx_crashes():
        # oneDNN reads this at its first product
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    if name != "auto":
        return name
    if supports_bf16(device):
        return "bf16"
    return "fp16" if device.type == "cuda" else "fp32"


def supports_bf16(device: torch.device) -> bool:
    """True if the device has fast bfloat16 products: AMX or AVX512-BF16 on the CPU, Ampere or later on CUDA."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _ISA_WITHOUT_BF16:
        return False
    if cpu_has("amx_tile"):
        return not amx_crashes()
    return cpu_has("avx512_bf16")


def cpu_has(feature: str) -> bool:
    """Whether the processor announces a feature; no if this build of torch, such as one for ARM, cannot tell."""
    is_supported = getattr(torch.cpu, f"_is_{feature}_supported", None)
    return is_supported is not None and bool(is_supported())


@cache
def amx_crashes() -> bool:
    """True if the CPU announces AMX but oneDNN's bfloat16 products in it are illegal instructions.

    oneDNN 3.12, that of torch 2.13, takes the shape of AMX's tiles from CPUID leaf 1D, where some virtual machines have
    zeros (https://github.com/uxlfoundation/oneDNN/issues/5689).
    """
    if not cpu_has("amx_tile"):
        return False
    # An illegal instruction ends the process, so a child tries the product. Only a signal can say that it failed.
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGILL
    try:
        signal.signal(signal.SIGILL, signal.SIG_DFL)
        os.environ.pop("ONEDNN_MAX_CPU_ISA", None)
        # a child has none of its parent's threads, and OpenMP would wait for them
        torch.set_num_threads(1)
        torch.ones(32, 32, dtype=torch.bfloat16) @ torch.ones(32, 32, dtype=torch.bfloat16)
    finally:
        os._exit(0)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of the encoder, off for fp32, even inside another one. Losses and heads are in fp32."""
    return torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")


def loss_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Dynamic loss scaling (Micikevicius et al. 2018, section 3.2) for the small range of fp16; else without effect."""
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    # It creates its scale with the first loss, which a rank without rows in that step does not have.
    scaler.scale(torch.zeros((), device=device))
    return scaler
