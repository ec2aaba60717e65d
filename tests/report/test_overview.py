"""Guards: the overview's means, intervals over seeds and seed counts are scipy's, and its page sorts and escapes.

python -m pytest --import-mode=importlib tests/report/test_overview.py
"""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tasks.report import overview
from tests.report.browsing import Tab
from tests.report.conftest import HOSTILE

DRAWS = np.random.default_rng(4)


def runs(groups: dict[str, list[int]], metrics: tuple[str, ...] = ("accuracy",)) -> pd.DataFrame:
    rows = [
        (group, seed, metric, DRAWS.normal(0.5, 0.01))
        for group in groups
        for metric in metrics
        for seed in groups[group]
    ]
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
    other["less_is_better"] = True
    assert overview.verdict(other) == "worse"


def test_an_undefined_score_is_no_seed() -> None:
    frame = runs({"a": [1, 2, 3], "b": [1, 2, 3]})
    frame.loc[0, "value"] = np.nan
    first, second = overview.summary(frame).to_dict("records")
    assert (first["seeds"], second["seeds"], second["pairs"]) == (2, 3, 2)


def test_a_group_without_seeds_has_one_value_and_pairs_with_every_seed() -> None:
    frame = pd.concat([runs({"a": [1, 2, 3]}), runs({"b": [0], "c": [0]}).assign(seed=None)])
    _, one, other = overview.summary(frame, "b").to_dict("records")
    assert (one["seeds"], other["pairs"]) == (1, 1) and np.isnan(other["low"]) and np.isnan(one["deviation"])
    trained, one, _ = overview.summary(frame, "a").to_dict("records")
    assert (trained["seeds"], one["pairs"]) == (3, 3) and one["low"] < one["difference"] < one["high"]


def study(path: Path) -> pd.DataFrame:
    frame = runs({"base": [1, 2], HOSTILE[2]: [1, 2], "third": [1]}, ("accuracy", HOSTILE[0]))
    settings = pd.DataFrame({"order": ["a", HOSTILE[4], "b"], "same": 1}, index=list(dict.fromkeys(frame["group"])))
    return overview.write_overview(path, "Study", frame, settings)


def test_an_overview_escapes_its_names_and_saves_its_forest_plot(tmp_path: Path) -> None:
    found = study(tmp_path / "study.html")
    text = (tmp_path / "study.html").read_text()
    assert "<img src=x" not in text and "window.owned = 1</script>" not in text and ">same<" not in text
    for value in found["mean"]:
        assert f"{value:.4f}" in text
    drawn = [ElementTree.parse(path) for path in (tmp_path / "study-figures").iterdir()]
    assert len(drawn) == 2, "a figure for each metric"
    whole = ElementTree.fromstring(overview.forest(found))
    assert len([one for one in whole.iter() if str(one.get("id")).startswith("axes_")]) == 2


def test_a_click_on_a_heading_sorts(browser: Any, tmp_path: Path) -> None:
    study(tmp_path / "study.html")
    tab = Tab(browser, tmp_path / "study.html")
    rows = "table.sortable >> nth=0 >> tbody tr"

    def scores() -> list[float]:
        return tab.page.eval_on_selector_all(rows, "rows => rows.map(row => parseFloat(row.cells[2].textContent))")

    for down in (True, False):
        tab.page.click("table.sortable >> nth=0 >> thead button >> nth=2")
        assert scores() == sorted(scores(), reverse=down)
    tab.page.eval_on_selector_all(
        rows, "rows => rows.forEach((row, n) => row.cells[2].textContent = ['−1', '10,000', '9'][n])"
    )
    tab.page.click("table.sortable >> nth=0 >> thead button >> nth=2")
    cells = tab.page.eval_on_selector_all(rows, "rows => rows.map(row => row.cells[2].textContent)")
    assert cells == ["10,000", "9", "−1"]
    assert tab.complaints == [] and tab.page.evaluate("window.owned") is None
    tab.context.close()
