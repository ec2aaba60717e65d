"""Is the difference between two systems significant? Paired bootstrap over their common dev rows.

A system is one run or submission, or several that differ by their seed, whose scores are averaged.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tasks import intervals, metrics
from tasks.intervals import RESAMPLES, Difference, Interval, interval
from tasks.record import Rows, TaskScores

DEV_NORM = "dev norm"
Scored = Mapping[str, TaskScores]
"""Task name -> dev scores, in the order of the tasks."""


def own_intervals(
    tasks: Scored, *, norm: bool, resamples: int = RESAMPLES
) -> tuple[dict[str, Interval | None], Interval | None]:
    """95% bootstrap intervals over dev rows: of each task's score, and of the dev norm if `norm` is true."""
    drawn: dict[str, np.ndarray] = {}
    for name, task in tasks.items():
        rows = task.rows.labelled() if task.rows is not None else None
        if rows is not None and len(rows) and task.metric in intervals.METRICS:
            draws = intervals.bootstrap(task.metric, rows.predicted[None], rows.gold, name, resamples=resamples)
            drawn[name] = draws[0]
    found = {name: interval(drawn[name]) if name in drawn else None for name in tasks}
    whole = norm and bool(drawn) and drawn.keys() == tasks.keys()
    return found, interval(_norm(tasks, drawn)) if whole else None


def _norm(tasks: Scored, drawn: Mapping[str, np.ndarray]) -> np.ndarray:
    return metrics.dev_norm((tasks[name].metric, values) for name, values in drawn.items())


def common(systems: Sequence[Rows]) -> list[Rows]:
    """The labelled rows whose id and gold label are in all systems, in the order of the first."""
    known = [rows.labelled() for rows in systems]
    places = [{pair: place for place, pair in enumerate(zip(rows.ids, rows.gold.tolist()))} for rows in known]
    kept = [pair for pair in places[0] if all(pair in other for other in places[1:])]
    return [rows.at(np.array([at[pair] for pair in kept], dtype=np.int64)) for rows, at in zip(known, places)]


def differences(
    first: Sequence[Scored],
    second: Sequence[Scored],
    norms: tuple[float | None, float | None] | None = None,
    *,
    resamples: int = RESAMPLES,
) -> list[Difference]:
    """The difference (second minus first) in each common task, and in the dev norm if both have the same tasks.

    Each side is one or more runs of a setting, whose scores are averaged. `norms` are the two reported dev norms; if it
    is None, the dev norm is left out.
    """
    one, two = first[0], second[0]
    found, drawn = [], {}
    for name in (name for name in one if name in two):
        difference, draws = _task([side[name] for side in first], [side[name] for side in second], resamples)
        found.append(difference)
        if draws is not None:
            drawn[name] = draws
    if norms is None or one.keys() != two.keys():
        return found
    if drawn.keys() != one.keys():
        return [*found, Difference(DEV_NORM, "mean", *norms, None, why="not every task can be compared")]
    # Dev norms over the common rows, as for the scores in `found`; the reported norms may cover other rows.
    before, after = (
        metrics.dev_norm(side)
        for side in ([(each.metric, each.first) for each in found], [(each.metric, each.second) for each in found])
    )
    both = [_norm(one, {name: draws[side] for name, draws in drawn.items()}) for side in (0, 1)]
    rows = sum(each.rows for each in found)
    return [*found, Difference(DEV_NORM, "mean", before, after, interval(both[1] - both[0]), rows)]


def _task(
    first: Sequence[TaskScores], second: Sequence[TaskScores], resamples: int
) -> tuple[Difference, np.ndarray | None]:
    """The difference in one task, and each side's scores on the resamples: [2, R]."""
    systems, name, metric = [*first, *second], first[0].name, first[0].metric
    kinds, why = {one.metric for one in systems}, ""
    recorded = [one.rows for one in systems if one.rows is not None]
    rows = common(recorded) if len(recorded) == len(systems) else []
    if len(kinds) > 1:
        why = f"different metrics: {metric} and {second[0].metric}"
    elif metric not in intervals.METRICS:
        why = f"no interval for {metric}"
    elif not rows:
        why = "no dev rows recorded"
    elif not len(rows[0]):
        why = "no dev row in common"
    if why:
        one, two = (_mean([task.score for task in side]) for side in (first, second))
        return Difference(name, metric, one, two, None, why=why), None

    def averaged(of_each: np.ndarray) -> np.ndarray:
        return np.stack([of_each[: len(first)].mean(0), of_each[len(first) :].mean(0)])

    predicted, gold = np.stack([one.predicted for one in rows]), rows[0].gold
    draws = averaged(intervals.bootstrap(metric, predicted, gold, name, resamples=resamples))
    values = averaged(intervals.scores(metric, predicted, gold)).tolist()
    before, after = (value if np.isfinite(value) else None for value in values)
    only: tuple[int | None, int | None] = (None, None)
    if first[0].classes and len(systems) == 2:
        right = predicted == gold
        only = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    return Difference(name, metric, before, after, interval(draws[1] - draws[0]), len(gold), *only), draws


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return float(np.mean(known)) if len(known) == len(scores) else None


def as_text(names: tuple[str, str], found: list[Difference], resamples: int = RESAMPLES) -> str:
    """The differences as terminal output; `names` are those of the first and the second system."""
    head = f"{names[1]} minus {names[0]} (95% intervals of {resamples:,} paired bootstrap resamples of the dev rows)"
    return "\n".join([head, *map(_line, found)])


def _line(one: Difference) -> str:
    values = [metrics.shown(value) for value in (one.first, one.second)]
    change = "" if one.value is None else f"{one.value:+.4f}"
    around = "" if one.around is None else f"[{one.around.low:+.4f}, {one.around.high:+.4f}]"
    metric = "" if one.name == DEV_NORM else one.metric
    return f"{one.name:<9} {metric:<12} {values[0]} -> {values[1]}  {change} {around}  {one.verdict}"
