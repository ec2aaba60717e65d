"""The report page of a run, and the comparison of several: one HTML file each, in which no data becomes markup."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from minbert.files import distinct_names, expand_user, write_atomic
from tasks import compare
from tasks.intervals import RESAMPLES
from tasks.metrics import DEV_NORM
from tasks.report import facts, overview, training
from tasks.report.details import details
from tasks.report.figures import Figure
from tasks.runs import Run, read_run
from tasks.tables import MISSING, Table, number

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_SEED = re.compile(r"[-_/. ]*seed[-_ ]?\d*")
_MAY_DIFFER = {"seed", "data", "run_dir", "resume", "save_every", "log_every", "track", "use_gpu"}
"""Settings that may differ between the runs of a group, which read the same data."""
_NOT_SHOWN = _MAY_DIFFER


def write_report(folders: Sequence[Path], out: Path | None = None, *, texts: bool = True) -> Path:
    """Write the page of one run, or the comparison of several; returns its path.

    `out` is by default `report.html` in a single run's folder, and `runs/comparison.html` for several. Raises
    `UserError` if a folder is not a run's.
    """
    names = distinct_names(list(folders))
    if len(folders) > 1:
        path = out or Path("runs/comparison.html")
        html = comparison([read_run(folder, name) for folder, name in zip(folders, names, strict=True)])
    else:
        path = out or expand_user(folders[0]) / "report.html"
        html = build(read_run(folders[0]), texts=texts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, html)
    return path


def build(run: Run, *, texts: bool = True, resamples: int = RESAMPLES) -> str:
    """The page of a run. Without `texts` it holds no sentence."""
    tasks = [details(task, texts=texts) for task in run.tasks.values() if task.rows is not None or task.per_class]
    trained = training.training_figures(run)
    sections = [("scores", "Scores"), *((one.anchor, one.title) for one in tasks)]
    return _TEMPLATES.get_template("run.html").render(
        title=run.name,
        sections=[*sections, ("training", "Training"), ("data", "Data"), ("repeat", "Repeat")],
        run=run,
        facts=facts.run_facts(run),
        first_weights=facts.first_weights(run),
        cards=_cards(run, resamples),
        changes=_changes(run),
        resamples=f"{resamples:,}",
        details=tasks,
        trained=trained,
        data=facts.data_table(run.data),
        skipped=facts.data_lines(run.data),
        command=facts.command(run.manifest),
        settings=json.dumps(run.settings, indent=2, ensure_ascii=False),
    )


def _cards(run: Run, resamples: int) -> Iterator[dict[str, Any]]:
    """The scores: the dev norm of stage two, and each task's."""
    own, norm = compare.own_intervals(run.tasks, norm=run.multitask, resamples=resamples)
    if run.multitask:
        notes = ["mean of the accuracies and (r + 1) / 2", *([f"95% interval {norm.text()}"] if norm else [])]
        yield {"title": DEV_NORM, "score": number(run.dev_norm, 4, missing="undefined"), "notes": notes, "main": True}
    for name, task in run.tasks.items():
        interval = own[name]
        notes = [f"{task.metric} on {task.count:,} rows"]
        notes += [f"95% interval {interval.text()}"] if interval else []
        if task.before is not None:
            change = "" if task.score is None else f", {number(task.score - task.before, 4, sign=True)}"
            notes.append(f"{number(task.before, 4)} before training{change}")
        yield {"title": task.title, "score": number(task.score, 4, missing="undefined"), "notes": notes, "main": False}


def _changes(run: Run) -> Table:
    """Stage one's numbers before and after training."""
    rows = []
    for name, both in run.changes.items():
        title, unit = training.meaning(run, name)
        before, after = both["before"], both["after"]
        gap = None if before is None or after is None else after - before
        cells = {"before": number(before, 4), "after": number(after, 4), "change": number(gap, 4, sign=True)}
        rows.append({"number": f"{title}: {unit}", **cells})
    return Table("", pd.DataFrame(rows))


def comparison(runs: Sequence[Run], resamples: int = RESAMPLES) -> str:
    """The page of several runs, with the seeds of one setting as one group."""
    groups = grouped(runs)
    first, *others = groups.values()
    more = [row for name, group in zip([*groups][1:], others) for row in _over_rows(name, first, group, resamples)]
    columns = pd.DataFrame(more, columns=["group", "metric", "row_low", "row_high"])
    summary = overview.summary(as_frame(groups)).merge(columns, on=["group", "metric"], how="left")
    summary = summary.iloc[pd.factorize(summary["metric"])[0].argsort(kind="stable")]  # metric after metric
    differences = [
        Figure(f"{metric}: difference", overview.forest(rows))
        for metric, rows in summary[summary["difference"].notna()].groupby("metric", sort=False)
    ]
    lead = (
        f"The baseline is {next(iter(groups))}. Runs that differ by their seed alone are one row. Intervals over dev "
        f"rows hold the middle 95% of {resamples:,} paired bootstrap resamples of the rows that both sides have "
        "predicted; they say nothing of how another training seed would differ, which intervals over seeds do."
    )
    note = (
        "± is the standard deviation over seeds; differences are to the baseline. In a figure the thick bar is the 95% "
        "interval over dev rows, the thin one that over seeds."
    )
    counts = {(task.shown, task.count) for run in runs for task in run.tasks.values()}
    if len(counts) > len({shown for shown, _ in counts}):
        note += (
            " Not all runs were scored on the same number of dev rows: a difference is that of the scores, and its "
            "interval over rows is of the rows in common."
        )
    return _TEMPLATES.get_template("comparison.html").render(
        title=f"{len(runs)} runs compared",
        sections=[("overview", "Overview")],
        lead=lead,
        scores=Table("", overview.numbers_table(summary), (note,), left=2),
        differences=differences,
        settings=_differing_settings(groups),
    )


def _differing_settings(groups: dict[str, list[Run]]) -> Table:
    """A row for each setting in which the groups differ, and a column for each group."""
    of_groups = {name: group[0].settings for name, group in groups.items()}
    names = [name for name in next(iter(of_groups.values())) if name not in _NOT_SHOWN]
    names = [name for name in names if all(name in settings for settings in of_groups.values())]
    shown = {
        group: [MISSING if settings[name] in (None, "") else str(settings[name]) for name in names]
        for group, settings in of_groups.items()
    }
    rows = pd.DataFrame(shown, index=names)
    rows = rows[rows.nunique(axis=1) > 1].rename_axis("setting").reset_index()
    return Table("Settings that differ", rows, left=len(rows.columns))


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by their settings, except for seeds and paths; named by their names without a seed."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = {name: value for name, value in run.settings.items() if name not in _MAY_DIFFER}
        key |= {name: value for name, value in run.manifest["settings"].items() if name.startswith("data ")}
        for name in ("encoder", "sentence_encoder", "weights"):  # of a run with the same seed
            key[name] = _SEED.sub("", str(run.settings.get(name) or ""))
        setting, seed = json.dumps(key, sort_keys=True, default=str), run.settings.get("seed")
        while any(other.settings.get("seed") == seed for other in groups.get(setting, [])):
            setting += " again"  # the same seed twice is no pair of seeds
        groups.setdefault(setting, []).append(run)
    named: dict[str, list[Run]] = {}
    for group in groups.values():
        stems = {_SEED.sub("", run.name) for run in group}
        stem = stems.pop() if len(group) > 1 and len(stems) == 1 else ""
        taken = {"", *named, *(run.name for run in runs)}
        named[", ".join(run.name for run in group) if stem in taken else stem] = group
    return named


def as_frame(groups: dict[str, list[Run]]) -> pd.DataFrame:
    """The scores of all runs as `overview.summary` takes them."""
    rows = []
    for name, group in groups.items():
        for index, run in enumerate(group):
            scores = {task.shown: task.score for task in run.tasks.values()}
            scores |= {DEV_NORM: run.dev_norm} if run.multitask else {}
            seed = run.settings.get("seed", index)
            rows += [(name, seed, metric, np.nan if score is None else score) for metric, score in scores.items()]
    return pd.DataFrame(rows, columns=["group", "seed", "metric", "value"])


def _over_rows(
    name: str, first: Sequence[Run], other: Sequence[Run], resamples: int
) -> Iterator[tuple[str, str, float, float]]:
    """(group, metric, low, high): 95% intervals of the differences of two groups over dev rows; none between stages.

    The runs of their common seeds are compared, if there are any.
    """
    if first[0].multitask != other[0].multitask:
        return
    seeds = {run.settings.get("seed") for run in first} & {run.settings.get("seed") for run in other}
    if seeds:
        first, other = ([run for run in side if run.settings.get("seed") in seeds] for side in (first, other))
    tasks, other_tasks = ([run.tasks for run in side] for side in (first, other))
    for one in compare.differences(tasks, other_tasks, norm=first[0].multitask, resamples=resamples):
        if one.interval:
            metric = tasks[0][one.name].shown if one.name in tasks[0] else one.name
            yield name, metric, one.interval.low, one.interval.high
