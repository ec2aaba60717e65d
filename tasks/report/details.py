"""A task's dev rows beyond one score: classes and confusion, or gold against predicted; the worst errors."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tasks import metrics
from tasks.record import PredictedRows, TaskScores
from tasks.report import figures
from tasks.report.figures import Figure
from tasks.tables import Table, class_table, number, numbers

_WORST = 25  # listed rows of a task


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


def failed(task: TaskScores, rows: PredictedRows) -> np.ndarray:
    """The indices of the rows with another class than gold, or more than one point off."""
    return np.flatnonzero(np.abs(rows.predicted - rows.gold) > (0 if task.classes else 1))


def worst_errors(task: TaskScores, rows: PredictedRows, *, texts: bool) -> Table:
    """The failed rows with the least probable gold classes, or the largest distances from gold."""
    failures = rows.at(failed(task, rows))
    table = pd.DataFrame({"text": [" / ".join(text) for text in failures.texts]} if texts else {})
    table = table.assign(id=failures.ids, gold=failures.gold, predicted=failures.predicted)
    if failures.probabilities is not None:
        of_gold = failures.probabilities[np.arange(len(failures)), failures.gold.astype(np.int64)]
        worst = table.assign(**{"p(gold)": of_gold}).nsmallest(_WORST, "p(gold)")
        gold, predicted = (worst[side].map(dict(enumerate(task.classes))) for side in ("gold", "predicted"))
        shown = worst.assign(gold=gold, predicted=predicted, **{"p(gold)": numbers(worst["p(gold)"], 3)})
    else:
        distances = (table["predicted"] - table["gold"]).abs()
        worst = table.assign(**{"off by": distances}).nlargest(_WORST, "off by")
        gold, predicted = numbers(worst["gold"], 1), numbers(worst["predicted"])
        shown = worst.assign(gold=gold, predicted=predicted, **{"off by": numbers(worst["off by"], 3)})
    title = f"The {len(worst)} worst errors of {len(failures):,} failed rows in {len(rows):,}"
    return Table(title, shown, left=2 if texts else 1)
