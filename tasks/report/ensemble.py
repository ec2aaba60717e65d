"""The page of an ensemble: its members beside it, its classes and errors, as in the report of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tasks.compare import DEV_NORM, Scored
from tasks.intervals import RESAMPLES, Interval
from tasks.report import measures, overview
from tasks.report.html import rendered, write_page
from tasks.report.page import task_details


def write_ensemble(
    path: Path,
    ensemble: Scored,
    members: Mapping[str, Scored],
    scores: Mapping[str, Any],
    *,
    texts: bool,
    resamples: int = RESAMPLES,
) -> None:
    """Write the page. `scores` is the content of the ensemble's `scores.json`; without `texts` no sentence is shown."""
    name = f"ensemble of {len(scores['used'])}"
    systems, known = {name: ensemble, **members}, {name: scores, **scores["members"]}
    frame, more = [], []
    for system, tasks in systems.items():
        content = known[system]
        numbers = [(task.shown, task.score, content["tasks"][key]["interval"]) for key, task in tasks.items()]
        for metric, value, around in [*numbers, (DEV_NORM, content["dev_norm"], content["interval"])]:
            frame.append((system, None, metric, np.nan if value is None else value))
            more.append((system, metric, *(around or (np.nan, np.nan))))
    norms = {system: content["dev_norm"] for system, content in known.items()}
    apart = [
        row
        for member, tasks in members.items()
        for row in overview.over_rows(member, [ensemble], [tasks], (norms[name], norms[member]), resamples)
    ]
    own = pd.DataFrame(more, columns=["group", "metric", "own_low", "own_high"])
    beside = own.merge(pd.DataFrame(apart, columns=overview.OVER_ROWS), on=["group", "metric"], how="left")
    shown = overview.section(
        overview.summary(pd.DataFrame(frame, columns=["group", "seed", "metric", "value"]), more=beside)
    )
    details = [task_details(task, key) for key, task in ensemble.items()]
    html = rendered(
        "ensemble.html",
        ["style.css"],
        ["base.js", "page.js"],
        measures.listed_errors({name: ensemble}, texts=texts),
        title=f"{name} – report",
        scores=scores,
        norm=Interval(*scores["interval"]) if scores["interval"] else None,
        overview=shown,
        details=details,
        resamples=resamples,
        texts=texts,
    )
    drawn = [shown["forest"], *(figure for one in details for figure in one["figures"])]
    write_page(path, html, [figure for figure in drawn if figure])
