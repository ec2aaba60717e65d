"""A run's dev rows beyond one score: the calibration of its confidence, and its worst errors as data of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tasks.record import Rows, TaskScores
from tasks.report.collect import Run

MOST = 300  # rows of a task that a page holds
_SCALE = 5.0  # points between the ends of the similarity scale


@dataclass(frozen=True)
class Bin:
    """The rows with a confidence in (low, high], and how many are right; confidence and accuracy are means, or NaN."""

    low: float
    high: float
    count: int
    right: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """A reliability diagram and its expected calibration error."""

    bins: tuple[Bin, ...]
    ece: float


def calibration(rows: Rows, bins: int) -> Calibration:
    """Bins of equal width over 0..1 of the probability of the predicted class (Guo et al. 2017, section 2).

    The expected calibration error is the mean over rows of their bin's |accuracy - confidence|.
    """
    assert rows.probabilities is not None and len(rows)
    confidence = rows.probabilities[np.arange(len(rows)), rows.predicted.astype(np.int64)]
    place = np.clip(np.ceil(confidence * bins - 1e-9).astype(np.int64) - 1, 0, bins - 1)
    counts, sure, right = (
        np.bincount(place, weights=weights, minlength=bins)
        for weights in (None, confidence, rows.predicted == rows.gold)
    )
    with np.errstate(invalid="ignore"):
        means = zip((sure / counts).tolist(), (right / counts).tolist(), strict=True)
    found = [
        Bin(number / bins, (number + 1) / bins, int(counts[number]), int(right[number]), *both)
        for number, both in enumerate(means)
    ]
    return Calibration(tuple(found), float(np.abs(right - sure).sum() / len(rows)))


def row_errors(rows: Rows, *, cosines: bool) -> np.ndarray:
    """The error of each row, 0 to 1: 1 - the gold class's probability, or the distance of two similarities.

    Cosines have another scale than gold: their error is the difference of the two ranks as a share of the rows.
    """
    if rows.probabilities is not None:
        return 1 - rows.probabilities[np.arange(len(rows)), rows.gold.astype(np.int64)]
    if cosines:
        ranks = stats.rankdata(np.stack([rows.predicted, rows.gold]), axis=1)
        return np.abs(ranks[0] - ranks[1]) / max(len(rows), 1)
    return np.minimum(np.abs(rows.predicted - rows.gold) / _SCALE, 1.0)


def worst(task: TaskScores, rows: Rows, *, cosines: bool) -> tuple[Rows, np.ndarray, str]:
    """The rows with another class than gold, or more than one point off, the worst first: rows, errors, a summary.

    At most `MOST` rows. A cosine has no points: all pairs count.
    """
    wrong = row_errors(rows, cosines=cosines)
    chosen = np.arange(len(rows)) if cosines else failed(task, rows)
    if cosines:
        summary = f"all {task.title} pairs, by the distance of the cosine's rank from gold's"
    else:
        what = "wrong" if task.classes else "more than 1 point off"
        summary = f"{len(chosen):,} of {len(rows):,} {task.title} rows are {what}"
    summary += f" (the {MOST} worst are listed)" if len(chosen) > MOST else ""
    order = chosen[np.argsort(-wrong[chosen], kind="stable")][:MOST]
    return rows.at(order), wrong[order], summary


def failed(task: TaskScores, rows: Rows) -> np.ndarray:
    """The places of the rows with another class than gold, or more than one point off."""
    return np.flatnonzero(np.abs(rows.predicted - rows.gold) > (0 if task.classes else 1))


def listed_errors(runs: Sequence[Run], *, texts: bool) -> dict[str, Any]:
    """Runs, tasks and rows for the page's script; without `texts` no sentence of the data is in it."""
    data: dict[str, Any] = {
        "runs": [run.name for run in runs],
        "tasks": {},
        "rows": [],
        "texts": texts,
        "summaries": [],
    }
    for number, run in enumerate(runs):
        cosines = not run.multitask
        for task in run.tasks.values():
            if task.rows is None:
                continue
            rows, wrong, summary = worst(task, task.rows.labelled(), cosines=cosines)
            name = f"{task.name} cosines" if cosines else task.name
            title = f"{task.title} by cosine" if cosines else task.title
            data["tasks"][name] = {"title": title, "classes": list(task.classes), "cosines": cosines}
            data["rows"] += [[number, name, *_fields(rows, wrong, row, texts=texts)] for row in range(len(rows))]
            data["summaries"].append(summary + (f" in {run.name}" if len(runs) > 1 else ""))
    return data


def _fields(rows: Rows, wrong: np.ndarray, row: int, *, texts: bool) -> list[Any]:
    shares = None if rows.probabilities is None else [round(share, 4) for share in rows.probabilities[row].tolist()]
    sentences = list(rows.texts[row]) if texts else []
    gold, predicted = float(rows.gold[row]), round(float(rows.predicted[row]), 4)
    return [rows.ids[row], sentences, gold, predicted, shares, round(float(wrong[row]), 6)]
