"""The worst dev rows of runs, as the data that the page's own script lists, searches and sorts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tasks.record import Rows, TaskScores
from tasks.report import measures
from tasks.report.collect import Run

MOST = 300  # rows of a task that a page holds
_SCALE = 5.0  # points between the ends of the similarity scale


@dataclass(frozen=True)
class Worst:
    """The rows of a task that a page lists, worst first; `wrong` is how wrong each is, 0 to 1."""

    rows: Rows
    wrong: np.ndarray
    said: str


def worst(task: TaskScores, *, cosines: bool) -> Worst | None:
    """The wrong labelled rows, `MOST` at most; None where a run has recorded none.

    Wrong is another class than the gold one, or a similarity that is more than one point off. A cosine has no points:
    there, every pair counts, by how far its rank among the cosines is from its rank in gold, as a share of the pairs.
    """
    if task.rows is None:
        return None
    rows = task.rows.labelled()
    if cosines:
        ranks = stats.rankdata(np.stack([rows.predicted, rows.gold]), axis=1)
        wrong = np.abs(ranks[0] - ranks[1]) / max(len(rows), 1)
        chosen, said = np.arange(len(rows)), f"all {task.title} pairs, by how far the cosine's rank is from gold's"
    else:
        wrong = measures.wrongness(rows, scale=_SCALE)
        chosen = np.flatnonzero(np.abs(rows.predicted - rows.gold) > (0 if task.classes else 1))
        what = "wrong" if task.classes else "more than 1 point off"
        said = f"{len(chosen):,} of {len(rows):,} {task.title} rows are {what}"
    order = chosen[np.argsort(-wrong[chosen], kind="stable")][:MOST]
    return Worst(rows.at(order), wrong[order], said + (f" (the {MOST} worst are listed)" if len(chosen) > MOST else ""))


def listed(runs: Sequence[Run], *, texts: bool) -> dict[str, Any]:
    """Runs, tasks and rows for the page's script; without `texts` no sentence of the data is in it."""
    data: dict[str, Any] = {"runs": [run.name for run in runs], "tasks": {}, "rows": [], "texts": texts, "said": []}
    for number, run in enumerate(runs):
        cosines = run.stage == "contrastive"
        for task in run.tasks.values():
            found = worst(task, cosines=cosines)
            if found is None:
                continue
            name = f"{task.name} cosines" if cosines else task.name
            title = f"{task.title} by cosine" if cosines else task.title
            data["tasks"][name] = {"title": title, "classes": list(task.classes), "cosines": cosines}
            data["rows"] += [_row(number, name, found, row, texts=texts) for row in range(len(found.rows))]
            data["said"].append(found.said + (f" in {run.name}" if len(runs) > 1 else ""))
    return data


def _row(run: int, name: str, found: Worst, row: int, *, texts: bool) -> list[Any]:
    rows = found.rows
    shares = None if rows.probabilities is None else [round(share, 4) for share in rows.probabilities[row].tolist()]
    gold, predicted, wrong = float(rows.gold[row]), float(rows.predicted[row]), float(found.wrong[row])
    sentences = list(rows.texts[row]) if texts else []
    return [run, name, rows.ids[row], sentences, gold, round(predicted, 4), shares, round(wrong, 6)]
