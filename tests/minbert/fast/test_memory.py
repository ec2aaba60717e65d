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


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no huge pages")
def test_heap_is_kept_in_huge_pages() -> None:
    """In a fresh process, because the settings are those of the whole process."""
    result = subprocess.run([sys.executable, "-c", TENSOR], capture_output=True, text=True, check=True)
    flags, resident = result.stdout.splitlines()
    assert "hg" in flags.split()
    without = subprocess.run(
        [sys.executable, "-c", TENSOR.replace("\ntune_allocator()", "")], capture_output=True, text=True, check=True
    )
    assert int(resident) - int(without.stdout.splitlines()[-1]) > 60_000
