"""Guards: which kernel a GPU takes; `tests/minbert/test_cuda.py` holds the kernels against the formula.

python -m pytest --import-mode=importlib tests/minbert/fast/test_gpu_attention.py
"""

import pytest
import torch

from minbert.fast import gpu_attention
from minbert.fast.gpu_attention import kernel_name


@pytest.mark.parametrize(
    ("device", "dtype", "width", "name"),
    [
        ("cpu", torch.bfloat16, 64, "grouped"),
        ("meta", torch.bfloat16, 64, "flash"),
        ("meta", torch.float16, 256, "flash"),
        ("meta", torch.float16, 264, "padded"),
        ("meta", torch.float16, 6, "padded"),
        ("meta", torch.float32, 64, "padded"),
    ],
)
def test_kernel_follows_device_dtype_width(
    device: str, dtype: torch.dtype, width: int, name: str, recwarn: pytest.WarningsRecorder
) -> None:
    assert kernel_name(torch.device(device), dtype, width) == name
    assert not recwarn.list


def test_older_gpu_pads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert kernel_name.__wrapped__(torch.device("cuda"), torch.bfloat16, 64) == "padded"


def test_changed_operator_pads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_attention, "ARGUMENTS", "other arguments")
    with pytest.warns(UserWarning, match="has changed the arguments"):
        assert kernel_name.__wrapped__(torch.device("meta"), torch.bfloat16, 64) == "padded"
