"""Guards: runs are compared over the rows they have in common, intervals are scipy's, and nothing is left out unsaid.

python -m pytest --import-mode=importlib tests/tasks/test_compare.py
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tasks import compare
from tasks.compare import Difference
from tasks.metrics import DEV_NORM
from tasks.record import PredictedRows
from tasks.runs import Run, read_run

MakeRun = Callable[..., Path]


def rows(ids: str, gold: list[float], predicted: list[float]) -> PredictedRows:
    return PredictedRows(list(ids), [("",)] * len(ids), np.array(gold), np.array(predicted), None)


def with_settings(run: Run, **settings: str | float) -> Run:
    return replace(run, manifest=run.manifest | {"settings": run.manifest["settings"] | settings})


def differences(first: Run, second: Run) -> list[Difference]:
    return compare.differences([first.tasks], [second.tasks])


def scores_of(groups: dict[str, list[int]]) -> pd.DataFrame:
    """An accuracy for each seed of each group."""
    random = np.random.default_rng(4)
    cells = []
    for group, seeds in groups.items():
        cells += [(group, seed, "accuracy", random.normal(0.5, 0.01)) for seed in seeds]
    return pd.DataFrame(cells, columns=["group", "seed", "metric", "value"])


def test_rows_pair_where_gold_agrees() -> None:
    first = rows("abcd", [1, 2, 3, np.nan], [1, 1, 1, 1])
    second = rows("dcxba", [1, 3, 0, 9, 1], [4, 3, 0, 2, 1])
    aligned = compare.rows_in_common([first, second])
    # b has another gold label in the second, d none in the first, x is only in the second
    assert aligned[0].ids == aligned[1].ids == ["a", "c"]
    assert aligned[1].predicted.tolist() == [1, 3]
    other_text = replace(second, texts=[("",), ("other",), ("",), ("",), ("",)])
    assert [system.ids for system in compare.rows_in_common([first, other_text])] == [["a"], ["a"]]


def test_better_run_has_positive_interval(multitask: MakeRun) -> None:
    weak = read_run(multitask("weak", skill=0.3))
    strong = read_run(multitask("strong", skill=0.95))
    forth = differences(weak, strong)
    assert [difference.name for difference in forth] == ["sst", "quora", "sts", DEV_NORM]
    for difference in forth:
        assert difference.interval and difference.interval.low > 0
    for difference in differences(strong, weak):
        assert difference.interval and difference.interval.high < 0
    # the last of 60 rows has no label
    assert forth[0].rows == 59


def test_dev_norm_is_over_common_rows(multitask: MakeRun) -> None:
    first = read_run(multitask("long", rows=60))
    second = read_run(multitask("short", rows=21, seed=2))
    *tasks, norm = differences(first, second)
    assert [difference.rows for difference in (*tasks, norm)] == [20, 20, 20, 60]
    for side in ("first", "second"):
        sst, quora, sts = [getattr(difference, side) for difference in tasks]
        assert getattr(norm, side) == pytest.approx((sst + quora + (sts + 1) / 2) / 3)
    assert norm.second == pytest.approx(second.dev_norm)
    assert norm.first != pytest.approx(first.dev_norm)
    assert norm.interval and norm.interval.low < norm.value < norm.interval.high


def test_runs_of_a_setting_are_averaged(multitask: MakeRun) -> None:
    first, *other_runs = [read_run(multitask(f"r{seed}", seed=seed, skill=0.6)) for seed in (1, 2, 3)]
    together = compare.differences([first.tasks], [run.tasks for run in other_runs])
    alone = [differences(first, run) for run in other_runs]
    for difference, *singles in zip(together, *alone, strict=True):
        assert difference.second == pytest.approx(np.mean([single.second for single in singles]))
        assert difference.value == pytest.approx(np.mean([single.value for single in singles]))


SAME = {"base": [1, 2, 3, 4], "other": [4, 3, 2, 1]}
OTHER = {"base": [1, 2, 3], "other": [3, 4, 5, 6]}


@pytest.mark.parametrize(("seeds", "pairs"), [(SAME, 4), (OTHER, 0)])
def test_intervals_over_seeds_are_scipys(seeds: dict[str, list[int]], pairs: int) -> None:
    """Paired where both groups have the same seeds, else Welch's, although one seed is shared."""
    frame = scores_of(seeds)
    base, other = compare.summary(frame, "base").to_dict("records")
    values = frame.pivot(index="seed", columns="group", values="value")
    test = stats.ttest_ind(values["other"].dropna(), values["base"].dropna(), equal_var=False)
    if pairs:
        test = stats.ttest_1samp(values["other"] - values["base"], 0)
    expected = test.confidence_interval(0.95)
    assert (other["low"], other["high"]) == pytest.approx((expected.low, expected.high))
    assert other["difference"] == pytest.approx(other["mean"] - base["mean"])
    assert other["deviation"] == pytest.approx(values["other"].std()) and other["pairs"] == pairs


def test_group_without_seeds_pairs_with_all() -> None:
    frame = pd.concat([scores_of({"a": [1, 2, 3]}), scores_of({"b": [0]}).assign(seed=None)])
    trained, single = compare.summary(frame, "a").to_dict("records")
    assert (trained["seeds"], single["seeds"], single["pairs"]) == (3, 1, 3)
    assert np.isnan(single["deviation"])
    assert single["low"] < single["difference"] < single["high"]


def test_seeds_of_a_setting_are_grouped(multitask: MakeRun) -> None:
    runs = []
    for seed in (1, 2):
        run = read_run(multitask(f"r{seed}", seed=seed), f"arm/seed-{seed}")
        # each starts from the first stage of its seed
        start = {"encoder": f"cbcl/seed-{seed}/encoder", "weights sha256": str(seed), "data heads": str(seed)}
        runs.append(with_settings(run, **start))
    runs.append(replace(with_settings(runs[0], power=0.9), name="other"))
    runs.append(replace(with_settings(runs[1], **{"data train sst": "another hash"}), name="arm"))
    groups = compare.group_runs(runs)
    assert [*groups.values()] == [runs[:2], runs[2:3], runs[3:]]
    table = compare.setting_table(groups).rows
    assert table[table["setting"] == "power"].values.tolist() == [["power", "0.5", "0.9", "0.5"]]


def test_other_weights_are_another_group(multitask: MakeRun) -> None:
    """The second run was started after stage one had been run again in the same folder."""
    runs = []
    for seed, sha256 in ((1, "a" * 64), (2, "b" * 64)):
        run = read_run(multitask(f"run-{seed}", seed=seed))
        runs.append(with_settings(run, **{"encoder": "runs/cbcl/encoder", "weights sha256": sha256}))
    groups = compare.group_runs(runs)
    assert len(groups) == 2
    assert compare.setting_table(groups).rows.values.tolist() == [["weights sha256", "a" * 12, "b" * 12]]


def number_of(text: str) -> float:
    return float(text.replace("−", "-"))


def test_every_difference_is_that_of_means(multitask: MakeRun) -> None:
    """Groups that share a part of their seeds, and other dev rows: the interval over rows has its own difference."""
    runs = [read_run(multitask(f"a-seed-{seed}", seed=seed, skill=0.9)) for seed in (1, 2)]
    for seed in (2, 3):
        run = read_run(multitask(f"b-seed-{seed}", seed=seed, skill=0.3, rows=40))
        run.manifest["settings"]["power"] = 0.9
        runs.append(run)
    scores, each, _, table = compare.compare(runs)
    assert each.rows["run"].tolist() == [run.name for run in runs]
    cells = scores.rows.set_index("run")
    assert cells["seed"].to_dict() == {"a": "1, 2", "b": "2, 3"}
    assert set(cells["step"]) | set(each.rows["step"]) == {f"20 of {runs[0].scores['last_step']}"}
    for row in table.rows.to_dict("records"):
        means = [float(cells[row["metric"]][group].split(" ± ")[0]) for group in ("a", "b")]
        assert number_of(row["difference"]) == pytest.approx(means[1] - means[0], abs=1.1e-4)
        assert row["pairing"] == "unpaired"
        assert row["95%, over seeds"] != "–"
        of_common = row["difference"] if row["in common rows"] == "–" else row["in common rows"]
        low, high = row["95%, over rows"].strip("[]").split(", ")
        assert number_of(low) < number_of(of_common) < number_of(high)
    assert table.rows["rows"].tolist() == ["39", "39", "39", "117"]
    assert table.rows["in common rows"].iloc[-1] != "–"


def test_undefined_score_has_no_mean() -> None:
    """Without the seed whose score is undefined, a mean would be too high."""
    columns = ["group", "seed", "metric", "value"]
    rows = [("a", 1, "r", 0.1), ("a", 2, "r", 0.2), ("b", 1, "r", 0.3), ("b", 2, "r", np.nan)]
    _, failed = compare.summary(pd.DataFrame(rows, columns=columns), "a").to_dict("records")
    assert failed["seeds"] == 1
    assert np.isnan([failed["mean"], failed["difference"], failed["low"]]).all()


def test_command_compares_stages_it_can(
    multitask: MakeRun, contrastive: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = multitask("a")
    compare.main([str(folder), str(contrastive("c")), "--markdown"])
    printed = capsys.readouterr().out
    assert "Differences to a" in printed and "c: of the other stage than a" in printed


def test_differences_are_to_the_first_run(contrastive: MakeRun) -> None:
    runs = [read_run(contrastive(name)) for name in "abc"]
    for number, run in enumerate(runs):
        run.manifest["settings"]["lr"] = number
    runs[0] = replace(runs[0], tasks={})  # trained without scored pairs
    table = compare.compare(runs)[-1]
    assert table.title == "Differences to a" and not len(table.rows)
    (scores,) = compare.compare(runs[:1])
    assert list(scores.rows) == ["run", "seed", "step"]


def test_means_over_other_tasks_differ(multitask: MakeRun) -> None:
    folder = multitask("three")
    other = multitask("two")
    for path in (other / "scores.json", other / "manifest.json"):
        content = json.loads(path.read_text())
        content.get("tasks", {}).pop("quora", None)
        if "all_settings" in content:
            content["all_settings"]["tasks"] = content["settings"]["tasks"] = "sst,sts"
        path.write_text(json.dumps(content))
    first = read_run(folder)
    table = compare.compare([first, read_run(other)])[-1]
    text = table.markdown()
    assert f"| {DEV_NORM} |" not in text
    assert f"{DEV_NORM}, two: a mean over other tasks than that of three" in text
    assert list(table.rows) == ["run", "metric", "difference", "95%, over rows", "rows"], "one seed has no interval"
    assert "Over rows:" in text and "Over seeds:" not in text
    # the same tasks, one of them by another metric
    tasks = first.tasks | {"sst": replace(first.tasks["sst"], metric="macro-F1")}
    text = compare.compare([first, replace(first, name="macro", tasks=tasks)])[-1].markdown()
    assert f"| {DEV_NORM} |" not in text
    assert f"{DEV_NORM}, macro: a mean over other tasks" in text
