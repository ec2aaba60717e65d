"""Guards: a training process has its tensors in huge pages, and keeps the memory that it frees.

python -m pytest --import-mode=importlib tests/minbert/fast/test_memory.py
"""

import subprocess
import sys
from pathlib import Path

import pytest

# prints the flags of the mapping that holds a tensor, and the resident KiB after the tensor is freed
TENSOR = """
import torch
from pathlib import Path
from minbert.fast import tune_allocator

tune_allocator()
tensor = torch.ones(64 << 20, dtype=torch.uint8)
address = tensor.data_ptr() + (32 << 20)
inside = False
for line in Path("/proc/self/smaps").read_text().splitlines():
    name, *rest = line.split()
    if "-" in name:
        start, end = (int(part, 16) for part in name.split("-"))
        inside = start <= address < end
    elif name == "VmFlags:" and inside:
        print(*rest)
del tensor
print(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])
"""


def printed_by(code: str) -> list[str]:
    """The lines that a fresh process prints: the settings are those of a whole process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no huge pages")
def test_heap_is_kept_in_huge_pages() -> None:
    flags, resident = printed_by(TENSOR)
    assert "hg" in flags.split()
    *_, untuned_resident = printed_by(TENSOR.replace("\ntune_allocator()", ""))
    assert int(resident) - int(untuned_resident) > 60_000
