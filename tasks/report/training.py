"""How a run was trained, in figures: losses, scores at evaluations, what it was trained on, and how fast."""

from statistics import median
from typing import Any

from tasks.report import figures, mix
from tasks.report.collect import Run
from tasks.report.figures import Series

_SLOTS = {"sst": 0, "quora": 1, "sts": 2}
_GROUP_SLOTS = (2, 5, 1)  # easy, semi-hard, hard: green, yellow, vermilion, as the pictures have them
_NUMBERS = {
    "dev_norm": ("dev norm", "mean of the parts"),
    "sts_dev_spearman": ("STS dev", "Spearman's ρ"),
    "alignment": ("alignment", "mean squared distance (less is better)"),
    "uniformity": ("uniformity", "ln of a mean potential (less is better)"),
    "triplet_accuracy": ("triplet accuracy", "share of triplets told apart"),
    "full_pass_loss": ("loss without dropout", "mean NT-Xent (nats)"),
}
_FEWEST = 3  # windows without an evaluation that make a curve
METRICS = {"accuracy": "accuracy", "Pearson's r": "Pearson's\u00a0r", "Spearman's rho": "Spearman's\u00a0ρ"}
"""What a metric is called on the page."""


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{seconds:.1f} s"


def curves(run: Run) -> list[dict[str, Any]]:
    """The loss of each task, the numbers of the evaluations, and the mix, each with a title."""
    marks, last = [row["step"] for row in run.evaluations], run.manifest.get("plan", {}).get("steps", 0)
    how: dict[str, Any] = {"marks": marks, "kept": run.kept_step, "last": last if isinstance(last, int) else 0}
    found = []
    losses = {name for row in run.train for name in row if name.endswith("/loss")}
    ordered = [f"{name}/loss" for name in run.tasks if f"{name}/loss" in losses]
    for key in [*ordered, *sorted(losses - set(ordered))]:
        title, unit = _loss(run, key.removesuffix("/loss"))
        line = Series(title, points(run.train, key), _SLOTS.get(key.removesuffix("/loss"), 0))
        drawn = figures.curves(title, [line], y_label=unit, from_zero=True, **how)
        found.append({"title": title, "figure": drawn})
    for key in evaluated(run):
        reached = points(run.evaluations, key)
        title, unit = meaning(run, key)
        if reached:
            line = Series(title, reached, _SLOTS.get(key, 3))
            drawn = figures.curves(f"{title}: at evaluations", [line], y_label=unit, dots=True, **how)
            found.append({"title": title, "figure": drawn})
    return found + _mixes(run)


def _loss(run: Run, name: str) -> tuple[str, str]:
    """Title and unit of a training loss."""
    if run.stage != "multitask" or name not in run.tasks:
        return "training loss", "mean loss"
    unit = "nats" if run.tasks[name].classes else "points²"
    return f"{run.tasks[name].title}: training loss", f"mean loss ({unit})"


def evaluated(run: Run) -> list[str]:
    """The numbers that evaluations of a run give, in their order."""
    skip = {"kind", "step", "epoch", "score", "best", "seconds"}
    return list(dict.fromkeys(name for row in run.evaluations for name in row if name not in skip))


def meaning(run: Run, key: str) -> tuple[str, str]:
    """Title and unit of a number of evaluations."""
    if key in run.tasks and run.stage == "multitask":
        return f"{run.tasks[key].title}: dev", METRICS.get(run.tasks[key].metric, "score")
    return _NUMBERS.get(key, (key.replace("_", " "), "value"))


def points(rows: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of the rows in which `key` is a number."""
    known = [(row["step"], row.get(key)) for row in rows]
    return [(step, value) for step, value in known if isinstance(value, int | float) and not isinstance(value, bool)]


def _mixes(run: Run) -> list[dict[str, Any]]:
    if run.stage == "multitask":
        made, title, what, epochs = mix.of_tasks(run), "task mix", "share of the updates", False
    else:
        made, title, what, epochs = mix.of_curriculum(run), "curriculum", "share of the epoch's triplets", True
    if made is None:
        return []
    labels = [run.tasks[name].title if name in run.tasks else name for name in made.parts]
    x_label = "epoch" if epochs else "step"
    slots = () if run.stage == "multitask" else _GROUP_SLOTS
    figure = figures.shares(title, made, labels, x_label=x_label, y_label=what, apart=epochs, slots=slots)
    return [{"title": title, "figure": figure}]


def throughput(run: Run) -> dict[str, Any] | None:
    """Examples a second. A window of training that begins with an evaluation holds its time too, and is left out."""
    if not run.train:
        return None
    evaluated = {row["step"] for row in run.evaluations}
    starts = [0, *(row["step"] for row in run.train[:-1])]
    clean = [row for row, start in zip(run.train, starts, strict=True) if start not in evaluated]
    if len(clean) < _FEWEST:
        clean = run.train
    speeds = points(clean, "examples_per_second")
    if not speeds:
        return None
    line = Series("examples", speeds, 4)
    looking = sum(row.get("seconds", 0) for row in run.evaluations)
    return {
        "figure": figures.curves(
            "throughput", [line], y_label="examples a second", from_zero=True, last=run.train[-1]["step"]
        ),
        "median": f"{median(value for _, value in speeds):.0f}",
        "seconds": duration(run.seconds),
        "evaluating": duration(looking),
        "left_out": len(run.train) - len(clean),
    }
