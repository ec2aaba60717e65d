"""How a run was trained, in figures: losses, scores at evaluations, rates, what it was trained on, and how fast."""

from collections import Counter
from statistics import median
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from minbert.errors import UserError
from minbert.training.plan import first
from tasks import schedule
from tasks.charts import GREEN, ORANGE, SLOTS, VERMILION
from tasks.contrastive.curriculum import GROUPS
from tasks.report import figures
from tasks.report.collect import Run
from tasks.report.figures import Curve
from tasks.report.html import Figure
from tasks.tables import duration

_SLOTS = {"sst": 0, "quora": 1, "sts": 2}
_WINDOWS = 40  # of the task mix
_FEWEST = 3  # windows without an evaluation that make a curve
_NUMBERS = {
    "dev_norm": ("dev norm", "mean of the parts"),
    "sts_dev_spearman": ("STS dev", "Spearman's ρ"),
    "alignment": ("alignment", "mean squared distance (less is better)"),
    "uniformity": ("uniformity", "ln of a mean potential (less is better)"),
    "triplet_accuracy": ("triplet accuracy", "share of triplets told apart"),
    "frozen_loss": ("frozen loss", "mean NT-Xent without dropout (nats)"),
}
METRICS = {"accuracy": "accuracy", "Pearson's r": "Pearson's\u00a0r", "Spearman's rho": "Spearman's\u00a0ρ"}
"""The names of metrics on the page."""


def training_figures(run: Run, prefix: str) -> list[Figure]:
    """Losses, evaluations, learning rate, gradient norm, mix, throughput, and stage one's cosines."""
    last = run.manifest.get("plan", {}).get("steps", 0)
    how: dict[str, Any] = {"marks": [row["step"] for row in run.evaluations], "kept": run.kept_step, "last": last}
    found = []
    for name in parts(run, "loss"):
        title, unit = loss_meaning(run, name)
        chance = run.scores.get("chance_loss")
        level = None if chance is None else (chance, f"chance: {chance:.2f}")
        lines = [(title, points(run.train, f"{name}/loss"), _SLOTS.get(name, 0))]
        found.append(_curve(prefix, title, f"loss-{name}", Curve(unit, lines, level=level, **how)))
    for key in evaluated(run):
        title, unit = meaning(run, key)
        line = (title, at_evaluations(run, key), _SLOTS.get(key, 3))
        found.append(_curve(prefix, title, f"dev-{key}", Curve(unit, [line], dotted=True, **how)))
    line = ("learning rate", points(run.train, "lr"), 4)
    found.append(_curve(prefix, "learning rate", "learning-rate", Curve("learning rate", [line], **how)))
    names = parts(run, "gradient_norm")
    norms = [(run.task_title(name), points(run.train, f"{name}/gradient_norm"), _SLOTS.get(name, 0)) for name in names]
    found.append(_curve(prefix, "gradient norm", "gradient-norm", Curve("L2 norm of the gradient", norms, **how)))
    return [one for one in [*found, throughput(run, prefix), *_mixes(run, prefix), *_cosines(run, prefix)] if one]


def _curve(prefix: str, title: str, name: str, curve: Curve, note: str = "") -> Figure | None:
    lines = [line for line in curve.lines if line[1]]
    if not lines:
        return None
    curve = Curve(**{**vars(curve), "lines": lines})
    return Figure(prefix + name, title, figures.curves(curve), note, curve.data())


def parts(run: Run, number: str) -> list[str]:
    """The tasks (or `nli`) for which training logs a number, in the order of the run's tasks."""
    names = {name.removesuffix(f"/{number}") for row in run.train for name in row if name.endswith(f"/{number}")}
    return sorted(names, key=lambda one: ([*run.tasks, one].index(one), one))


def loss_meaning(run: Run, name: str) -> tuple[str, str]:
    """Title and unit of a training loss."""
    if not run.multitask or name not in run.tasks:
        return "training loss", "mean loss (nats)" if run.scores.get("chance_loss") else "mean loss"
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


def at_evaluations(run: Run, key: str) -> list[tuple[float, float]]:
    """(step, value) of a number of the evaluations, with stage one's value before training at step 0."""
    before = run.changes.get(key, {}).get("before")
    return [*([] if before is None else [(0, before)]), *points(run.evaluations, key)]


def _mixes(run: Run, prefix: str) -> list[Figure]:
    mix = task_mix(run) if run.multitask else curriculum_mix(run)
    if not mix:
        return []
    counts, ends = mix
    if run.multitask:
        named, colours = {run.task_title(name): values for name, values in counts.items()}, SLOTS
        return [Figure(f"{prefix}mix", "share of the updates", figures.shares(named, [0, *ends], "step", colours))]
    svg = figures.shares(counts, [0.5, *(end + 0.5 for end in ends)], "epoch", (GREEN, ORANGE, VERMILION))
    return [Figure(f"{prefix}mix", "share of the epoch's triplets", svg)]


def task_mix(run: Run) -> tuple[dict[str, list[int]], list[int]] | None:
    """Steps of each task in windows of the plan, and where they end; None if this version would not make this plan."""
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
    size = -(-len(order) // (_WINDOWS * len(names))) * len(names)  # a window holds whole rounds of the tasks
    ends = [*range(size, len(order), size), len(order)]
    windows = [Counter(order[start:end]) for start, end in zip([0, *ends], ends)]
    return {name: [window[name] for window in windows] for name in names}, ends


def curriculum_mix(run: Run) -> tuple[dict[str, list[int]], list[int]] | None:
    """Triplets of each difficulty in every epoch (CBCL, equation 2), and the epochs; None without a curriculum."""
    shares = run.manifest.get("curriculum", {}).get("mix_per_epoch")
    steps, size = run.manifest.get("plan", {}).get("steps_per_epoch"), run.settings.get("batch_size")
    if not shares or not steps or len(shares) != len(steps) or not size:
        return None
    counts = np.rint(np.array(shares) * size * np.array(steps)[:, None]).astype(int)
    return dict(zip(GROUPS, counts.T.tolist(), strict=True)), list(range(1, len(steps) + 1))


def throughput(run: Run, prefix: str) -> Figure | None:
    """Examples a second in the windows that do not begin with an evaluation, if there are enough of them."""
    evaluations = {row["step"] for row in run.evaluations}
    starts = [0, *(row["step"] for row in run.train[:-1])]
    clean = [row for row, start in zip(run.train, starts) if start not in evaluations]
    clean = clean if len(clean) >= _FEWEST else run.train
    speeds = points(clean, "examples_per_second")
    if not speeds:
        return None
    evaluating = sum(row.get("seconds", 0) for row in run.evaluations)
    note = f"Median {median(speed for _, speed in speeds):.0f} examples a second; {duration(run.seconds)} in all, "
    note += f"evaluations {duration(evaluating)}."
    if len(clean) < len(run.train):
        note += " Windows that begin with an evaluation are left out of the curve."
    return _curve(prefix, "throughput", "throughput", Curve("examples a second", [("examples", speeds, 4)]), note)


def _cosines(run: Run, prefix: str) -> list[Figure]:
    """Stage one's triplets: their difficulty at the start, and their cosines before and after training."""
    path = run.folder / "cosines.safetensors"
    taken = load_file(path) if path.is_file() else {}
    found = []
    if "start positive" in taken:
        margin = run.settings.get("margin", 0.0)
        svg = figures.gaps(taken["start positive"], taken["start negative"], margin)
        found.append(Figure(f"{prefix}groups", "difficulty of the triplets", svg))
    times, sides = ("after", "before"), ("positive", "negative")
    looks = {(when, side): taken[f"{when} {side}"] for side in sides for when in times if f"{when} {side}" in taken}
    if looks:
        found.append(Figure(f"{prefix}cosines", "cosine to the anchor", figures.cosines(looks)))
    return found
