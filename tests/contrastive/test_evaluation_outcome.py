"""Guards: what a run says of its encoder: scores before and after, cosines, and a verdict.

python -m pytest --import-mode=importlib tests/contrastive/test_evaluation_outcome.py
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from minbert.training.loop import LoopState
from minbert.training.plan import Plan
from minbert.training.run import RunDir
from tasks.contrastive import evaluation
from tasks.contrastive.curriculum import Paced, ScoredTriplets, Similarities
from tasks.contrastive.data import Data
from tasks.contrastive.dev import DevSets
from tasks.contrastive.evaluation import EvaluationResult, last_epoch_loss, verdict
from tasks.contrastive.settings import ContrastiveSettings

STATE = LoopState(step=200, kept_step=200, best_step=100)
RNG = np.random.default_rng(3)
BEFORE = Similarities(RNG.uniform(0.2, 1.0, 300), RNG.uniform(-0.2, 0.9, 300))
AFTER = Similarities(BEFORE.positive, BEFORE.negative - 0.3)
ROWS: list[dict[str, Any]] = [
    *({"kind": "train", "step": step, "epoch": 1, "lr": 1e-5, "nli/loss": 3 - step / 400} for step in (50, 100, 150)),
    {"kind": "evaluation", "step": 100, "epoch": 1, "score": 0.7, "best": True, "sts_dev_spearman": 0.7},
    {"kind": "evaluation", "step": 150, "epoch": 2, "score": -1.0, "best": False, "sts_dev_spearman": None},
    {"kind": "evaluation", "step": 200, "epoch": 2, "score": 0.65, "best": False, "sts_dev_spearman": 0.65},
]


def look(rho: float | None, cosines: Similarities | None = None) -> EvaluationResult:
    return EvaluationResult({"sts_dev_spearman": rho, "frozen_loss": rho and -rho}, {"sts": np.zeros(1)}, cosines)


def test_scores_and_cosines_of_a_run(
    tmp_path: Path, view: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDir(tmp_path / "run")
    run.begin_part({"settings": {}})
    for row in ROWS:
        run.log(row)
    texts = view(*[["the cat"]] * 3, labels=[1.0])
    data = Data(texts, DevSets("course", {"sts": texts}), {})
    paced = Paced(Plan([150, 50], lambda epoch: [("nli", np.arange(2))] * (150, 50)[epoch]), 6)
    how, evaluations = ContrastiveSettings.of(batch_size=2, keep="last"), [look(0.6, BEFORE), look(0.65, AFTER)]
    evaluation.write(run, how, data, ScoredTriplets(np.arange(6), BEFORE), paced, evaluations, STATE)
    assert json.loads((run.path / "scores.json").read_text()) == {
        "sts_dev_spearman": {"before": 0.6, "after": 0.65},
        "frozen_loss": {"before": -0.6, "after": -0.65},
        **{"step": 200, "keep": "last", "metric": "spearman", "best_step": 100, "last_step": 200},
        **{"dev_set": "course", "last_epoch_loss": pytest.approx(2.75), "chance_loss": pytest.approx(math.log(4))},
    }
    cosines, taken = load_file(run.path / "cosines.safetensors"), {"start": BEFORE, "before": BEFORE, "after": AFTER}
    assert set(cosines) == {f"{when} {side}" for when in taken for side in ("positive", "negative")}
    assert all(np.array_equal(cosines[f"{when} negative"], one.negative) for when, one in taken.items())
    said = capsys.readouterr().out
    assert "after training (step 200 of 200, the last): STS dev spearman 0.6500, frozen loss -0.6500\n" in said
    assert "mean training loss over the last epoch: 2.7500\n" in said and "did not help" not in said


@pytest.mark.parametrize(
    ("kept", "best", "before", "after", "said"),
    [
        (3, 3, 0.5, 0.6, ""),
        (9, 3, 0.5, 0.6, ""),
        (9, 3, 0.5, 0.4, "--keep best would have kept step 3"),
        (9, 0, 0.5, 0.4, "by spearman the last step is no better than before training (0.4000, 0.5000 before)"),
        (0, 0, 0.5, 0.5, "holds the encoder that the run started from"),
        (9, 9, 0.5, None, "spearman is undefined, so it cannot say whether training helped"),
    ],
)
def test_training_that_has_not_helped_is_said(
    kept: int, best: int, before: float, after: float | None, said: str
) -> None:
    found = verdict(look(before), look(after), LoopState(step=9, kept_step=kept, best_step=best))
    assert said in found and bool(said) == bool(found)


def test_the_loss_of_the_last_epoch_is_the_mean_over_its_rows() -> None:
    """A short last batch counts by its rows; each row of the metrics is a mean over the examples since the last one."""
    losses, sizes = np.random.default_rng(0).normal(1, 0.5, 130), np.array(([8] * 64 + [3]) * 2)
    plan = Plan([65, 65], lambda epoch: [("nli", np.arange(size)) for size in sizes[65 * epoch : 65 * epoch + 65]])
    rows: list[dict[str, Any]] = [{"kind": "evaluation", "step": 130, "epoch": 2, "score": 0.5}]
    for start, end, epoch in ((0, 50, 1), (50, 65, 1), (65, 100, 2), (100, 130, 2)):
        mean = np.average(losses[start:end], weights=sizes[start:end])
        rows.append({"kind": "train", "step": end, "epoch": epoch, "nli/loss": mean})
    for upto, epoch in ((rows, slice(65, 130)), (rows[:3], slice(0, 65))):
        assert last_epoch_loss(upto, plan) == pytest.approx(np.average(losses[epoch], weights=sizes[epoch]))
    assert last_epoch_loss(rows[:1], plan) is None


def test_the_next_command_names_a_sentence_encoder_beside_a_cross_encoder() -> None:
    how = ContrastiveSettings.of(objective="cross", keep="last", weights="minilm")
    command = evaluation.next_command(how, Path("runs/x/encoder"), 384)
    assert command.endswith("--encoder runs/x/encoder --sentence-encoder minilm --run-dir runs/best")
