"""Guards: the scores of a preset's run are those of its encoder, and presets go on from another run's encoder.

That every preset trains to its end is in golden/test_golden.py.

python -m pytest --import-mode=importlib tests/training/test_presets.py
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from minbert import BertModel, Encoder
from minbert.token_cache import Row
from tasks.contrastive.settings import PRESETS
from tasks.readers import open_as
from tests.training.conftest import small_data

PRETRAIN = "pretrain_cbcl.py"
SAMPLE = Path(__file__).parent.parent.parent / "data" / "sample"
SMALL = ("--epochs", 2, "--batch-size", 4, "--lr", 1e-3, "--limit", 12, "--max-steps", 4)
SECOND = {"consert-sup-unsup": "consert-sup", "consert-joint-unsup": "consert-joint"}


@pytest.fixture(scope="module")
def train(runner: Callable[..., Any], tiny: Path, corpora: Path) -> Callable[..., Any]:
    """A function that gives a preset's run, made once, on the sample or on texts and labelled pairs made from it."""
    done: dict[str, Any] = {}

    def run(preset: str, weights: Path = tiny) -> Any:
        if preset not in done:
            words = (*small_data(preset, corpora), "--weights", weights, *SMALL)
            done[preset] = runner(corpora, PRETRAIN, *words, run_dir=preset, weights=False)
            assert done[preset].code == 0, done[preset].err
        return done[preset]

    return run


@pytest.mark.parametrize("preset", ["cbcl", *SECOND])
def test_a_preset_trains_to_its_end(train: Callable[..., Any], preset: str, tiny: Path) -> None:
    start = tiny
    if preset in SECOND:
        start = train(SECOND[preset]).folder / "encoder"
    run = train(preset, start)
    manifest = run.manifest()
    assert manifest["preset"] == preset and manifest["plan"]["steps"] >= 4
    before, after = BertModel.from_pretrained(start), BertModel.from_pretrained(run.folder / "encoder")
    moved = [name for name, value in before.state_dict().items() if not torch.equal(value, after.state_dict()[name])]
    scores = json.loads((run.folder / "scores.json").read_text())
    assert moved or not scores["step"], "step 0 is the encoder from before training"
    assert set(scores["sts_dev_spearman"]) == {"before", "after"}
    assert scores["keep"] == PRESETS[preset][1]["keep"] and (scores["keep"] == "best" or scores["step"] > 0)
    assert spearman(run.folder / "encoder") == pytest.approx(scores["sts_dev_spearman"]["after"], abs=1e-6)


def spearman(folder: Path) -> float:
    """STS dev by the saved encoder and the pooler that its folder names."""
    rows = [row for row in open_as(SAMPLE / "course" / "sts-dev.csv", "pair-score", "dev").rows if isinstance(row, Row)]
    encoder = Encoder.load(folder, precision="fp32")
    encoder.max_length = 24
    first, second = (encoder.encode([row.texts[side] for row in rows]).astype(np.float64) for side in (0, 1))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    return float(spearmanr(cosines, [row.label for row in rows]).statistic)
