"""A run's dev rows beyond one score: the calibration of its confidence, and its worst errors as data of the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from tasks.compare import Scored
from tasks.record import Rows, TaskScores

MOST = 300  # rows of a task that a page of one run holds
_SCALE = 5.0  # points between the ends of the similarity scale


@dataclass(frozen=True)
class Calibration:
    """A reliability diagram and its expected calibration error.

    `bins` has a row for each bin (low, high], with its rows, how many are right, and mean confidence and accuracy.
    """

    bins: pd.DataFrame
    ece: float


def calibration(rows: Rows, bins: int) -> Calibration:
    """Bins of equal width over 0..1 of the probability of the predicted class (Guo et al. 2017, section 2).

    The expected calibration error is the mean over rows of their bin's |accuracy - confidence|.
    """
    assert rows.probabilities is not None and len(rows)
    confidence = rows.probabilities[np.arange(len(rows)), rows.predicted.astype(np.int64)]
    place = np.clip(np.ceil(confidence * bins - 1e-9).astype(np.int64) - 1, 0, bins - 1)
    each = pd.DataFrame({"confidence": confidence, "accuracy": rows.predicted == rows.gold}).groupby(place)
    found = each.mean().assign(rows=each.size(), right=each["accuracy"].sum()).reindex(range(bins))
    found = found.fillna({"rows": 0, "right": 0}).astype({"rows": int, "right": int})
    found = found.assign(low=found.index / bins, high=(found.index + 1) / bins)
    gaps = (found["accuracy"].astype(float) - found["confidence"]).abs()
    return Calibration(found, float((gaps * found["rows"]).sum() / len(rows)))


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


def failed(task: TaskScores, rows: Rows) -> np.ndarray:
    """The places of the rows with another class than gold, or more than one point off."""
    return np.flatnonzero(np.abs(rows.predicted - rows.gold) > (0 if task.classes else 1))


def listed_errors(systems: Mapping[str, Scored], *, texts: bool) -> dict[str, Any]:
    """Systems, tasks and their failed rows for the page's script, the worst first, `MOST` rows of a task in all.

    A cosine has no points, so that all pairs of stage one are listed. Without `texts` no sentence of the data is in it.
    """
    data: dict[str, Any] = {"runs": list(systems), "texts": texts, "tasks": {}, "rows": [], "summaries": []}
    most = MOST // len(systems)
    for number, tasks in enumerate(systems.values()):
        for task in tasks.values():
            if task.rows is None:
                continue
            rows, cosines = task.rows.labelled(), task.cosines
            wrong, chosen = row_errors(rows, cosines=cosines), np.arange(len(rows)) if cosines else failed(task, rows)
            name = f"{task.name} cosines" if cosines else task.name
            title = f"{task.title} by cosine" if cosines else task.title
            data["tasks"][name] = {"title": title, "classes": list(task.classes), "cosines": cosines}
            order = chosen[np.argsort(-wrong[chosen], kind="stable")][:most]
            data["rows"] += [[number, name, *_fields(rows, row, texts), round(float(wrong[row]), 6)] for row in order]
            said = f"all {task.title} pairs, by the distance of the cosine's rank from gold's"
            if not cosines:
                what = "wrong" if task.classes else "more than 1 point off"
                said = f"{len(chosen):,} of {len(rows):,} {task.title} rows are {what}"
            data["summaries"].append(said + (f" (the {most} worst are listed)" if len(chosen) > most else ""))
    if len(systems) > 1 and data["rows"]:
        data["summaries"] = [f"the worst rows of each task in each run, at most {most}"]
    return data


def _fields(rows: Rows, row: int, texts: bool) -> list[Any]:
    shares = None if rows.probabilities is None else [round(share, 4) for share in rows.probabilities[row].tolist()]
    sentences = list(rows.texts[row]) if texts else []
    return [rows.ids[row], sentences, float(rows.gold[row]), round(float(rows.predicted[row]), 4), shares]
