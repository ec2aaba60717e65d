"""Is the difference between two systems significant? Paired bootstrap over their common dev rows.

A system is one run or ensemble, or several runs that differ by their seed, whose scores are averaged.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tasks import intervals, metrics
from tasks.intervals import RESAMPLES, Difference, Interval, interval
from tasks.metrics import DEV_NORM
from tasks.record import PredictedRows, TaskScores

TasksScores = Mapping[str, TaskScores]
"""Task name -> dev scores, in the order of the tasks."""


def own_intervals(
    tasks: TasksScores, *, norm: bool, resamples: int = RESAMPLES
) -> tuple[dict[str, Interval | None], Interval | None]:
    """95% bootstrap intervals over dev rows: of each task's score, and of the dev norm if `norm` is true."""
    scores: dict[str, np.ndarray] = {}
    for name, task in tasks.items():
        rows = task.rows.labelled() if task.rows is not None else None
        if rows is not None and len(rows) and task.metric in intervals.METRICS:
            samples = intervals.bootstrap(task.metric, rows.predicted[None], rows.gold, name, resamples=resamples)
            scores[name] = samples[0]
    of_tasks = {name: interval(scores[name]) if name in scores else None for name in tasks}
    whole = norm and bool(scores) and scores.keys() == tasks.keys()
    return of_tasks, interval(_norm(tasks, scores)) if whole else None


def _norm(tasks: TasksScores, scores: Mapping[str, np.ndarray]) -> np.ndarray:
    return metrics.dev_norm((tasks[name].metric, values) for name, values in scores.items())


def common(systems: Sequence[PredictedRows]) -> list[PredictedRows]:
    """The labelled rows whose id, gold label and, if all have recorded them, texts are in all systems.

    They are in the order of the first.
    """
    labelled = [rows.labelled() for rows in systems]
    with_texts = all(all(rows.texts) for rows in labelled)
    keys = [zip(rows.ids, rows.gold.tolist(), rows.texts if with_texts else rows.ids) for rows in labelled]
    indices = [{key: row for row, key in enumerate(own)} for own in keys]
    kept = [key for key in indices[0] if all(key in other for other in indices[1:])]
    return [rows.at(np.array([own[key] for key in kept], dtype=np.int64)) for rows, own in zip(labelled, indices)]


def differences(
    first: Sequence[TasksScores],
    second: Sequence[TasksScores],
    *,
    norm: bool = True,
    resamples: int = RESAMPLES,
) -> list[Difference]:
    """The difference (second minus first) in each common task, and in the dev norm if all tasks can be compared.

    Each side is one or more runs of a setting, whose scores are averaged. A task is left out if its metrics differ, or
    have no interval, or if no dev row is in all runs. Without `norm`, the dev norm is left out.
    """
    one, two = first[0], second[0]
    of_tasks: list[Difference] = []
    samples: dict[str, np.ndarray] = {}
    for name in (name for name in one if name in two):
        if compared := _task([side[name] for side in first], [side[name] for side in second], resamples):
            of_tasks.append(compared[0])
            samples[name] = compared[1]
    if not norm or not one.keys() == two.keys() == samples.keys():
        return of_tasks
    # Dev norms over the common rows, as for the scores of the tasks; the reported norms may cover other rows.
    before = metrics.dev_norm((each.metric, each.first) for each in of_tasks)
    after = metrics.dev_norm((each.metric, each.second) for each in of_tasks)
    both = [_norm(one, {name: scores[side] for name, scores in samples.items()}) for side in (0, 1)]
    rows = sum(each.rows for each in of_tasks)
    return [*of_tasks, Difference(DEV_NORM, "mean", before, after, interval(both[1] - both[0]), rows)]


def _task(
    first: Sequence[TaskScores], second: Sequence[TaskScores], resamples: int
) -> tuple[Difference, np.ndarray] | None:
    """The difference in one task, and each side's scores on the resamples [2, R]; None if it cannot be compared."""
    systems, name, metric = [*first, *second], first[0].name, first[0].metric
    recorded = [one.rows for one in systems if one.rows is not None]
    rows = common(recorded) if len(recorded) == len(systems) else []
    if {one.metric for one in systems} != {metric} or metric not in intervals.METRICS or not rows or not len(rows[0]):
        return None

    def averaged(of_each: np.ndarray) -> np.ndarray:
        return np.stack([of_each[: len(first)].mean(0), of_each[len(first) :].mean(0)])

    predicted, gold = np.stack([one.predicted for one in rows]), rows[0].gold
    samples = averaged(intervals.bootstrap(metric, predicted, gold, name, resamples=resamples))
    values = averaged(intervals.scores(metric, predicted, gold)).tolist()
    before, after = (value if np.isfinite(value) else None for value in values)
    return Difference(name, metric, before, after, interval(samples[1] - samples[0]), len(gold)), samples
