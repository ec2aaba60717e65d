"""A task's dev rows beyond one score: classes and confusion, or gold against predicted; the worst errors."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tasks import metrics
from tasks.record import PredictedRows, TaskScores
from tasks.report import figures
from tasks.report.html import Figure
from tasks.tables import Table, class_table, number, numbers

_WORST = 25  # listed rows of a task
_SCALE = 5.0  # points between the ends of the similarity scale


@dataclass(frozen=True)
class Details:
    """What a page shows of one task; no errors where predictions have another scale than gold."""

    anchor: str
    title: str
    figure: Figure | None
    table: Table
    errors: Table | None


def details(task: TaskScores, *, texts: bool = True) -> Details:
    """Figure and tables of a task; without `texts` no sentence of the data is in them."""
    anchor, title = f"dev-{task.name}", task.title[:1].upper() + task.title[1:]
    table = class_table("", task.per_class)
    rows = task.rows.labelled() if task.rows is not None else None
    if rows is None or not len(rows):
        return Details(anchor, title, None, table, None)
    if task.classes:
        svg = figures.confusion(metrics.confusion(rows.predicted, rows.gold, len(task.classes)), task.classes)
        note = "Dev rows, and their share of the gold class."
        figure = Figure("Confusion matrix", svg, note)
    else:
        label = "cosine" if task.cosines else "predicted (points)"
        svg = figures.scatter(rows.gold, rows.predicted, y_label=label, same_scale=not task.cosines)
        figure = Figure("Predicted against gold", svg, _regression(task, rows))
    return Details(anchor, title, figure, table, None if task.cosines else worst_errors(task, rows, texts=texts))


def _regression(task: TaskScores, rows: PredictedRows) -> str:
    """Correlations, and for points also errors, in words."""
    both = {"Pearson's r": metrics.pearson, "Spearman's rho": metrics.spearman}
    parts = [f"{name} {number(of(rows.predicted, rows.gold), 3, missing='undefined')}" for name, of in both.items()]
    if not task.cosines:
        distances = np.abs(rows.predicted - rows.gold)
        parts.append(f"mean absolute error {distances.mean():.2f} points")
        parts.append(f"{(distances > 1).sum():,} of {len(rows):,} rows more than 1 point off")
    return ", ".join(parts) + "."


def row_errors(rows: PredictedRows) -> np.ndarray:
    """The error of each row, 0 to 1: 1 - the gold class's probability, or the distance on the similarity scale."""
    if rows.probabilities is not None:
        return 1 - rows.probabilities[np.arange(len(rows)), rows.gold.astype(np.int64)]
    return np.abs(rows.predicted - rows.gold) / _SCALE


def failed(task: TaskScores, rows: PredictedRows) -> np.ndarray:
    """The indices of the rows with another class than gold, or more than one point off."""
    return np.flatnonzero(np.abs(rows.predicted - rows.gold) > (0 if task.classes else 1))


def worst_errors(task: TaskScores, rows: PredictedRows, *, texts: bool) -> Table:
    """The failed rows with the largest errors."""
    errors, candidates = row_errors(rows), failed(task, rows)
    worst = rows.at(candidates[np.argsort(-errors[candidates], kind="stable")][:_WORST])
    table = {"text": [" / ".join(text) for text in worst.texts]} if texts else {}
    table |= {"id": worst.ids}
    if task.classes:
        gold, predicted = ([task.classes[int(value)] for value in side] for side in (worst.gold, worst.predicted))
        table |= {"gold": gold, "predicted": predicted, "p(gold)": numbers(1 - row_errors(worst), 3)}
    else:
        table |= {"gold": numbers(worst.gold, 1), "predicted": numbers(worst.predicted)}
        table |= {"off by": numbers(np.abs(worst.predicted - worst.gold), 3)}
    title = f"The {len(worst)} worst errors of {len(candidates):,} failed rows in {len(rows):,}"
    return Table(title, pd.DataFrame(table), left=2 if texts else 1)
