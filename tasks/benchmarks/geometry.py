"""How an encoder's sentences lie in space: alignment, uniformity and isotropy.

Axes: N sentences or pairs, D hidden; all vectors have length 1, in float64.
"""

import numpy as np

from minbert.seeds import numpy_generator
from tasks.benchmarks.sets import ScoredSet
from tasks.contrastive.validation import ALIKE, alignment, uniformity

UNLIKE = 2.0  # gold similarity, of 5, below which a pair counts as unlike in the histogram


def measure(one: ScoredSet, first: np.ndarray, second: np.ndarray, distinct: np.ndarray) -> dict[str, float | None]:
    """Alignment over pairs of a score of 4 or more, uniformity over the sentences of all pairs (SimCSE, section 6).

    `first` and `second` are the unit vectors of the pairs, `distinct` those of the distinct sentences.
    """
    alike = one.gold >= ALIKE
    return {
        "alignment": alignment(first[alike], second[alike]),
        "uniformity": uniformity(np.concatenate([first, second])),
        "mean cosine": mean_cosine(distinct),
        "top singular share": top_singular_share(distinct),
    }


def distances(one: ScoredSet, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Squared distance of each pair of a score of 4 or more, whose mean is the alignment: float64 [pairs]."""
    alike = one.gold >= ALIKE
    return np.square(first[alike] - second[alike]).sum(1)


def mean_cosine(vectors: np.ndarray) -> float | None:
    """Mean cosine over all pairs of N unit vectors, without any N x N matrix; None for fewer than two.

    Near 0 the directions are used evenly; near 1 all sentences point one way (Ethayarajh 2019, section 4.1).
    """
    count = len(vectors)
    if count < 2:
        return None
    total = vectors.sum(0)
    return float((total @ total - np.square(vectors).sum()) / (count * (count - 1)))


def top_singular_share(vectors: np.ndarray) -> float | None:
    """The largest squared singular value of [N, D] over the sum of all: 1/D at best, 1 if all lie on one line."""
    values = np.linalg.eigvalsh(vectors.T @ vectors) if len(vectors) else np.zeros(1)
    return float(values[-1] / values.sum()) if values.sum() > 0 else None


def groups(one: ScoredSet, first: np.ndarray, second: np.ndarray, *, seed: int) -> dict[str, np.ndarray]:
    """Cosines of three kinds of pairs: sentences joined at random, pairs scored low, pairs scored high."""
    cosine = (first * second).sum(1)
    shuffled = numpy_generator(seed, "random pairs", one.name).permutation(len(first))
    random = (first * second[shuffled]).sum(1)[shuffled != np.arange(len(first))]
    return {
        "random pairs": random,
        f"human score below {UNLIKE:g}": cosine[one.gold < UNLIKE],
        f"human score {ALIKE:g} or more": cosine[one.gold >= ALIKE],
    }
