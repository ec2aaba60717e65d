"""Compare finished runs: their scores, the settings that differ, and the differences to the first with 95% intervals.

python -m tasks.compare runs/multitask runs/cbcl-multitask
python -m tasks.compare runs/a/seed-1 runs/a/seed-2 runs/b/seed-1 runs/b/seed-2

Runs that differ by their seed alone are one row, with mean and standard deviation; a second table has a row for each.
TensorBoard compares the curves.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from minbert.files import distinct_names
from minbert.train import cli
from minbert.train.loop import finite_or_none
from tasks import intervals, metrics
from tasks.intervals import RESAMPLES, Interval, interval
from tasks.metrics import DEV_NORM
from tasks.record import PredictedRows, TaskScores
from tasks.runs import Run, read_run
from tasks.tables import MISSING, Table, interval_text, number, wide

ScoresByTask = Mapping[str, TaskScores]
"""Task name -> dev scores, in the order of the tasks."""
_SEED = re.compile(r"[-_/. ]*seed[-_ ]?\d*")
_SOURCES = ("encoder", "sentence_encoder", "weights", "from_run")  # settings that name an encoder


# --- intervals over dev rows


@dataclass(frozen=True)
class Difference:
    """Second minus first in one metric, over `rows` rows in common; `interval` is None where it is undefined."""

    name: str
    metric: str
    first: float | None
    second: float | None
    interval: Interval | None
    rows: int

    @property
    def value(self) -> float | None:
        """The difference, None if either score is undefined."""
        if self.first is None or self.second is None:
            return None
        return self.second - self.first


def score_intervals(tasks: ScoresByTask, *, norm: bool) -> tuple[dict[str, Interval | None], Interval | None]:
    """95% bootstrap intervals over dev rows: of each task's score, and of the dev norm if `norm` is true."""
    samples: dict[str, np.ndarray] = {}
    by_task: dict[str, Interval | None] = {}
    for name, task in tasks.items():
        by_task[name] = None
        rows = task.labelled_rows
        if rows is not None:
            # [1, R]: one system
            samples[name] = intervals.bootstrap(
                task.metric, rows.predicted[None], rows.gold, name, resamples=RESAMPLES
            )[0]
            by_task[name] = interval(samples[name])
    if norm and samples and samples.keys() == tasks.keys():
        return by_task, interval(_dev_norm_samples(tasks, samples))
    return by_task, None


def _dev_norm_samples(tasks: ScoresByTask, samples: Mapping[str, np.ndarray]) -> np.ndarray:
    norm = metrics.dev_norm([(tasks[name].metric, values) for name, values in samples.items()])
    assert norm is not None
    return norm


def rows_in_common(systems: Sequence[PredictedRows]) -> list[PredictedRows]:
    """The labelled rows whose id, gold label and texts are in all systems, in the order of the first."""
    labelled = [rows.labelled() for rows in systems]
    indices = []
    for rows in labelled:
        keys = zip(rows.ids, rows.gold.tolist(), rows.texts)
        indices.append({key: index for index, key in enumerate(keys)})
    shared = [key for key in indices[0] if all(key in index for index in indices)]
    aligned = []
    for rows, index in zip(labelled, indices):
        aligned.append(rows.at(np.array([index[key] for key in shared], dtype=np.int64)))
    return aligned


def differences(
    first: Sequence[ScoresByTask], second: Sequence[ScoresByTask], *, norm: bool = True
) -> list[Difference]:
    """The difference (second minus first) in each common task, and in the dev norm if all tasks can be compared.

    Each side is one or more runs of a setting, whose scores are averaged. A task is left out if its metrics differ, or
    if no dev row is in all runs. Without `norm`, the dev norm is left out.
    """
    by_task: list[Difference] = []
    first_samples: dict[str, np.ndarray] = {}
    second_samples: dict[str, np.ndarray] = {}
    for name in first[0]:
        if name not in second[0]:
            continue
        compared = _compare_task([run[name] for run in first], [run[name] for run in second])
        if compared is not None:
            difference, first_samples[name], second_samples[name] = compared
            by_task.append(difference)
    same_tasks = first[0].keys() == second[0].keys() == first_samples.keys()
    if not (norm and same_tasks):
        return by_task
    # the dev norms over the common rows, as for the tasks; the reported norms may be over more rows
    gap = _dev_norm_samples(second[0], second_samples) - _dev_norm_samples(first[0], first_samples)
    whole = Difference(
        name=DEV_NORM,
        metric="mean",
        first=metrics.dev_norm([(task.metric, task.first) for task in by_task]),
        second=metrics.dev_norm([(task.metric, task.second) for task in by_task]),
        interval=interval(gap),
        rows=sum(task.rows for task in by_task),
    )
    return [*by_task, whole]


def _compare_task(
    first: Sequence[TaskScores], second: Sequence[TaskScores]
) -> tuple[Difference, np.ndarray, np.ndarray] | None:
    """The difference in one task and each side's mean score on the resamples [R]; None if it cannot be compared."""
    systems = [*first, *second]
    metric = first[0].metric
    recorded = [system.rows for system in systems if system.rows is not None]
    if len(recorded) < len(systems) or any(system.metric != metric for system in systems):
        return None
    rows = rows_in_common(recorded)
    gold = rows[0].gold
    if not len(gold):
        return None
    predicted = np.stack([system.predicted for system in rows])
    samples = intervals.bootstrap(metric, predicted, gold, first[0].name, resamples=RESAMPLES)
    scores = metrics.batched_score(metric, predicted, gold)
    split = len(first)
    first_samples = samples[:split].mean(0)
    second_samples = samples[split:].mean(0)
    difference = Difference(
        name=first[0].name,
        metric=metric,
        first=finite_or_none(float(scores[:split].mean())),
        second=finite_or_none(float(scores[split:].mean())),
        interval=interval(second_samples - first_samples),
        rows=len(gold),
    )
    return difference, first_samples, second_samples


# --- means and intervals over seeds


def summary(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """A row for each group and metric: seeds, mean, deviation, and the difference to the group `baseline`.

    `frame` has the columns group, seed, metric and value; a group without seeds has a missing seed. `seeds` counts the
    defined values; `deviation` is the sample's. `difference` is between the means, with the 95% interval
    `low` to `high` by Student's t: paired, over `pairs` seeds, if both groups have the same seeds or one has none, else
    Welch's of two samples (`pairs` is 0). All are NaN where undefined.
    """
    rows = []
    for (group, metric), of_metric in frame.groupby(["group", "metric"], sort=False):
        row = {
            "group": group,
            "metric": metric,
            "seeds": of_metric["value"].count(),
            # undefined if one seed's score is: without that seed the mean would be too high
            "mean": of_metric["value"].mean(skipna=False),
            "deviation": of_metric["value"].std(skipna=False),
        }
        base = frame[(frame["group"] == baseline) & (frame["metric"] == metric)]
        if group != baseline and len(base):
            row |= _difference_over_seeds(of_metric, base)
        rows.append(row)
    columns = ["group", "metric", "seeds", "mean", "deviation", "difference", "pairs", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _difference_over_seeds(values: pd.DataFrame, base: pd.DataFrame) -> dict[str, float]:
    difference = values["value"].mean(skipna=False) - base["value"].mean(skipna=False)
    pairs = 0
    half = np.nan
    without_seeds = values["seed"].isna().any() or base["seed"].isna().any()
    if without_seeds or set(values["seed"]) == set(base["seed"]):
        if without_seeds:
            # a single value, which is subtracted from that of every seed
            gaps = values["value"].to_numpy() - base["value"].to_numpy()
        else:
            gaps = (values.set_index("seed")["value"] - base.set_index("seed")["value"]).to_numpy()
        pairs = len(gaps)
        if pairs > 1:
            half = stats.t.ppf(0.975, pairs - 1) * stats.sem(gaps)
    elif len(values) > 1 and len(base) > 1:
        half = _welch_half_width(values["value"].to_numpy(), base["value"].to_numpy())
    return {"difference": difference, "pairs": pairs, "low": difference - half, "high": difference + half}


def _welch_half_width(first: np.ndarray, second: np.ndarray) -> float:
    """Half of Welch's 95% interval for the difference of two means; 0 where all values of each side are equal."""
    first_error = first.var(ddof=1) / len(first)
    second_error = second.var(ddof=1) / len(second)
    squared = first_error + second_error
    if squared == 0:
        return 0.0
    # Welch and Satterthwaite's degrees of freedom
    freedom = squared**2 / (first_error**2 / (len(first) - 1) + second_error**2 / (len(second) - 1))
    return float(stats.t.ppf(0.975, freedom) * np.sqrt(squared))


def mean_text(row: Any, digits: int = 4, *, times: float = 1.0) -> str:
    """Mean and, over several seeds, standard deviation of a row of a `summary`."""
    mean = number(row["mean"], digits, times=times)
    if np.isnan(row["deviation"]):
        return mean
    return f"{mean} ± {number(row['deviation'], digits, times=times)}"


# --- the comparison of runs


def group_runs(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs whose recorded settings and data are equal but for the seed, named by their names without a seed.

    The encoders that they start from are equal if paths and weights are, or if the paths differ in `seed-N` alone.
    """
    groups: list[tuple[dict[str, Any], list[Run]]] = []
    for run in runs:
        identity = _identity(run)
        start_names_seed = False
        for name in _SOURCES:
            # stage two of each seed may start from stage one of the same seed
            source = str(identity.get(name) or "")
            identity[name] = _SEED.sub("", source)
            start_names_seed |= identity[name] != source
        if not start_names_seed:
            # a folder of one name may have held another encoder
            identity["weights sha256"] = run.manifest["settings"].get("weights sha256")
        for identity_of_group, members in groups:
            # two runs of one seed are no two seeds
            if identity_of_group == identity and _seed(run) not in map(_seed, members):
                members.append(run)
                break
        else:
            groups.append((identity, [run]))
    named: dict[str, list[Run]] = {}
    names = {run.name for run in runs}
    for _, members in groups:
        name = _SEED.sub("", members[0].name)
        shared = len(members) > 1 and all(_SEED.sub("", run.name) == name for run in members)
        if not shared or not name or name in named or name in names:
            name = ", ".join(run.name for run in members)
        named[name] = members
    return named


def _seed(run: Run) -> Any:
    return run.settings.get("seed")


def _labels(run: Run) -> set[str]:
    """The labels of a run's scores, each of a task and its metric."""
    return {task.label for task in run.tasks.values()}


def _identity(run: Run) -> dict[str, Any]:
    """The settings and data hashes that a run is identified by, without the seed and the hashes of its start."""
    settings = {}
    for name, value in run.manifest["settings"].items():
        of_start = name.endswith("sha256") or name in ("data heads", "data sentence encoder")
        if name != "seed" and not name.startswith("config ") and not of_start:
            settings[name] = value
    return settings


def as_frame(groups: Mapping[str, Sequence[Run]]) -> pd.DataFrame:
    """The scores of all runs as `summary` takes them."""
    rows = []
    for group, runs in groups.items():
        for run in runs:
            scores = {task.label: task.score for task in run.tasks.values()}
            if run.multitask:
                scores[DEV_NORM] = run.dev_norm
            for metric, score in scores.items():
                row = {"group": group, "run": run.name, "seed": _seed(run), "step": _step(run)}
                rows.append(row | {"metric": metric, "value": score})
    columns = ["group", "run", "seed", "step", "metric", "value"]
    return pd.DataFrame(rows, columns=columns).astype({"value": float})


def _step(run: Run) -> str:
    """The step of the weights that are scored, of all steps of the run."""
    return f"{run.kept_step:,} of {run.scores['last_step']:,}"


def score_table(groups: Mapping[str, Sequence[Run]], summary: pd.DataFrame) -> Table:
    """A row for each group: its seeds, and the mean of each metric."""
    rows = []
    for group, runs in groups.items():
        row = {"run": group, "seed": ", ".join(str(_seed(run)) for run in runs)}
        row["step"] = "; ".join(dict.fromkeys(map(_step, runs)))
        for metric in summary["metric"].unique():
            cell = summary[(summary["group"] == group) & (summary["metric"] == metric)]
            row[metric] = mean_text(cell.iloc[0]) if len(cell) else MISSING
        rows.append(row)
    notes = []
    if (summary["seeds"] > 1).any():
        notes.append("± is the standard deviation over seeds.")
    return Table("Scores on the dev rows", pd.DataFrame(rows), tuple(notes), left=3)


def run_table(frame: pd.DataFrame) -> Table:
    """A row for each run of `as_frame`: its seed, its step, and its scores."""
    rows = wide(frame.assign(seed=frame["seed"].astype(str)), ["run", "seed", "step"], "metric", 4)
    return Table("Scores of each run", rows, left=3)


def setting_table(groups: Mapping[str, Sequence[Run]]) -> Table:
    """A row for each setting that differs between the groups, and a column for each group."""
    by_group = {name: _identity(runs[0]) for name, runs in groups.items()}
    names: dict[str, None] = {}  # a set in order of appearance
    for settings in by_group.values():
        names |= dict.fromkeys(settings)
    rows = []
    for name in names:
        cells = {}
        for group, settings in by_group.items():
            value = settings.get(name)
            text = MISSING if value in (None, "") else str(value)
            # the first digits of a hash are enough to see that the data differ
            cells[group] = text[:12] if name.startswith("data ") else text
        if len(set(cells.values())) > 1:
            rows.append({"setting": name, **cells})
    hashes = {group: str(runs[0].manifest["settings"].get("weights sha256"))[:12] for group, runs in groups.items()}
    if len(set(hashes.values())) > 1 and not any(row["setting"] in _SOURCES for row in rows):
        # other weights in a folder of the same name
        rows.append({"setting": "weights sha256", **hashes})
    # values are texts: all columns are aligned left
    return Table("Settings that differ", pd.DataFrame(rows), left=len(groups) + 1)


def difference_table(groups: Mapping[str, Sequence[Run]], summary: pd.DataFrame) -> Table:
    """The difference of each other group's means to the first's, with intervals over seeds and over dev rows."""
    baseline, *compared = groups
    first = groups[baseline]
    rows = []
    notes = []
    for group in compared:
        over_rows = _intervals_over_rows(first, groups[group])
        compared_metrics = summary[(summary["group"] == group) & summary["difference"].notna()]
        if _labels(first[0]) != _labels(groups[group][0]):
            # means over different scores
            compared_metrics = compared_metrics[compared_metrics["metric"] != DEV_NORM]
        for _, row in compared_metrics.iterrows():
            pairing = MISSING
            if row["pairs"] > 1:
                pairing = "paired"
            elif not np.isnan(row["low"]):
                pairing = "unpaired"
            value = number(row["difference"], 4, sign=True)
            cells = {
                "run": group,
                "metric": row["metric"],
                "difference": value,
                "95%, over seeds": interval_text(row["low"], row["high"], 4, sign=True),
                "pairing": pairing,
                "in common rows": MISSING,
                "95%, over rows": MISSING,
                "rows": MISSING,
            }
            difference = over_rows.get(row["metric"])
            if difference is not None and difference.interval is not None:
                in_common = number(difference.value, 4, sign=True)
                # another value only where a run was scored on other rows too
                if in_common != value:
                    cells["in common rows"] = in_common
                cells["95%, over rows"] = difference.interval.text(sign=True)
                cells["rows"] = f"{difference.rows:,}"
            rows.append(cells)
        notes += _left_out(baseline, first, group, groups[group], over_rows)
    if not rows:
        return Table(f"Differences to {baseline}", pd.DataFrame(), tuple(notes))
    frame = pd.DataFrame(rows)
    # a column without a value is left out, such as the interval over seeds of single runs
    frame = frame.loc[:, (frame != MISSING).any()]
    if "95%, over seeds" in frame:
        notes.append(
            "Over seeds: Student's t, paired if both have the same seeds, else Welch's; it needs two "
            "seeds on each side."
        )
    if "95%, over rows" in frame:
        notes.append(
            f"Over rows: {RESAMPLES:,} paired bootstrap resamples of the dev rows in common, the seeds held fixed; it "
            "does not say how another seed would differ."
        )
    return Table(f"Differences to {baseline}", frame, tuple(notes), left=2)


def _intervals_over_rows(first: Sequence[Run], second: Sequence[Run]) -> dict[str, Difference]:
    """The differences of two groups over the dev rows in common, by the metric's label; none between stages."""
    if first[0].multitask != second[0].multitask:
        return {}
    compared = differences([run.tasks for run in first], [run.tasks for run in second], norm=first[0].multitask)
    by_label = {}
    for difference in compared:
        task = first[0].tasks.get(difference.name)
        by_label[task.label if task else difference.name] = difference
    return by_label


def _left_out(
    baseline: str, first: Sequence[Run], group: str, second: Sequence[Run], over_rows: Mapping[str, Difference]
) -> list[str]:
    """What the comparison of two groups does not show, and why, in sentences."""
    if first[0].multitask != second[0].multitask:
        return [f"{group}: of the other stage than {baseline}, so no score is compared."]
    notes = []
    first_labels = _labels(first[0])
    second_labels = _labels(second[0])
    for label in sorted(first_labels ^ second_labels):
        notes.append(f"{label}: not a score of both {baseline} and {group}, so it is not compared.")
    if first[0].multitask and first_labels != second_labels:
        notes.append(f"{DEV_NORM}, {group}: a mean over other tasks than that of {baseline}, so it is not compared.")
    for label in sorted((first_labels & second_labels) - over_rows.keys()):
        reason = "no dev row of this score is recorded in both, so the scores may be of different rows"
        notes.append(f"{label}, {group}: no interval over rows, as {reason}.")
    for task in first[0].tasks.values():
        difference = over_rows.get(task.label)
        if difference is not None and difference.interval is None:
            reason = "the score is undefined in a run or on a resample"
            notes.append(f"{task.label}, {group}: no interval over rows, as {reason}.")
    return notes


def compare(runs: Sequence[Run]) -> list[Table]:
    """The tables of scores, of each run if groups have several, of settings that differ, and of differences."""
    groups = group_runs(runs)
    frame = as_frame(groups)
    over_seeds = summary(frame, next(iter(groups)))
    tables = [score_table(groups, over_seeds)]
    if len(groups) < len(runs):
        tables.append(run_table(frame))
    settings = setting_table(groups)
    if len(settings.rows):
        tables.append(settings)
    if len(groups) > 1:
        tables.append(difference_table(groups, over_seeds))
    return tables


def main(arguments: list[str] | None = None) -> None:
    """Command line: read the runs and print the tables."""
    parser = cli.Parser(prog="python -m tasks.compare", doc=__doc__)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="finished runs; the first is the baseline")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.parse_args(arguments)
    names = distinct_names(options.runs)
    runs = [read_run(folder, name) for folder, name in zip(options.runs, names, strict=True)]
    tables = compare(runs)
    texts = []
    for table in tables:
        texts.append(table.markdown().rstrip() if options.markdown else table.terminal())
    cli.say("\n\n".join(texts))


if __name__ == "__main__":
    cli.run(main)
