"""Is the difference between two runs or submissions significant? Paired bootstrap over their common dev rows."""

from collections.abc import Mapping

import numpy as np

from tasks import intervals
from tasks.intervals import RESAMPLES, Difference, Interval, interval
from tasks.record import Rows, TaskScores

DEV_NORM = "dev norm"
Scored = Mapping[str, TaskScores]
"""Task name -> dev scores, in the order of the tasks."""


def own_intervals(
    tasks: Scored, *, norm: bool, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[dict[str, Interval | None], Interval | None]:
    """95% bootstrap intervals over dev rows: of each task's score, and of the dev norm if `norm` is true."""
    drawn: dict[str, np.ndarray] = {}
    for name, task in tasks.items():
        rows = task.rows.labelled() if task.rows is not None else None
        if rows is not None and len(rows) and task.metric in intervals.METRICS:
            how = {"seed": seed, "resamples": resamples}
            drawn[name] = intervals.bootstrap(task.metric, rows.predicted[None], rows.gold, name, **how)[0]
    found = {name: interval(drawn[name]) if name in drawn else None for name in tasks}
    whole = norm and bool(drawn) and drawn.keys() == tasks.keys()
    return found, interval(_norm(tasks, drawn)) if whole else None


def _norm(tasks: Scored, drawn: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.mean([intervals.normalised(tasks[name].metric, values) for name, values in drawn.items()], axis=0)


def paired(first: Rows, second: Rows) -> tuple[Rows, Rows]:
    """The labelled rows whose id and gold label are in both, in the order of `first`."""
    one, two = first.labelled(), second.labelled()
    places = {id_: place for place, id_ in enumerate(two.ids)}
    both = [(place, places[id_]) for place, id_ in enumerate(one.ids) if id_ in places]
    same = [(here, there) for here, there in both if one.gold[here] == two.gold[there]]
    here, there = np.array(same, dtype=np.int64).reshape(-1, 2).T
    return one.at(here), two.at(there)


def differences(
    first: Scored,
    second: Scored,
    norms: tuple[float | None, float | None] | None = None,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Difference]:
    """The difference (second minus first) in each common task, and in the dev norm if both have the same tasks.

    `norms` are the two reported dev norms; if it is None, the dev norm is left out.
    """
    found, drawn = [], {}
    for name in (name for name in first if name in second):
        one, made = _task(first[name], second[name], seed, resamples)
        found.append(one)
        if made is not None:
            drawn[name] = made
    if norms is None or first.keys() != second.keys():
        return found
    if drawn.keys() != first.keys():
        return [*found, Difference(DEV_NORM, "mean", *norms, None, why="not every task can be compared")]
    # Dev norms over the common rows, as for the scores in `found`; the reported norms may cover other rows.
    before, after = (
        float(np.mean([0.0 if score is None else intervals.normalised(metric, score) for metric, score in side]))
        for side in ([(one.metric, one.first) for one in found], [(one.metric, one.second) for one in found])
    )
    both = [_norm(first, {name: draws[side] for name, draws in drawn.items()}) for side in (0, 1)]
    rows = sum(each.rows for each in found)
    return [*found, Difference(DEV_NORM, "mean", before, after, interval(both[1] - both[0]), rows)]


def _task(first: TaskScores, second: TaskScores, seed: int, resamples: int) -> tuple[Difference, np.ndarray | None]:
    def without(why: str) -> tuple[Difference, None]:
        return Difference(first.name, first.metric, first.score, second.score, None, why=why), None

    if first.metric != second.metric:
        return without(f"{first.metric} here, {second.metric} there")
    if first.metric not in intervals.METRICS:
        return without(f"no interval for {first.metric}")
    if first.rows is None or second.rows is None:
        return without("no dev rows recorded")
    one, two = paired(first.rows, second.rows)
    if not len(one):
        return without("no dev row in common")
    both = np.stack([one.predicted, two.predicted])
    draws = intervals.bootstrap(first.metric, both, one.gold, first.name, seed=seed, resamples=resamples)
    values = [float(score) if np.isfinite(score) else None for score in intervals.scores(first.metric, both, one.gold)]
    right = both == one.gold
    only = (int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())) if first.classes else (None, None)
    around = interval(draws[1] - draws[0])
    return Difference(first.name, first.metric, values[0], values[1], around, len(one), *only), draws


def as_text(names: tuple[str, str], found: list[Difference], resamples: int = RESAMPLES) -> str:
    """The differences as terminal output; `names` are those of the first and the second system."""
    head = f"{names[1]} minus {names[0]} (95% intervals of {resamples:,} paired bootstrap resamples of the dev rows)"
    return "\n".join([head, *map(_line, found)])


def _line(one: Difference) -> str:
    values = [f"{value:.4f}" if value is not None else "undefined" for value in (one.first, one.second)]
    change = "" if one.value is None else f"{one.value:+.4f}"
    around = "" if one.around is None else f"[{one.around.low:+.4f}, {one.around.high:+.4f}]"
    metric = "" if one.name == DEV_NORM else one.metric
    return f"{one.name:<9} {metric:<12} {values[0]} -> {values[1]}  {change} {around}  {one.verdict}"
