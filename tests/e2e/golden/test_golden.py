"""Guards: no change moves a number of training by accident. The losses and scores of six steps of every preset.

python -m pytest --import-mode=importlib tests/e2e/golden

`golden.json` holds what the presets gave on a tiny encoder. Processors sum in different orders, so the numbers agree
within a tolerance, on every processor and with any number of threads; bits are compared between two runs of one test
(`tests/e2e/test_resume.py`). A commit that means to change a number writes the file again and says why:

WRITE_GOLDEN=1 python -m pytest --import-mode=importlib tests/e2e/golden
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.presets import PRESETS
from tests.e2e.conftest import script_of, small_data

GOLDEN = Path(__file__).parent / "golden.json"
STEPS = ("--max-steps", 6, "--batch-size", 4, "--limit", 24, "--log-every", 1, "--lr", 1e-3)
TOLERANCE = 1e-4  # relative

RUNS = [(command, preset) for command, presets in PRESETS.items() for preset in presets]


def outcome(run: Any) -> dict[str, Any]:
    """The losses of every step and the scores of every evaluation."""
    losses = []
    scores = []
    for row in run.rows():
        if row["kind"] == "train":
            losses.append({key: value for key, value in row.items() if key.endswith("/loss")})
        if row["kind"] == "evaluation":
            scores.append(row["score"])
    return {"losses": losses, "scores": scores}


@pytest.mark.parametrize(("command", "preset"), RUNS)
def test_six_steps_of_a_preset(command: str, preset: str, runner: Callable[..., Any], corpora: Path) -> None:
    script = script_of(command)
    flags = small_data(command, preset, corpora)
    run = runner(corpora, script, *flags, *STEPS, run_dir=f"{Path(script).stem}-{preset}")
    assert run.code == 0, run.err
    key = f"{command} --preset {preset}"
    now = outcome(run)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("WRITE_GOLDEN"):
        golden[key] = now
        GOLDEN.write_text(json.dumps(dict(sorted(golden.items())), indent=1) + "\n")
        return
    expected = golden[key]
    assert len(now["losses"]) == len(expected["losses"]) >= 6
    for step, (row, before) in enumerate(zip(now["losses"], expected["losses"], strict=True), start=1):
        assert row == pytest.approx(before, rel=TOLERANCE), f"row {step}"
    assert now["scores"] == pytest.approx(expected["scores"], rel=TOLERANCE)
