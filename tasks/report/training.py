"""How a run was trained, in figures: losses, scores at evaluations, what it was trained on, and how fast."""

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any

from markupsafe import Markup

from minbert.errors import UserError
from minbert.training.plan import first
from tasks import schedule
from tasks.contrastive import curriculum
from tasks.report import figures
from tasks.report.collect import Run
from tasks.report.figures import Mix, Series

_SLOTS = {"sst": 0, "quora": 1, "sts": 2}
_GROUP_SLOTS = (2, 5, 1)  # easy, semi-hard, hard: green, yellow, vermilion, as in the run's own pictures
_WINDOWS = 40  # of the task mix
_FEWEST = 3  # windows without an evaluation that make a curve
_NUMBERS = {
    "dev_norm": ("dev norm", "mean of the parts"),
    "sts_dev_spearman": ("STS dev", "Spearman's ρ"),
    "alignment": ("alignment", "mean squared distance (less is better)"),
    "uniformity": ("uniformity", "ln of a mean potential (less is better)"),
    "triplet_accuracy": ("triplet accuracy", "share of triplets told apart"),
    "full_pass_loss": ("loss without dropout", "mean NT-Xent (nats)"),
}
METRICS = {"accuracy": "accuracy", "Pearson's r": "Pearson's\u00a0r", "Spearman's rho": "Spearman's\u00a0ρ"}
"""The names of metrics on the page."""


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{seconds:.1f} s"


def curves(run: Run) -> list[tuple[str, Markup]]:
    """Title and figure of the loss of each task, the numbers of the evaluations, and the mix."""
    last = run.manifest.get("plan", {}).get("steps", 0)
    how: dict[str, Any] = {"marks": [row["step"] for row in run.evaluations], "kept": run.kept_step, "last": last}
    found = []
    losses = {name.removesuffix("/loss") for row in run.train for name in row if name.endswith("/loss")}
    for name in sorted(losses, key=lambda one: ([*run.tasks, one].index(one), one)):
        title, unit = _loss(run, name)
        line = Series(title, points(run.train, f"{name}/loss"), _SLOTS.get(name, 0))
        found.append((title, figures.curves(title, [line], y_label=unit, from_zero=True, **how)))
    for key in evaluated(run):
        title, unit = meaning(run, key)
        if reached := points(run.evaluations, key):
            line = Series(title, reached, _SLOTS.get(key, 3))
            found.append((title, figures.curves(f"{title}: at evaluations", [line], y_label=unit, dots=True, **how)))
    return found + _mixes(run)


def _loss(run: Run, name: str) -> tuple[str, str]:
    """Title and unit of a training loss."""
    if not run.multitask or name not in run.tasks:
        return "training loss", "mean loss"
    unit = "nats" if run.tasks[name].classes else "points²"
    return f"{run.tasks[name].title}: training loss", f"mean loss ({unit})"


def evaluated(run: Run) -> list[str]:
    """The names of the numbers that a run's evaluations give, in their order."""
    skip = {"kind", "step", "epoch", "score", "best", "seconds"}
    return list(dict.fromkeys(name for row in run.evaluations for name in row if name not in skip))


def meaning(run: Run, key: str) -> tuple[str, str]:
    """Title and unit of a number of evaluations."""
    if key in run.tasks and run.multitask:
        return f"{run.tasks[key].title}: dev", METRICS.get(run.tasks[key].metric, "score")
    return _NUMBERS.get(key, (key.replace("_", " "), "value"))


def points(rows: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of the rows in which `key` is a number."""
    return [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]


def _mixes(run: Run) -> list[tuple[str, Markup]]:
    how: dict[str, Any]
    if run.multitask:
        made, title, how = task_mix(run), "task mix", {"x_label": "step", "y_label": "share of the updates"}
    else:
        made, title = curriculum_mix(run), "curriculum"
        how = {"x_label": "epoch", "y_label": "share of the epoch's triplets", "apart": True, "slots": _GROUP_SLOTS}
    labels = [run.task_title(name) for name in made.parts] if made else []
    return [(title, figures.shares(title, made, labels, **how))] if made else []


def task_mix(run: Run) -> Mix | None:
    """Steps of each task in windows of the plan; None if this version would not make the manifest's plan."""
    settings, data = run.settings, run.data.get("train", {})
    try:
        names = list(data)  # in the schedule's order
        sizes = run.manifest.get("training_rows") or {name: data[name]["kept"] for name in names}
        pace = {name: settings[name] for name in ("epochs", "batch_size", "seed", "power")}
        plan = first(schedule.plan(settings["sampling"], sizes, **pace), settings.get("max_steps", 0))
    except (KeyError, UserError):
        return None
    if list(plan.lengths) != run.manifest.get("plan", {}).get("steps_per_epoch"):
        return None
    order = [task for epoch in range(len(plan.lengths)) for task, _ in plan.build(epoch)]
    rounds = -(-len(order) // (_WINDOWS * len(names)))  # a window holds whole rounds of the tasks
    size = rounds * len(names)
    ends = (*range(size, len(order), size), len(order))
    counts, start = [], 0
    for end in ends:
        window = Counter(order[start:end])
        counts.append(tuple(window[name] for name in names))
        start = end
    return Mix(tuple(names), ends, tuple(counts))


def curriculum_mix(run: Run) -> Mix | None:
    """Triplets of each difficulty in every epoch (CBCL, equation 2), from the manifest's shares; None without them.

    Counts are rounded to whole numbers.
    """
    shares = run.manifest.get("curriculum", {}).get("mix_per_epoch")
    steps, size = run.manifest.get("plan", {}).get("steps_per_epoch"), run.settings.get("batch_size")
    if not shares or not steps or len(shares) != len(steps) or not size:
        return None
    drawn = [number * size for number in steps]
    counts = tuple(tuple(round(part * rows) for part in row) for row, rows in zip(shares, drawn, strict=True))
    return Mix(curriculum.GROUPS, tuple(range(1, len(counts) + 1)), counts)


@dataclass(frozen=True)
class Throughput:
    """Examples a second over training; `left_out` windows held an evaluation, too."""

    figure: Markup
    median: float
    seconds: float
    evaluating: float
    left_out: int


def throughput(run: Run) -> Throughput | None:
    """The throughput of the windows of training that do not begin with an evaluation, if there are enough of them."""
    evaluations = {row["step"] for row in run.evaluations}
    starts = [0, *(row["step"] for row in run.train[:-1])]
    clean = [row for row, start in zip(run.train, starts) if start not in evaluations]
    clean = clean if len(clean) >= _FEWEST else run.train
    speeds = points(clean, "examples_per_second")
    if not speeds:
        return None
    how: dict[str, Any] = {"y_label": "examples a second", "from_zero": True, "last": run.train[-1]["step"]}
    drawn = figures.curves("throughput", [Series("examples", speeds, 4)], **how)
    evaluating = sum(row.get("seconds", 0) for row in run.evaluations)
    return Throughput(drawn, median(speed for _, speed in speeds), run.seconds, evaluating, len(run.train) - len(clean))
