"""Where a model runs, and which number format its matrix products run in: `auto`, `fp32` or `bf16`."""

from contextlib import AbstractContextManager, nullcontext

import torch

from minbert.errors import one_of

CHOICES = ("auto", "fp32", "bf16")


def supports_bf16(device: torch.device) -> bool:
    """True where bfloat16 products are fast: AMX or AVX512-BF16 on the CPU, Ampere or later on CUDA."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def default_device() -> torch.device:
    """CUDA where torch sees a device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose(name: str, device: torch.device) -> str:
    """Turn `auto` into what the device does well; any other choice is kept as it is.

    That is bf16 or fp32, never fp16: its range asks for loss scaling, which skips updates at steps of its own choice.
    """
    name = one_of(name, CHOICES, "precision")
    if name != "auto":
        return name
    return "bf16" if supports_bf16(device) else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context in which the encoder and the heads run; losses leave it and are taken in fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
