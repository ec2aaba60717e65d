"""Guards: the three protocols and their bootstrap against scipy and plain loops.

python -m pytest --import-mode=importlib tests/suites/test_correlation.py
"""

import numpy as np
import pytest
from scipy import stats

from tasks import intervals
from tasks.benchmarks import options, similarity

RNG = np.random.default_rng(5)
SIZES = (12, 40, 7)
PARTS = [(RNG.normal(size=n), np.round(RNG.uniform(0, 5, n))) for n in SIZES]  # rounded: ties
SCIPY = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}


def drawn_rows(count: int, name: str, *, seed: int, resamples: int) -> list[np.ndarray]:
    """The rows of each resample."""
    seen: list[np.ndarray] = []
    how = {"seed": seed, "resamples": resamples}
    intervals.resampled(lambda rows: (seen.extend(rows), rows.mean(-1))[1], count, "bootstrap", name, **how)
    return seen


@pytest.mark.parametrize("metric", SCIPY)
def test_protocols(metric: str) -> None:
    each = [SCIPY[metric](x, y).statistic for x, y in PARTS]
    plain = {
        "all": SCIPY[metric](np.hstack([x for x, _ in PARTS]), np.hstack([y for _, y in PARTS])).statistic,
        "mean": sum(each) / 3,
        "wmean": sum(n * value for n, value in zip(SIZES, each, strict=True)) / sum(SIZES),
    }
    assert plain.keys() == options.PROTOCOLS.keys()
    for protocol, value in plain.items():
        assert similarity.protocol_score(protocol, metric, PARTS) == pytest.approx(value, abs=1e-12)
    assert len({round(value, 6) for value in plain.values()}) == 3, "the protocols can be told apart"


def test_an_undefined_subset_leaves_the_mean_undefined_and_not_the_whole() -> None:
    parts = [*PARTS, (np.ones(4), np.arange(4.0))]
    assert np.isnan(similarity.protocol_score("mean", "spearman", parts))
    assert np.isfinite(similarity.protocol_score("all", "spearman", parts))


@pytest.mark.parametrize("metric", SCIPY)
def test_draws_of_all_pairs_are_the_correlations_of_resampled_rows(metric: str) -> None:
    x, y = (np.hstack([part[side] for part in PARTS]) for side in (0, 1))
    stacked = [(np.stack([a, -a]), b) for a, b in PARTS]
    found = similarity.protocol_draws("all", metric, stacked, "STS99", seed=3, resamples=6)
    for number, rows in enumerate(drawn_rows(len(y), "STS99", seed=3, resamples=6)):
        assert found[0, number] == pytest.approx(SCIPY[metric](x[rows], y[rows]).statistic, abs=1e-12)
    assert np.allclose(found[0], -found[1]), "systems share their resamples"


@pytest.mark.parametrize(("protocol", "weights"), [("mean", (1, 1, 1)), ("wmean", SIZES)])
def test_draws_by_subset(protocol: str, weights: tuple[int, ...]) -> None:
    stacked = [(a[None], b) for a, b in PARTS]
    found = similarity.protocol_draws(protocol, "spearman", stacked, "X", seed=1, resamples=4)
    for number in range(4):
        values = []
        for place, (x, y) in enumerate(PARTS):
            rows = drawn_rows(len(y), f"X/{place}", seed=1, resamples=4)[number]
            values.append(stats.spearmanr(x[rows], y[rows]).statistic)
        assert found[0, number] == pytest.approx(np.average(values, weights=weights), abs=1e-12)
