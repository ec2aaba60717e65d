"""Semantic textual similarity: the STS benchmark in the course's split, scores 0 to 5; metric: Pearson's r."""

from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.errors import UserError
from minbert.tokenizer import Tokenizer
from tasks.examples import Examples
from tasks.task import LEADERBOARD_ROW, Files, PairTask, Scaled


class Similarity(PairTask):
    """Squared error of 5 sigmoid(logit) (CBCL, section 4.2.3 and equation 5)."""

    name = "sts"
    title = "similarity"
    metric = "Pearson's r"
    files = Files(
        train="sts-train.csv",
        dev="sts-dev.csv",
        test="sts-test-student.csv",
        flag_prefix="sts",
        header="id \t Predicted_Similiary \n",  # the misspelling is the leaderboard's
        row=LEADERBOARD_ROW,
    )
    kind = "pair-score"
    outputs = 1

    def open(self, path: Path, split: str, tokenizer: Tokenizer, max_length: int) -> Examples:
        """As `Task.open`; raises `UserError` for training scores from 0 to 1 too, as Hugging Face's stsb has them."""
        examples = super().open(path, split, tokenizer, max_length)
        # r does not depend on the scale, so it matters in training alone
        if split == "train" and examples.labels.max() <= 1:
            raise UserError(f"{path}: the scores are from 0 to 1, not from 0 to 5; multiply them by 5")
        return examples

    def head(self, width: int, dropout: float) -> nn.Module:
        """The head for pairs, its output scaled to 0..5."""
        return Scaled(super().head(width, dropout))

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Sum of the squared errors."""
        return F.mse_loss(outputs.float(), labels.float(), reduction="sum")

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """The similarities, unchanged."""
        return outputs.astype(np.float64)

    def format_prediction(self, value: float) -> str:
        """The shortest decimal that gives the same float64."""
        return repr(float(value))
