"""How a run was trained, in figures: losses, scores at evaluations, and the difficulty of the triplets."""

from collections.abc import Iterator
from typing import Any

from safetensors.numpy import load_file

from tasks.charts import BLUE, SLOTS
from tasks.report import figures
from tasks.report.figures import Figure, Points
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
Curve = tuple[str, str, str, Points]
"""A number's name, the title of its figure, its unit, and its points."""
_NOT_SCORES = {"kind", "step", "epoch", "score", "best", "seconds"}


def training_figures(run: Run) -> list[Figure]:
    """Losses, evaluations, and stage one's curriculum."""
    colours = {name: SLOTS[number % len(SLOTS)] for number, name in enumerate(run.tasks)}
    steps: dict[str, Any] = {"marks": [row["step"] for row in run.evaluations], "kept": run.kept_step}
    chance = run.scores.get("chance_loss")
    level = None if chance is None else (chance, f"chance: {chance:.2f}")

    def drawn(name: str, title: str, unit: str, values: Points, **look: Any) -> Figure:
        svg = figures.curve(unit, values, colours.get(name, BLUE), last=run.planned_steps, **steps, **look)
        return Figure(title, svg)

    losses = [drawn(*curve, level=level) for curve in _losses(run)]
    return [*losses, *(drawn(*curve, dotted=True) for curve in _scores(run)), *_triplets(run)]


def _losses(run: Run) -> Iterator[Curve]:
    """The training losses."""
    names = {name.removesuffix("/loss") for row in run.train for name in row if name.endswith("/loss")}
    for name in sorted(names, key=lambda one: ([*run.tasks, one].index(one), one)):
        title, unit = "training loss", "mean loss (nats)" if run.scores.get("chance_loss") else "mean loss"
        if run.multitask:
            title = f"{run.tasks[name].title}: training loss"
            unit = f"mean loss ({'nats' if run.tasks[name].classes else 'points²'})"
        yield name, title, unit, points(run.train, f"{name}/loss")


def _scores(run: Run) -> Iterator[Curve]:
    """The numbers of the evaluations, with stage one's value before training at step 0; undefined ones are left out."""
    for name in dict.fromkeys(name for row in run.evaluations for name in row if name not in _NOT_SCORES):
        before = run.changes[name]["before"] if name in run.changes else None
        values = [*([] if before is None else [(0, before)]), *points(run.evaluations, name)]
        if values:
            yield name, *meaning(run, name), values


def meaning(run: Run, key: str) -> tuple[str, str]:
    """Title and unit of a number of evaluations."""
    if key in run.tasks and run.multitask:
        return f"{run.tasks[key].title}: dev", run.tasks[key].metric
    return NUMBERS.get(key, (key.replace("_", " "), "value"))


def points(rows: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of the rows in which `key` is a number."""
    return [(row["step"], row[key]) for row in rows if row.get(key) is not None]


def _triplets(run: Run) -> Iterator[Figure]:
    """Stage one's triplets: each epoch's mix (CBCL, equation 2), and their difficulty at the start."""
    if mixes := run.manifest.get("curriculum", {}).get("mix_per_epoch"):
        yield Figure("share of the epoch's triplets", figures.mix(mixes))
    path = run.folder / "cosines.safetensors"
    cosines = load_file(path) if path.is_file() else {}
    if "start positive" in cosines:
        margin = float(run.settings.get("margin") or 0)
        svg = figures.gaps(cosines["start positive"], cosines["start negative"], margin)
        yield Figure("difficulty of the triplets", svg)
