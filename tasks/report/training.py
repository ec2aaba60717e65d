"""How a run was trained, in figures: losses, scores at evaluations, and the difficulty of the triplets."""

from collections.abc import Iterator, Sequence
from typing import Any

from safetensors.numpy import load_file

from tasks.report import figures
from tasks.report.figures import Line, Points
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
Panel = tuple[str, str, bool]
"""Of a figure: its title, the unit of its values, and whether its points are marked."""
_NOT_SCORES = {"kind", "step", "epoch", "score", "best", "seconds"}


def training_figures(run: Run) -> list[Figure]:
    """Losses, evaluations, and stage one's curriculum."""
    colours = {name: number for number, name in enumerate(run.tasks)}
    steps: dict[str, Any] = {"marks": [row["step"] for row in run.evaluations], "kept": run.kept_step}
    steps["last"] = run.planned_steps
    chance = run.scores.get("chance_loss")
    level = None if chance is None else (chance, f"chance: {chance:.2f}")
    shown = []
    for (title, unit, dotted), name, values in [*logged_losses(run), *logged_scores(run)]:
        if values:
            line, of_loss = (title, values, colours.get(name, 0)), level if title.endswith("training loss") else None
            shown.append(Figure(title, figures.curves(unit, [line], dotted=dotted, level=of_loss, **steps)))
    return [*shown, *_triplets(run)]


def common_curves(runs: Sequence[tuple[Run, int]]) -> list[Figure]:
    """What at least two runs have logged, a line for each run; the number of a run is that of its colour."""
    lines: dict[Panel, list[Line]] = {}
    for run, slot in runs:
        for kind, _, values in [*logged_scores(run), *logged_losses(run)]:
            lines.setdefault(kind, []).append((run.name, values, slot))
    last = max(run.planned_steps for run, _ in runs)
    return [
        Figure(title, figures.curves(unit, each, dotted=dotted, last=last))
        for (title, unit, dotted), each in lines.items()
        if len(each) > 1 and all(values for _, values, _ in each)
    ]


def logged_losses(run: Run) -> Iterator[tuple[Panel, str, Points]]:
    """(figure, task, points) of each training loss."""
    names = {name.removesuffix("/loss") for row in run.train for name in row if name.endswith("/loss")}
    for name in sorted(names, key=lambda one: ([*run.tasks, one].index(one), one)):
        title, unit = "training loss", "mean loss (nats)" if run.scores.get("chance_loss") else "mean loss"
        if run.multitask and name in run.tasks:
            title = f"{run.tasks[name].title}: training loss"
            unit = f"mean loss ({'nats' if run.tasks[name].classes else 'points²'})"
        yield (title, unit, False), name, points(run.train, f"{name}/loss")


def logged_scores(run: Run) -> Iterator[tuple[Panel, str, Points]]:
    """(figure, name, points) of each number of the evaluations, with stage one's value before training at step 0."""
    for name in dict.fromkeys(name for row in run.evaluations for name in row if name not in _NOT_SCORES):
        before = run.changes[name]["before"] if name in run.changes else None
        values = [*([] if before is None else [(0, before)]), *points(run.evaluations, name)]
        yield (*meaning(run, name), True), name, values


def meaning(run: Run, key: str) -> tuple[str, str]:
    """Title and unit of a number of evaluations."""
    if key in run.tasks and run.multitask:
        return f"{run.tasks[key].title}: dev", run.tasks[key].metric
    return NUMBERS.get(key, (key.replace("_", " "), "value"))


def points(rows: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of the rows in which `key` is a number."""
    return [(row["step"], row[key]) for row in rows if row.get(key) is not None]


def _triplets(run: Run) -> list[Figure]:
    """Stage one's triplets: each epoch's mix (CBCL, equation 2), and their difficulty at the start."""
    drawn, mixes = [], run.manifest.get("curriculum", {}).get("mix_per_epoch")
    if mixes:
        drawn.append(Figure("share of the epoch's triplets", figures.mix(mixes)))
    path = run.folder / "cosines.safetensors"
    cosines = load_file(path) if path.is_file() else {}
    if "start positive" in cosines:
        margin = float(run.settings.get("margin") or 0)
        svg = figures.gaps(cosines["start positive"], cosines["start negative"], margin)
        drawn.append(Figure("difficulty of the triplets", svg))
    return drawn
