"""How a run was trained, in figures: losses, scores at evaluations, rates, difficulty of the triplets, and speed."""

from collections.abc import Sequence
from typing import Any

from safetensors.numpy import load_file

from tasks.report import figures
from tasks.report.figures import Curve
from tasks.report.html import Figure
from tasks.runs import Run

NUMBERS = {
    "dev_norm": ("dev norm", "mean of the parts"),
    "sts_dev_spearman": ("STS dev", "Spearman's rho"),
    "alignment": ("alignment", "mean squared distance (less is better)"),
    "uniformity": ("uniformity", "ln of a mean potential (less is better)"),
    "triplet_accuracy": ("triplet accuracy", "share of triplets told apart"),
    "frozen_loss": ("frozen loss", "mean NT-Xent without dropout (nats, less is better)"),
    "last_epoch_loss": ("last epoch's training loss", "mean (less is better)"),
}
"""Title and unit of the numbers of evaluations and studies."""
_NOT_SCORES = {"kind", "step", "epoch", "score", "best", "seconds"}


def training_figures(run: Run) -> list[Figure]:
    """Losses, evaluations, learning rate, gradient norm, speed, and stage one's curriculum and cosines."""
    steps = run.planned_steps or 0
    look: dict[str, Any] = {"marks": [row["step"] for row in run.evaluations], "kept": run.kept_step, "last": steps}
    drawn = []
    for name in parts(run, "loss"):
        title, unit = loss_meaning(run, name)
        chance = run.scores.get("chance_loss")
        level = None if chance is None else (chance, f"chance: {chance:.2f}")
        lines = [(title, points(run.train, f"{name}/loss"), _slot(run, name))]
        drawn.append((f"loss-{name}", title, Curve(unit, lines, level=level, **look)))
    for key in evaluated(run):
        title, unit = meaning(run, key)
        line = (title, at_evaluations(run, key), _slot(run, key))
        drawn.append((f"dev-{key}", title, Curve(unit, [line], dotted=True, **look)))
    names = parts(run, "gradient_norm")
    norms = [(run.task_title(name), points(run.train, f"{name}/gradient_norm"), _slot(run, name)) for name in names]
    drawn.append(("gradient-norm", "gradient norm", Curve("L2 norm of the gradient", norms, **look)))
    for title, key, unit in (("learning rate", "lr", ""), ("speed", "examples_per_second", "examples a second")):
        line = (title, points(run.train, key), 4)
        drawn.append((title.replace(" ", "-"), title, Curve(unit, [line], **look)))
    curves = [Figure(name, title, figures.curves(curve)) for name, title, curve in drawn if any(curve.points)]
    return [*curves, *_triplets(run)]


def _slot(run: Run, name: str) -> int:
    """The number of a task's colour."""
    return list(run.tasks).index(name) if name in run.tasks else 0


def common_curves(runs: Sequence[tuple[Run, int]]) -> list[Figure]:
    """What at least two runs have logged, a line for each run; the number of a run is that of its colour."""
    lines: dict[tuple[str, str, str, bool], list[tuple[str, figures.Points, int]]] = {}
    for run, slot in runs:
        for key in evaluated(run):
            figure = (f"dev-{key}", *meaning(run, key), True)
            lines.setdefault(figure, []).append((run.name, at_evaluations(run, key), slot))
        for key in parts(run, "loss"):
            figure = (f"loss-{key}", *loss_meaning(run, key), False)
            lines.setdefault(figure, []).append((run.name, points(run.train, f"{key}/loss"), slot))
    last = max(run.step for run, _ in runs)
    drawn = []
    for (name, title, unit, dotted), each in lines.items():
        curve = Curve(unit, each, dotted=dotted, last=last)
        if len(each) > 1 and all(curve.points):
            drawn.append(Figure(f"all-{name}", title, figures.curves(curve)))
    return drawn


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
    return list(dict.fromkeys(name for row in run.evaluations for name in row if name not in _NOT_SCORES))


def meaning(run: Run, key: str) -> tuple[str, str]:
    """Title and unit of a number of evaluations."""
    if key in run.tasks and run.multitask:
        return f"{run.tasks[key].title}: dev", run.tasks[key].metric
    return NUMBERS.get(key, (key.replace("_", " "), "value"))


def points(rows: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of the rows in which `key` is a number."""
    return [(row["step"], row[key]) for row in rows if row.get(key) is not None]


def at_evaluations(run: Run, key: str) -> list[tuple[float, float]]:
    """(step, value) of a number of the evaluations, with stage one's value before training at step 0."""
    before = run.changes[key].before if key in run.changes else None
    return [*([] if before is None else [(0, before)]), *points(run.evaluations, key)]


def _triplets(run: Run) -> list[Figure]:
    """Stage one's triplets: each epoch's mix (CBCL, equation 2), their difficulty at the start, and their cosines."""
    drawn, mixes = [], run.manifest.get("curriculum", {}).get("mix_per_epoch")
    if mixes:
        drawn.append(Figure("mix", "share of the epoch's triplets", figures.mix(mixes)))
    path = run.folder / "cosines.safetensors"
    cosines = load_file(path) if path.is_file() else {}
    if "start positive" in cosines:
        margin = float(run.settings.get("margin") or 0)
        svg = figures.gaps(cosines["start positive"], cosines["start negative"], margin)
        drawn.append(Figure("groups", "difficulty of the triplets", svg))
    keys = [(when, side) for side in ("positive", "negative") for when in ("after", "before")]
    by_side = {(when, side): cosines[f"{when} {side}"] for when, side in keys if f"{when} {side}" in cosines}
    if by_side:
        drawn.append(Figure("cosines", "cosine to the anchor", figures.cosines(by_side)))
    return drawn
