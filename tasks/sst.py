"""Sentiment classification: the Stanford Sentiment Treebank, five classes; metric: accuracy."""

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from tasks.task import LEADERBOARD_ROW, Files, Head, Task


class Sentiment(Task):
    """Cross entropy over five classes (CBCL, section 4.2.1 and equation 3)."""

    name = "sst"
    title = "sentiment"
    metric = "accuracy"
    files = Files(
        train="ids-sst-train.csv",
        dev="ids-sst-dev.csv",
        test="ids-sst-test-student.csv",
        flag_prefix="sst",
        header="id \t Predicted_Sentiment \n",
        row=LEADERBOARD_ROW,
    )
    classes = ("very negative", "negative", "neutral", "positive", "very positive")
    kind = "single"

    def head(self, width: int, dropout: float) -> nn.Module:
        """A head with an output for each class and one dropout layer."""
        return Head(width, len(self.classes), dropout, dropout_layers=1)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Sum of -log softmax(outputs)[label]."""
        return F.cross_entropy(outputs.float(), labels.long(), reduction="sum")

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """The most probable class."""
        return outputs.argmax(1).astype(np.float64)

    def format_prediction(self, value: float) -> str:
        """The class as an integer."""
        return str(int(value))
