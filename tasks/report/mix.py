"""What a run trained on over time, rebuilt from its manifest: the plans are pure functions of it."""

from collections import Counter
from dataclasses import dataclass

from minbert.errors import UserError
from minbert.training.plan import first
from tasks import schedule
from tasks.contrastive import curriculum
from tasks.report.collect import Run

_WINDOWS = 40


@dataclass(frozen=True)
class Mix:
    """Counts of each part in consecutive windows; `ends[i]` is where window i ends, in steps or epochs."""

    parts: tuple[str, ...]
    ends: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]  # [windows][parts]


def of_tasks(run: Run) -> Mix | None:
    """Steps of each task in windows of the plan; None where the plan of the manifest is not one of this version."""
    settings, data = run.settings, run.manifest.get("data", {}).get("train", {})
    try:
        names = list(data)  # as the schedule took them
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


def of_curriculum(run: Run) -> Mix | None:
    """Triplets of each difficulty in every epoch's steps (CBCL, equation 2), as the run's manifest has their shares.

    None where the run has no such groups. Counts are shares of the epoch's triplets, to the nearest whole number.
    """
    shares = run.manifest.get("curriculum", {}).get("mix_per_epoch")
    steps, size = run.manifest.get("plan", {}).get("steps_per_epoch"), run.settings.get("batch_size")
    if not shares or not steps or len(shares) != len(steps) or not isinstance(size, int):
        return None
    drawn = [number * size for number in steps]
    counts = tuple(tuple(round(part * rows) for part in row) for row, rows in zip(shares, drawn, strict=True))
    return Mix(curriculum.GROUPS, tuple(range(1, len(counts) + 1)), counts)
