"""The device of a model, and the precision of its matrix products: `auto`, `fp32` or `bf16`."""

from contextlib import AbstractContextManager, nullcontext

import torch

from minbert.errors import one_of

CHOICES = ("auto", "fp32", "bf16")


def supports_bf16(device: torch.device) -> bool:
    """True if the device has native bfloat16 products: AMX or AVX512-BF16 on the CPU, Ampere or later on CUDA."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def default_device() -> torch.device:
    """CUDA if available, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose(name: str, device: torch.device) -> str:
    """Resolve `auto` to bf16 if the device supports it, else fp32. Raises `UserError` for an unknown name.

    There is no fp16: its small range needs loss scaling, which skips the updates whose gradients overflow.
    """
    name = one_of(name, CHOICES, "precision")
    if name != "auto":
        return name
    return "bf16" if supports_bf16(device) else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of the encoder and the heads. Losses are computed outside of it, in fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
