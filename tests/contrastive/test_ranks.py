"""Guards: every objective on several ranks has loss and gradient of one process, and all ranks the same parameters.

python -m pytest --import-mode=importlib tests/contrastive/test_ranks.py
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.contrastive.ranks import VARIANTS, main

Found = dict[str, torch.Tensor]


def launched(folder: Path, rows: int, world: int, out: Path) -> list[Found]:
    """What each rank of a group writes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    files = [out / f"{world}-{rank}.safetensors" for rank in range(world)]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contrastive.ranks", str(folder), str(rows), str(file)],
            env={**os.environ, **shared, "WORLD_SIZE": str(world), "RANK": str(rank), "MINBERT_CACHE": str(out / "c")},
        )
        for rank, file in enumerate(files)
    ]
    assert [child.wait(timeout=100) for child in children] == [0] * world
    return [load_file(file) for file in files]


@pytest.mark.parametrize(
    ("world", "rows"),
    [
        pytest.param(2, 5, id="uneven shares"),
        pytest.param(3, 2, id="a rank without rows", marks=pytest.mark.slow),
    ],
)
def test_ranks_have_the_gradients_of_one_process(tiny: Path, tmp_path: Path, world: int, rows: int) -> None:
    try:
        main(str(tiny), rows, tmp_path / "alone")
    finally:
        torch.set_deterministic_debug_mode("default")
    alone = load_file(tmp_path / "alone")
    several = launched(tiny, rows, world, tmp_path)
    for name in VARIANTS:
        parts = [one for one in alone if one.startswith(f"{name}: ") and not one.endswith((": loss", ": hash"))]
        assert len(parts) > 30 and ("softmax" not in name or f"{name}: classifier.weight" in parts)
        for rank, found in enumerate(several):
            assert found.keys() == alone.keys()
            assert torch.equal(found[f"{name}: hash"], several[0][f"{name}: hash"]), f"{name}: rank {rank} drifts"
            torch.testing.assert_close(found[f"{name}: loss"], alone[f"{name}: loss"], atol=0, rtol=1e-6)
            ours, theirs = (torch.cat([all[one].double().ravel() for one in parts]) for all in (found, alone))
            assert (ours - theirs).norm() <= 1e-6 * theirs.norm(), f"{name}: {(ours - theirs).norm() / theirs.norm()}"
