"""Two submissions compared on the dev rows: paired bootstrap intervals of each task and of the dev norm."""

from collections.abc import Sequence
from pathlib import Path

from tasks import submission
from tasks.report import collect, compare
from tasks.report.collect import Run, TaskScores
from tasks.report.compare import DEV_NORM, Difference
from tasks.report.measures import RESAMPLES
from tasks.report.record import Rows
from tasks.submission import Checked


def differences(
    first: Sequence[Checked], second: Sequence[Checked], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Difference]:
    """Second submission less first, both without findings: one for each task, then the dev norm."""
    return compare.differences(_as_run(first), _as_run(second), seed=seed, resamples=resamples)


def _as_run(files: Sequence[Checked]) -> Run:
    """The dev files as a run of the second stage, which is what runs are compared by."""
    tasks = {file.task.name: _scored(file) for file in files if file.split == "dev"}
    return Run(Path(), "", "multitask", {}, [], [], tasks, True, submission.norm(files), None)


def _scored(file: Checked) -> TaskScores:
    task, ids = file.task, file.expected.ids
    value, count = submission.score(file)
    rows = Rows(ids, [()] * len(ids), file.expected.gold, file.predicted, None)
    return TaskScores(task.name, task.title, task.metric, value, count, tuple(task.classes), rows=rows)


def as_text(
    first: Path, of_first: Sequence[Checked], second: Path, of_second: Sequence[Checked], resamples: int = RESAMPLES
) -> str:
    """The differences as a person reads them on the terminal."""
    names = collect.names([first, second])
    head = f"{names[1]} less {names[0]} (95% intervals of {resamples:,} paired bootstrap resamples of the dev rows)"
    return "\n".join([head, *map(_line, differences(of_first, of_second, resamples=resamples))])


def _line(one: Difference) -> str:
    values = [f"{value:.4f}" if value is not None else "undefined" for value in (one.first, one.second)]
    change = "" if one.value is None else f"{one.value:+.4f}"
    around = "" if one.around is None else f"[{one.around.low:+.4f}, {one.around.high:+.4f}]"
    metric = "" if one.name == DEV_NORM else one.metric
    return f"{one.name:<9} {metric:<12} {values[0]} -> {values[1]}  {change} {around}  {one.verdict}"
