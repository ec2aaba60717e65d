"""Guards: the means and intervals over seeds of groups of runs are scipy's.

python -m pytest --import-mode=importlib tests/report/test_overview.py
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tasks.report import overview

DRAWS = np.random.default_rng(4)


def runs(groups: dict[str, list[int]]) -> pd.DataFrame:
    rows = [(group, seed, "accuracy", DRAWS.normal(0.5, 0.01)) for group, seeds in groups.items() for seed in seeds]
    return pd.DataFrame(rows, columns=["group", "seed", "metric", "value"])


def test_a_difference_is_paired_by_seed_and_its_interval_is_scipys() -> None:
    frame = runs({"base": [1, 2, 3, 4], "other": [4, 3, 2, 9]})
    base, other = overview.summary(frame).to_dict("records")
    values = frame.pivot(index="seed", columns="group", values="value")
    gaps = (values["other"] - values["base"]).dropna()
    expected = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert (other["seeds"], other["pairs"]) == (4, 3)
    assert other["mean"] == pytest.approx(values["other"].mean())
    assert other["deviation"] == pytest.approx(values["other"].std())
    assert other["difference"] == pytest.approx(gaps.mean())
    assert (other["low"], other["high"]) == pytest.approx((expected.low, expected.high))
    assert np.isnan(base["difference"])
    swapped = overview.summary(frame, baseline="other").iloc[0]
    assert swapped["difference"] == pytest.approx(-gaps.mean())


@pytest.mark.parametrize(("groups", "pairs"), [({"a": [1], "b": [1]}, 1), ({"a": [1], "b": [2, 3]}, 0)])
def test_one_seed_has_no_interval_over_seeds(groups: dict[str, list[int]], pairs: int) -> None:
    more = pd.DataFrame([("b", "accuracy", 0.1, 0.2)], columns=["group", "metric", "row_low", "row_high"])
    _, other = overview.summary(runs(groups), more=more).iloc
    assert other["pairs"] == pairs and np.isnan(other["low"])
    assert np.isnan(other["difference"]) == (pairs == 0)
    assert overview.verdict(other) == "better"


def test_a_group_without_seeds_has_one_value_and_pairs_with_every_seed() -> None:
    frame = pd.concat([runs({"a": [1, 2, 3]}), runs({"b": [0], "c": [0]}).assign(seed=None)])
    _, one, other = overview.summary(frame, "b").to_dict("records")
    assert (one["seeds"], other["pairs"]) == (1, 1) and np.isnan(other["low"]) and np.isnan(one["deviation"])
    trained, one, _ = overview.summary(frame, "a").to_dict("records")
    assert (trained["seeds"], one["pairs"]) == (3, 3) and one["low"] < one["difference"] < one["high"]
