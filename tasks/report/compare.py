"""Is a difference between two runs real? Paired bootstrap over the dev rows that both have predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.report import measures
from tasks.report.collect import Run, TaskScores
from tasks.report.measures import RESAMPLES, Interval, interval
from tasks.report.record import Rows

DEV_NORM = "dev norm"


@dataclass(frozen=True)
class Difference:
    """Second run less first run on one task, or in the dev norm. `around` is None where it can't be said: see `why`."""

    name: str
    metric: str
    first: float | None
    second: float | None
    around: Interval | None
    rows: int = 0
    only_first: int | None = None  # rows that the first run alone has right
    only_second: int | None = None
    why: str = ""

    @property
    def value(self) -> float | None:
        """The difference itself."""
        return None if self.first is None or self.second is None else self.second - self.first

    @property
    def verdict(self) -> str:
        """What the interval says, in words."""
        if self.around is None:
            return self.why or "undefined"
        if self.around.low > 0:
            return "better"
        return "worse" if self.around.high < 0 else "cannot be told apart"


def own_intervals(
    run: Run, *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[dict[str, Interval | None], Interval | None]:
    """The 95% interval of each task's score over resampled dev rows, and that of the dev norm."""
    drawn: dict[str, np.ndarray] = {}
    for name, task in run.tasks.items():
        rows = task.rows.labelled() if task.rows is not None else None
        if rows is not None and len(rows) and task.metric in measures.METRICS:
            how = {"seed": seed, "resamples": resamples}
            drawn[name] = measures.bootstrap(task.metric, rows.predicted[None], rows.gold, name, **how)[0]
    found = {name: interval(drawn[name]) if name in drawn else None for name in run.tasks}
    whole = run.stage == "multitask" and drawn.keys() == run.tasks.keys() and drawn
    return found, interval(_norm(run.tasks, drawn)) if whole else None


def _norm(tasks: Mapping[str, TaskScores], drawn: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.mean([measures.normalised(tasks[name].metric, values) for name, values in drawn.items()], axis=0)


def paired(first: Rows, second: Rows) -> tuple[Rows, Rows]:
    """The labelled rows with an id and a gold label that both have, in the first's order."""
    one, two = first.labelled(), second.labelled()
    places = {id_: place for place, id_ in enumerate(two.ids)}
    both = [(place, places[id_]) for place, id_ in enumerate(one.ids) if id_ in places]
    same = [(here, there) for here, there in both if one.gold[here] == two.gold[there]]
    here, there = np.array(same, dtype=np.int64).reshape(-1, 2).T
    return one.at(here), two.at(there)


def differences(first: Run, second: Run, *, seed: int = 0, resamples: int = RESAMPLES) -> list[Difference]:
    """A difference for each task of two runs of one stage, and for the dev norm where both have the same tasks."""
    found: list[Difference] = []
    drawn = {}
    if first.stage != second.stage:
        return found
    for name in first.tasks.keys() & second.tasks.keys():
        one, draws = _task(first.tasks[name], second.tasks[name], seed, resamples)
        found.append(one)
        if draws is not None:
            drawn[name] = draws
    order = list(first.tasks)
    found.sort(key=lambda one: order.index(one.name))
    if first.stage == "multitask" and first.tasks.keys() == second.tasks.keys():
        found.append(_overall(first, second, found, drawn))
    return found


def _task(first: TaskScores, second: TaskScores, seed: int, resamples: int) -> tuple[Difference, np.ndarray | None]:
    def without(why: str) -> tuple[Difference, None]:
        return Difference(first.name, first.metric, first.score, second.score, None, why=why), None

    if first.metric != second.metric:
        return without(f"{first.metric} here, {second.metric} there")
    if first.metric not in measures.METRICS:
        return without(f"no interval for {first.metric}")
    if first.rows is None or second.rows is None:
        return without("no dev rows recorded")
    one, two = paired(first.rows, second.rows)
    if not len(one):
        return without("no dev row in common")
    both = np.stack([one.predicted, two.predicted])
    draws = measures.bootstrap(first.metric, both, one.gold, first.name, seed=seed, resamples=resamples)
    values = [float(score) if np.isfinite(score) else None for score in measures.scores(first.metric, both, one.gold)]
    right = both == one.gold
    only = (right[0] & ~right[1], right[1] & ~right[0]) if first.classes else None
    counts = (None, None) if only is None else (int(only[0].sum()), int(only[1].sum()))
    around = interval(draws[1] - draws[0])
    return Difference(first.name, first.metric, values[0], values[1], around, len(one), *counts), draws


def _overall(first: Run, second: Run, found: Sequence[Difference], drawn: Mapping[str, np.ndarray]) -> Difference:
    """The dev norm over the rows in common, as the scores in `found` are: the runs' own may be over other rows."""
    if drawn.keys() != first.tasks.keys():
        own = (first.dev_norm, second.dev_norm)
        return Difference(DEV_NORM, "mean", *own, None, why="not every task can be compared")
    scores = [
        [0.0 if score is None else measures.normalised(one.metric, score) for score in (one.first, one.second)]
        for one in found
    ]
    one, two = (_norm(first.tasks, {name: draws[side] for name, draws in drawn.items()}) for side in (0, 1))
    norms = np.mean(scores, axis=0)
    rows = sum(each.rows for each in found)
    return Difference(DEV_NORM, "mean", float(norms[0]), float(norms[1]), interval(two - one), rows)


def changed_settings(runs: list[Run]) -> list[tuple[str, list[str]]]:
    """The settings in which runs differ, paths aside, with each run's value; a dash where it has none."""
    places = {"run_dir", "resume", "save_every", "use_gpu", "data"}
    every = dict.fromkeys(name for run in runs for name in run.settings if name not in places)
    table = [(name, [_said(run.settings.get(name)) for run in runs]) for name in every if not name.endswith("_out")]
    return [(name, values) for name, values in table if len(set(values)) > 1]


def _said(value: object) -> str:
    return "–" if value in (None, "") else str(value)
