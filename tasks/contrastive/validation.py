"""How good an encoder in training is: Spearman's rho between cosine and gold similarity on STS pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minbert.encode import Encoder
from tasks import metrics
from tasks.examples import Pair


def sts_spearman(encoder: Encoder, sts: Pair) -> Callable[[], tuple[float, dict[str, Any]]]:
    """An evaluation for the loop. An undefined rho is reported as None and ranks below every other."""
    rows = [sts.sentence(row, column) for column in (0, 1) for row in range(len(sts))]

    def evaluate() -> tuple[float, dict[str, Any]]:
        encoder.model.eval()
        first, second = np.split(encoder.encode_ids(rows), 2)
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        rho = metrics.spearman((first * second).sum(1) / np.maximum(lengths, 1e-12), sts.labels)
        return -1.0 if rho is None else rho, {"sts_dev_spearman": rho}

    return evaluate


def said(rho: float | None) -> str:
    """A correlation as a person reads it."""
    return "undefined" if rho is None else f"{rho:.4f}"
