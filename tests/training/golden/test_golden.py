"""Guards: no change moves a number of training by accident. Six steps of every preset, their losses and the encoder.

python -m pytest --import-mode=importlib tests/training/golden

`golden.json` holds what the presets gave, on a tiny encoder, with two threads. On the machine class that it names
(processor, versions of torch and NumPy, threads) every number and every bit has to be the same; elsewhere the losses
agree within a tolerance, as other processors sum in another order. A commit that means to change a number writes the
file again and says why:

WRITE_GOLDEN=1 python -m pytest --import-mode=importlib tests/training/golden
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tasks import settings as multitask
from tasks.contrastive.settings import PRESETS
from tests.training.conftest import small_data

GOLDEN = Path(__file__).parent / "golden.json"
STEPS = ("--max-steps", 6, "--batch-size", 4, "--limit", 24, "--log-every", 1, "--lr", 1e-3)
TOLERANCE = 1e-4  # relative, elsewhere than on the machine class of the file

RUNS = [("pretrain_cbcl.py", name) for name in PRESETS] + [("multitask_train.py", name) for name in multitask.PRESETS]


def machine_class() -> dict[str, str]:
    """What the bits of a run depend on beside its command."""
    return {
        "torch": torch.__version__.partition("+")[0],
        "numpy": np.__version__,
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "threads": "2",
    }


def outcome(run: Any) -> dict[str, Any]:
    """The losses of every step, the scores of every evaluation, and the hash of the weights after the last step."""
    rows = run.rows()
    losses = [
        {key: value for key, value in row.items() if key.endswith("/loss")} for row in rows if row["kind"] == "train"
    ]
    encoder = load_file(run.folder / "encoder" / "model.safetensors")
    digest = hashlib.sha256()
    for name in sorted(encoder):
        digest.update(name.encode() + encoder[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    scores = [row["score"] for row in rows if row["kind"] == "evaluation"]
    return {"losses": losses, "scores": scores, "encoder": digest.hexdigest()}


@pytest.mark.parametrize(("script", "preset"), RUNS, ids=[f"{script.split('_')[0]}-{name}" for script, name in RUNS])
def test_six_steps_of_a_preset(script: str, preset: str, runner: Callable[..., Any], corpora: Path) -> None:
    words = small_data(preset, corpora) if script == "pretrain_cbcl.py" else ["--preset", preset]
    run = runner(corpora, script, *words, *STEPS, run_dir=f"{script}-{preset}")
    assert run.code == 0, run.err
    key, now = f"{script} --preset {preset}", outcome(run)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"machine": {}, "runs": {}}
    if os.environ.get("WRITE_GOLDEN"):
        golden["machine"], golden["runs"][key] = machine_class(), now
        ordered = dict(sorted(golden["runs"].items()))
        GOLDEN.write_text(json.dumps({"machine": golden["machine"], "runs": ordered}, indent=1) + "\n")
        return
    expected = golden["runs"][key]
    assert len(now["losses"]) == len(expected["losses"]) >= 6
    for step, (row, before) in enumerate(zip(now["losses"], expected["losses"], strict=True), start=1):
        assert row == pytest.approx(before, rel=TOLERANCE), f"row {step}"
    if golden["machine"] == machine_class():
        assert now == expected
