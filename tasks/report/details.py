"""A task's dev rows beyond one score: classes, confusion and calibration, or gold against predicted; worst errors."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from tasks import metrics
from tasks.record import Rows, TaskScores
from tasks.report import figures
from tasks.report.html import Figure
from tasks.tables import Table, class_table, number, numbers

_WORST = 25  # listed rows of a task
_SCALE = 5.0  # points between the ends of the similarity scale


@dataclass(frozen=True)
class Details:
    """What a page shows of one task."""

    anchor: str
    title: str
    figures: list[Figure]
    table: Table
    errors: Table


def details(task: TaskScores, anchor: str = "", *, texts: bool = True) -> Details:
    """Figures and tables of a task; without `texts` no sentence of the data is in them."""
    anchor, title = anchor or f"dev-{task.name}", task.title[:1].upper() + task.title[1:]
    table = class_table("", task.per_class)
    rows = task.rows.labelled() if task.rows is not None else None
    if rows is None or not len(rows):
        return Details(anchor, title, [], table, Table("", pd.DataFrame()))
    if not task.classes:
        label = "cosine" if task.cosines else "predicted (points)"
        svg = figures.scatter(rows.gold, rows.predicted, y_label=label, same_scale=not task.cosines)
        drawn = [Figure(f"{anchor}-scatter", "Predicted against gold", svg, _regression(task, rows))]
        return Details(anchor, title, drawn, _levels(task, rows), worst_errors(task, rows, texts=texts))
    two, counts = len(task.classes) == 2, metrics.confusion(rows.predicted, rows.gold, len(task.classes))
    bins, error = calibration(rows, 20 if two else 10)
    shares = "Dev rows, and their share of the gold class."
    note = f"Expected calibration error {error:.3f}. Whiskers are 95% Wilson intervals; the dashed line is perfect."
    drawn = [
        Figure(f"{anchor}-confusion", "Confusion matrix", figures.confusion(counts, task.classes), shares),
        Figure(f"{anchor}-reliability", "Reliability", figures.reliability(bins, 0.5 if two else 0.0), note),
    ]
    return Details(anchor, title, drawn, table, worst_errors(task, rows, texts=texts))


def calibration(rows: Rows, bins: int) -> tuple[pd.DataFrame, float]:
    """The reliability diagram (Guo et al. 2017, section 2), and its expected calibration error.

    A bin is a part (low, high] of 0..1, of equal width, of the probability of the predicted class; it has the number
    of its rows, how many are right, and its mean confidence and accuracy. The error is the mean over rows of their
    bin's |accuracy - confidence|.
    """
    assert rows.probabilities is not None and len(rows)
    confidence = rows.probabilities[np.arange(len(rows)), rows.predicted.astype(np.int64)]
    index = np.clip(np.ceil(confidence * bins - 1e-9).astype(np.int64) - 1, 0, bins - 1)
    each = pd.DataFrame({"confidence": confidence, "accuracy": rows.predicted == rows.gold}).groupby(index)
    table = each.mean().assign(rows=each.size(), right=each["accuracy"].sum()).reindex(range(bins))
    table = table.fillna({"rows": 0, "right": 0}).astype({"rows": int, "right": int})
    table = table.assign(low=table.index / bins, high=(table.index + 1) / bins)
    gaps = (table["accuracy"].astype(float) - table["confidence"]).abs()
    return table, float((gaps * table["rows"]).sum() / len(rows))


def _regression(task: TaskScores, rows: Rows) -> str:
    """Correlations, and for points also errors, in words."""
    both = {"Pearson's r": metrics.pearson, "Spearman's rho": metrics.spearman}
    parts = [f"{name} {number(of(rows.predicted, rows.gold), 3, missing='undefined')}" for name, of in both.items()]
    if not task.cosines:
        off = np.abs(rows.predicted - rows.gold)
        parts.append(f"mean absolute error {off.mean():.2f} points")
        parts.append(f"{(off > 1).sum():,} of {len(rows):,} rows more than 1 point off")
    return ", ".join(parts) + "."


def _levels(task: TaskScores, rows: Rows) -> Table:
    """The mean prediction in each interval of gold."""
    level = np.minimum(rows.gold, _SCALE - 1).astype(int)  # the point of the scale at which a row's interval begins
    each = pd.DataFrame({"gold": rows.gold, "predicted": rows.predicted}).groupby(level)
    means, counts = each.mean().reindex(range(int(_SCALE))), each.size().reindex(range(int(_SCALE)), fill_value=0)
    table = {
        "gold similarity": [f"{point} to {point + 1}" for point in means.index],
        "rows": numbers(counts, 0),
        "mean gold": numbers(means["gold"]),
        f"mean {'cosine' if task.cosines else 'predicted'}": numbers(means["predicted"]),
    }
    return Table("", pd.DataFrame(table))


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
    """The indices of the rows with another class than gold, or more than one point off."""
    return np.flatnonzero(np.abs(rows.predicted - rows.gold) > (0 if task.classes else 1))


def worst_errors(task: TaskScores, rows: Rows, *, texts: bool) -> Table:
    """The failed rows with the largest errors; of cosines, which have no points, those of all rows."""
    errors = row_errors(rows, cosines=task.cosines)
    chosen = np.arange(len(rows)) if task.cosines else failed(task, rows)
    worst = rows.at(chosen[np.argsort(-errors[chosen], kind="stable")][:_WORST])
    table = {"text": [" / ".join(text) for text in worst.texts]} if texts else {}
    table |= {"id": worst.ids}
    if task.classes:
        gold, predicted = ([task.classes[int(value)] for value in side] for side in (worst.gold, worst.predicted))
        size = "p(gold)"
        sizes = 1 - row_errors(worst, cosines=False)
    else:
        gold, predicted = numbers(worst.gold, 1), numbers(worst.predicted)
        size = "rank off by" if task.cosines else "off by"
        sizes = np.sort(errors)[::-1][: len(worst)] if task.cosines else np.abs(worst.predicted - worst.gold)
    table |= {"gold": gold, "predicted": predicted, size: numbers(sizes, 3)}
    what = "by rank" if task.cosines else f"of {len(chosen):,} failed rows in {len(rows):,}"
    return Table(f"The {len(worst)} worst errors, {what}", pd.DataFrame(table), left=2 if texts else 1)
