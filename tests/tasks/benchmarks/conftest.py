"""What the benchmarks' tests share: the sample's folder of SentEval's sets, and a cosine by its definition."""

from pathlib import Path

import numpy as np

SAMPLE = Path(__file__).parents[3] / "data" / "sample"


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))
