"""Guards: which kernel a GPU takes; `tests/minbert/test_cuda.py` holds the kernels against the formula.

python -m pytest --import-mode=importlib tests/minbert/fast/test_gpu_attention.py
"""

import pytest
import torch

from minbert.fast import gpu_attention
from minbert.fast.gpu_attention import kernel_name


@pytest.mark.parametrize(
    ("device", "dtype", "width", "dropout", "name"),
    [
        ("cpu", torch.bfloat16, 64, 0.1, "grouped"),
        ("meta", torch.bfloat16, 64, 0.1, "flash"),
        ("meta", torch.float16, 32, 0.0, "flash"),
        ("meta", torch.float32, 64, 0.0, "efficient"),
        ("meta", torch.float32, 64, 0.1, "padded"),
        ("meta", torch.float32, 6, 0.0, "padded"),
    ],
)
def test_kernel_follows_device_dtype_and_dropout(
    device: str, dtype: torch.dtype, width: int, dropout: float, name: str, recwarn: pytest.WarningsRecorder
) -> None:
    assert kernel_name(torch.device(device), dtype, width, dropout) == name
    assert not recwarn.list


def test_older_gpu_pads_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    kernel_name.cache_clear()
    dtypes = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    names = [kernel_name(torch.device("cuda"), dtype, 64) for dtype in dtypes]
    kernel_name.cache_clear()
    assert names == ["padded", "efficient", "efficient", "padded"]


def test_changed_operator_pads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu_attention.ARGUMENTS, "_flash_attention_forward", "other arguments")
    kernel_name.cache_clear()
    with pytest.warns(UserWarning, match="has changed the arguments"):
        name = kernel_name(torch.device("meta"), torch.bfloat16, 64)
    kernel_name.cache_clear()
    assert name == "padded"
