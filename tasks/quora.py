"""Paraphrase detection: Quora question pairs, duplicate or not; metric: accuracy."""

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from tasks.task import LEADERBOARD_ROW, Files, PairTask


class Paraphrase(PairTask):
    """Binary cross entropy on one logit (CBCL, section 4.2.2 and equation 4)."""

    name = "quora"
    title = "paraphrase"
    metric = "accuracy"
    files = Files(
        train="quora-train.csv",
        dev="quora-dev.csv",
        test="quora-test-student.csv",
        flag_prefix="para",
        header="id \t Predicted_Is_Paraphrase \n",
        row=LEADERBOARD_ROW,
    )
    classes = ("different", "paraphrase")
    kind = "pair-class"
    outputs = 1

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Sum over rows of the binary cross entropy with logits."""
        return F.binary_cross_entropy_with_logits(outputs.float(), labels.float(), reduction="sum")

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """1 if the logit is above 0, else 0."""
        return (outputs > 0).astype(np.float64)

    def format_prediction(self, value: float) -> str:
        """`0.0` or `1.0`."""
        return f"{value:.1f}"
