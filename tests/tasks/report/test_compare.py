"""Guards: runs are compared over the rows both have, and intervals are scipy's.

python -m pytest --import-mode=importlib tests/tasks/report/test_compare.py
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tasks import compare
from tasks.intervals import Difference
from tasks.metrics import DEV_NORM
from tasks.record import PredictedRows
from tasks.report import overview, page
from tasks.runs import Run, read_run

Made = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("undrawn")


def rows(ids: str, gold: list[float], predicted: list[float]) -> PredictedRows:
    return PredictedRows(list(ids), [("",)] * len(ids), np.array(gold), np.array(predicted), None)


def differences(first: Run, second: Run, resamples: int) -> list[Difference]:
    return compare.differences([first.tasks], [second.tasks], resamples=resamples)


def test_rows_pair_by_id_where_gold_agrees() -> None:
    first = rows("abcd", [1, 2, 3, np.nan], [1, 1, 1, 1])
    second = rows("dcxba", [1, 3, 0, 9, 1], [4, 3, 0, 2, 1])
    one, two = compare.common([first, second])
    assert one.ids == two.ids == ["a", "c"]  # b has another gold label there, d none here, x is not here
    assert two.predicted.tolist() == [1, 3]


def test_rows_of_other_texts_do_not_pair_though_their_line_numbers_do() -> None:
    first = rows("ab", [1, 2], [1, 1])
    second, without = replace(first, texts=[("x",), ("",)]), replace(first, texts=[(), ()])
    assert [each.ids for each in compare.common([first, second])] == [["b"], ["b"]]
    assert [each.ids for each in compare.common([second, without])] == [["a", "b"], ["a", "b"]]


def test_a_far_better_run_is_better_and_the_other_way_worse(multitask: Made) -> None:
    weak, strong = (read_run(multitask(name, skill=skill)) for name, skill in (("weak", 0.3), ("strong", 0.95)))
    forth, back = (differences(*pair, resamples=200) for pair in ((weak, strong), (strong, weak)))
    assert [one.name for one in forth] == ["sst", "quora", "sts", DEV_NORM]
    assert all(one.interval and one.interval.low > 0 for one in forth)
    assert all(one.interval and one.interval.high < 0 for one in back)
    assert forth[0].rows == 59, "of 60 rows the last has no label"
    html = page.comparison([weak, strong], resamples=200)
    assert all(f"[{one.interval.low:+.4f}, {one.interval.high:+.4f}]" in html for one in forth if one.interval)


def test_the_dev_norm_is_compared_over_the_rows_in_common_as_well(multitask: Made) -> None:
    first, second = read_run(multitask("long", rows=60)), read_run(multitask("short", rows=21, seed=2))
    *tasks, norm = differences(first, second, resamples=200)
    assert [one.rows for one in (*tasks, norm)] == [20, 20, 20, 60]
    for side, run in (("first", first), ("second", second)):
        sst, quora, sts = (getattr(one, side) for one in tasks)
        assert getattr(norm, side) == pytest.approx((sst + quora + (sts + 1) / 2) / 3)
        assert (getattr(norm, side) == pytest.approx(run.dev_norm)) == (run is second)
    assert norm.interval is not None and norm.interval.low < norm.value < norm.interval.high
    unequal = "Not all runs were scored on the same number of dev rows"
    assert unequal in page.comparison([first, second], resamples=5)
    assert unequal not in page.comparison([first, replace(first, name="again")], resamples=5)


def test_the_runs_of_a_setting_are_averaged_on_the_same_resamples(multitask: Made) -> None:
    first, *others = (read_run(multitask(f"r{seed}", seed=seed, skill=0.6)) for seed in (1, 2, 3))
    together = compare.differences([first.tasks], [one.tasks for one in others], resamples=50)
    alone = [differences(first, run, resamples=50) for run in others]
    for one, *each in zip(together, *alone, strict=True):
        assert one.second == pytest.approx(np.mean([single.second for single in each]))
        assert one.value == pytest.approx(np.mean([single.value for single in each]))
        assert one.interval is not None and one.interval.low <= one.value <= one.interval.high


def test_seeds_of_one_setting_are_one_group(multitask: Made, contrastive: Made) -> None:
    seeds = {"arm/seed-1": 1, "arm/seed-2": 2, "other": 3}
    folders = [*(multitask(name, seed=seed) for name, seed in seeds.items()), contrastive()]
    path = folders[2] / "manifest.json"
    path.write_text(path.read_text().replace('"power": 0.5', '"power": 0.9'))
    runs = [read_run(folder, name) for folder, name in zip(folders, ("arm/seed-1", "arm/seed-2", "other", "cbcl"))]
    groups = page.grouped(runs)
    assert {name: len(group) for name, group in groups.items()} == {"arm": 2, "other": 1, "cbcl": 1}
    frame = page.as_frame(groups)
    assert set(frame[frame["group"] == "arm"]["seed"]) == {1, 2}
    assert set(frame[frame["group"] == "cbcl"]["metric"]) == {"similarity, Spearman's rho"}
    html = page.comparison(runs[:3], resamples=5)
    assert ">power</th>" in html and ">seed</th>" not in html and ">run_dir</th>" not in html
    shown = re.findall(r'<section id="overview">.*?</section>', html, re.DOTALL)
    assert "0.5" in shown[0] and "0.9" in shown[0] and html.count("<article") == 0, "each run has a page of its own"


def test_seeds_that_start_from_stage_one_of_their_own_seed_are_one_group(multitask: Made) -> None:
    runs = []
    for seed in (1, 2):
        run = read_run(multitask(f"r{seed}", seed=seed), f"arm/seed-{seed}")
        own = {"encoder": f"nli/seed-{seed}", "sentence_encoder": f"cbcl/seed-{seed}", "sst_dev_out": f"{seed}.csv"}
        own["weights"] = f"mlm/seed-{seed}"
        runs.append(replace(run, manifest=run.manifest | {"all_settings": run.settings | own}))
    assert [len(group) for group in page.grouped(runs).values()] == [2]


def test_no_group_hides_another_and_other_data_are_another_group(multitask: Made) -> None:
    names = ["arm/seed-1", "arm/seed-2", "arm"]
    runs = [read_run(multitask(f"r{seed}", seed=seed), name) for seed, name in enumerate(names)]
    other = runs[2].manifest | {"settings": {"data train sst": "another hash"}}
    runs[2] = replace(runs[2], manifest=other)
    found = page.grouped(runs)
    assert [[run.name for run in group] for group in found.values()] == [names[:2], names[2:]]


def test_what_cannot_be_compared_is_left_out(multitask: Made) -> None:
    run = read_run(multitask())
    accuracy, other = run.tasks["sst"], replace(run.tasks["quora"], metric="F1")
    strange = replace(run, tasks={"sst": replace(accuracy, rows=None), "quora": other, "sts": run.tasks["sts"]})
    assert [one.name for one in differences(run, strange, resamples=5)] == ["sts"], "nor is there a dev norm"


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
    _, other = overview.summary(runs(groups)).iloc
    assert other["pairs"] == pairs and np.isnan(other["low"])
    assert np.isnan(other["difference"]) == (pairs == 0)


def test_a_group_without_seeds_has_one_value_and_pairs_with_every_seed() -> None:
    frame = pd.concat([runs({"a": [1, 2, 3]}), runs({"b": [0], "c": [0]}).assign(seed=None)])
    _, one, other = overview.summary(frame, "b").to_dict("records")
    assert (one["seeds"], other["pairs"]) == (1, 1) and np.isnan(other["low"]) and np.isnan(one["deviation"])
    trained, one, _ = overview.summary(frame, "a").to_dict("records")
    assert (trained["seeds"], one["pairs"]) == (3, 3) and one["low"] < one["difference"] < one["high"]
