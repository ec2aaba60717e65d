"""Guards: every objective on several ranks has loss and gradient of one process, and all ranks the same parameters.

python -m pytest --import-mode=importlib tests/training/test_ranks.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.contrastive import ranks


@pytest.mark.parametrize(
    ("world", "rows"),
    [
        pytest.param(2, 5, id="uneven shares"),
        pytest.param(3, 2, id="a rank without rows", marks=pytest.mark.slow),
    ],
)
def test_ranks_have_the_gradients_of_one_process(
    script: Callable[..., Any], tiny: Path, tmp_path: Path, world: int, rows: int
) -> None:
    try:
        ranks.main(str(tiny), rows, tmp_path / "alone")
    finally:
        torch.set_deterministic_debug_mode("default")
    alone = load_file(tmp_path / "alone")
    run = script("", argv=[ranks.__file__, str(tiny), str(rows), str(tmp_path / "rank-")], ranks=world)
    assert run.codes == [0] * world, run.err
    several = [load_file(tmp_path / f"rank-{rank}") for rank in range(world)]
    for name in ranks.VARIANTS:
        parts = [one for one in alone if one.startswith(f"{name}: ") and not one.endswith((": loss", ": hash"))]
        assert len(parts) > 30 and ("softmax" not in name or f"{name}: classifier.weight" in parts)
        for rank, found in enumerate(several):
            assert found.keys() == alone.keys()
            assert torch.equal(found[f"{name}: hash"], several[0][f"{name}: hash"]), f"{name}: rank {rank} drifts"
            torch.testing.assert_close(found[f"{name}: loss"], alone[f"{name}: loss"], atol=0, rtol=1e-6)
            ours, theirs = (torch.cat([all[one].double().ravel() for one in parts]) for all in (found, alone))
            assert (ours - theirs).norm() <= 1e-6 * theirs.norm(), f"{name}: {(ours - theirs).norm() / theirs.norm()}"
