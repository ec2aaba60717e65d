"""The report page of a run, of several with an overview, or of an ensemble: one HTML file that needs nothing else."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.files import distinct_names, expanded
from minbert.training.settings import PLACES, flags_of
from tasks import compare, metrics
from tasks.compare import DEV_NORM, Scored
from tasks.contrastive.settings import ContrastiveSettings
from tasks.intervals import RESAMPLES, Interval
from tasks.record import TaskScores
from tasks.report import facts, figures, measures, overview, papers, training
from tasks.report.collect import Run, read_run
from tasks.report.figures import Curve
from tasks.report.html import Figure, rendered, write_page
from tasks.settings import MultitaskSettings
from tasks.tables import number, records

_MOST_DETAILS = 4  # runs that are shown whole on a page of several
_SEED = re.compile(r"[-_/. ]*seed[-_ ]?\d*")
_RECORDS = {
    name: record for kind in (MultitaskSettings, ContrastiveSettings) for name, (record, _) in flags_of(kind).items()
}
_ALIKE = {"seed"} | {name for name, record in _RECORDS.items() if record in PLACES}
"""Settings that may differ between the runs of a group, which read the same data."""
_NOT_SHOWN = {name for name in _ALIKE if _RECORDS[name] == "run" or name in ("seed", "data") or name.endswith("_out")}
"""Settings that are not in the table of groups."""


def write_report(folders: Sequence[Path], out: Path | None = None, *, texts: bool = True) -> Path:
    """Write the page of one run, or of several that begins with an overview; returns its path.

    `out` is by default `report.html` in a single run's folder, and `runs/comparison.html` for several.
    Raises `UserError` if a folder is not a run's.
    """
    names = distinct_names(list(folders)) if len(folders) > 1 else [""]
    runs = [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    path = out or (expanded(folders[0]) / "report.html" if len(folders) == 1 else Path("runs/comparison.html"))
    html, drawn = build(runs, path, texts=texts)
    write_page(path, html, drawn)
    return path


def build(
    runs: Sequence[Run], path: Path, *, texts: bool = True, resamples: int = RESAMPLES
) -> tuple[str, list[Figure]]:
    """The page that is to be written to `path`, and its figures. Without `texts` no sentence of the data is in it."""
    several = len(runs) > 1
    compared = _comparison(runs, resamples) if several else None
    whole = runs if len(runs) <= _MOST_DETAILS else []
    views = [_run_view(run, place, path, resamples, several=several) for place, run in enumerate(whole)]
    drawn = [figure for view in views for figure in view["figures"]]
    if compared:
        drawn += [*filter(None, [compared["overview"]["forest"]]), *compared["curves"]]
    html = rendered(
        "page.html",
        ["style.css", "uplot.css"],
        ["base.js", "uplot.js", "curves.js", "page.js"],
        measures.listed_errors({run.name: run.tasks for run in runs}, texts=texts)
        | {"curves": {one.name: one.curve for one in drawn if one.curve}},
        title=" and ".join(run.name for run in runs[:3]) + (" and others" if len(runs) > 3 else "") + " – report",
        views=views,
        compared=compared,
        resamples=resamples,
        texts=texts,
        cbcl=papers.CBCL_DEV,
        metrics=training.METRICS,
    )
    return html, drawn


def write_ensemble(
    path: Path, ensemble: Scored, members: Mapping[str, Scored], scores: Mapping[str, Any], *, texts: bool
) -> None:
    """Write the page of an ensemble, with its members beside it; without `texts` no sentence is shown.

    `scores` is the content of the ensemble's `scores.json`.
    """
    name = f"ensemble of {len(scores['used'])}"
    systems, known = {name: ensemble, **members}, {name: scores, **scores["members"]}
    rows: list[tuple[Any, ...]] = []
    apart: list[tuple[Any, ...]] = []
    for system, tasks in systems.items():
        content = known[system]
        numbers = [(task.shown, task.score, content["tasks"][key]["interval"]) for key, task in tasks.items()]
        for metric, value, around in [*numbers, (DEV_NORM, content["dev_norm"], content["interval"])]:
            rows.append((system, None, metric, np.nan if value is None else value, *(around or (np.nan, np.nan))))
        if system != name:
            norms = scores["dev_norm"], content["dev_norm"]
            apart += overview.over_rows(system, [ensemble], [tasks], norms, RESAMPLES)
    frame = pd.DataFrame(rows, columns=["group", "seed", "metric", "value", "own_low", "own_high"])
    more = pd.DataFrame(apart, columns=overview.OVER_ROWS)
    beside = frame.drop(columns=["seed", "value"]).merge(more, on=["group", "metric"], how="left")
    shown = overview.section(overview.summary(frame, more=beside))
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
        resamples=RESAMPLES,
        texts=texts,
    )
    drawn = [shown["forest"], *(figure for one in details for figure in one["figures"])]
    write_page(path, html, [figure for figure in drawn if figure])


def _run_view(run: Run, place: int, path: Path, resamples: int, *, several: bool) -> dict[str, Any]:
    """Everything that the template shows of one run; `place` makes its anchors and figures unique."""
    prefix = f"run{place + 1}-" if several else ""
    dev = run.data.get("dev", {}) if run.multitask else {}
    beside = [name for name in run.tasks if papers.on_cbcl_rows(name, dev.get(name, {}))]
    around, norm = compare.own_intervals(run.tasks, norm=run.multitask, resamples=resamples)
    strips = {}
    for name in beside:
        svg = figures.strip(run.tasks[name].score, around[name], [one.scores[name] for one in papers.CBCL_DEV])
        strips[name] = Figure(f"{prefix}paper-{name}", f"{run.tasks[name].title}: this run and the paper", svg)
    known = [task for task in run.tasks.values() if task.rows is not None or task.per_class]
    f1 = {name: papers.CBCL_F1.get(name, ()) for name in beside}
    details = [task_details(task, f"{prefix}{task.name}", f1.get(task.name, ())) for task in known]
    trained = training.training_figures(run, prefix)
    return {
        "place": place,
        "run": run,
        "figures": [*strips.values(), *(figure for one in details for figure in one["figures"]), *trained],
        "written": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.written)),
        "state": run.state(time.time()),
        "links": facts.links(run, path),
        "facts": facts.facts(run),
        "around": around,
        "norm": norm,
        "strips": strips,
        "whole": len(beside) == len(papers.CBCL_DEV[0].scores),
        "meanings": {name: training.meaning(run, name) for name in run.changes},
        "details": details,
        "trained": trained,
        "accounts": facts.accounts(run.data),
        "command": facts.command(run.manifest),
        "manifest": json.dumps(facts.shortened(run.manifest), indent=2, ensure_ascii=False),
    }


def task_details(task: TaskScores, name: str, f1: Sequence[float] = ()) -> dict[str, Any]:
    """What `task.html` shows: confusion and calibration of a classifier, or scatter and errors of a regression.

    `name` makes anchors and figures unique on a page; `f1` are a paper's values for the classes.
    """
    view: dict[str, Any] = {"task": task, "name": name, "paper": f1 if len(f1) == len(task.per_class) else ()}
    view |= {"figures": [], "numbers": [], "levels": []}
    rows = task.rows.labelled() if task.rows is not None else None
    if rows is None or not len(rows):
        return view
    if task.classes:
        two, every = len(task.classes) == 2, range(len(task.classes))
        counted = pd.crosstab(rows.gold, rows.predicted)
        table = counted.reindex(index=every, columns=every, fill_value=0).to_numpy()
        found = measures.calibration(rows, 20 if two else 10)
        note = f"Expected calibration error {found.ece:.3f}. Whiskers are 95% Wilson intervals; the dashed line is "
        drawn = figures.confusion(table, task.classes), figures.reliability(found, 0.5 if two else 0.0)
        shares = "Dev rows, and their share of the gold class."
        view["figures"] = [
            Figure(f"{name}-confusion", "Confusion matrix", drawn[0], shares),
            Figure(f"{name}-reliability", "Reliability", drawn[1], note + "perfect calibration."),
        ]
        return view
    label = "cosine" if task.cosines else "predicted (points)"
    svg = figures.scatter(rows.gold, rows.predicted, y_label=label, same_scale=not task.cosines)
    view["figures"] = [Figure(f"{name}-scatter", "Predicted over gold", svg)]
    view["numbers"] = _regression(rows.gold, rows.predicted, points=not task.cosines)
    level = np.minimum(rows.gold, 4).astype(int)  # the point of the scale at which a row's interval begins
    by_level = pd.DataFrame({"gold": rows.gold, "predicted": rows.predicted}).groupby(level)
    view["levels"] = records(by_level.mean().assign(rows=by_level.size()).reindex(range(5)))
    return view


def _regression(gold: np.ndarray, predicted: np.ndarray, *, points: bool) -> list[tuple[str, str]]:
    both = {"Pearson's r": metrics.pearson(predicted, gold), "Spearman's ρ": metrics.spearman(predicted, gold)}
    found = [(name, number(value, 3, missing="undefined")) for name, value in both.items()]
    if points:
        away = np.abs(predicted - gold)
        found += [
            ("mean absolute error", f"{number(away.mean())} points"),
            ("mean error (predicted − gold)", f"{number((predicted - gold).mean(), sign=True)} points"),
            ("rows more than 1 point off", f"{(away > 1).sum():,} of {len(gold):,} ({(away > 1).mean():.0%})"),
        ]
    return found


def _comparison(runs: Sequence[Run], resamples: int) -> dict[str, Any]:
    """The overview of all runs, the seeds of one setting as one group, and their curves in one figure each."""
    groups = grouped(runs)
    first, *others = groups.values()
    more = [row for name, group in zip([*groups][1:], others) for row in _over_rows(name, first, group, resamples)]
    table = overview.summary(as_frame(groups), more=pd.DataFrame(more, columns=overview.OVER_ROWS))
    settings = pd.DataFrame({name: group[0].settings for name, group in groups.items()}).T
    settings = settings.drop(
        columns=[name for name in settings if name in _NOT_SHOWN or not all(name in run.settings for run in runs)]
    )
    curves = _together({run.name: (run, slot) for slot, group in enumerate(groups.values()) for run in group})
    shown = overview.section(table, settings.astype(object).where(settings.notna() & (settings != ""), "–"))
    unfinished = [run.name for run in runs if not run.finished]
    found = {"runs": len(runs), "unfinished": unfinished, "baseline": next(iter(groups))}
    return {**found, "overview": shown, "curves": curves}


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by their settings, seeds and places aside; named by their names without a seed."""
    found: dict[tuple[str, int], list[Run]] = {}
    again: Counter[tuple[str, Any]] = Counter()
    for run in runs:
        settings = {name: value for name, value in run.settings.items() if name not in _ALIKE}
        identity = run.manifest.get("settings") or {}
        settings |= {name: value for name, value in identity.items() if name.startswith("data ")}  # hashes of the files
        for name in ("encoder", "sentence_encoder"):  # stage one of the same seed
            settings[name] = _SEED.sub("", str(run.settings.get(name) or ""))
        key, seed = json.dumps(settings, sort_keys=True, default=str), run.settings.get("seed")
        found.setdefault((key, again[key, seed]), []).append(run)  # the same seed again is another group
        again[key, seed] += 1
    named: dict[str, list[Run]] = {}
    taken = {run.name for run in runs}
    for group in found.values():
        names = [run.name for run in group]
        stems = {_SEED.sub("", name) for name in names} if len(names) > 1 else {""}
        stem = stems.pop() if len(stems) == 1 else ""
        named[stem if stem and stem not in named and stem not in taken else ", ".join(names)] = group
    return named


def as_frame(groups: dict[str, list[Run]]) -> pd.DataFrame:
    """The scores of all runs as `overview.summary` takes them."""
    rows = []
    for name, group in groups.items():
        for place, run in enumerate(group):
            scores = {task.shown: task.score for task in run.tasks.values()}
            scores |= {DEV_NORM: run.dev_norm} if run.multitask else {}
            seed = run.settings.get("seed", place)
            rows += [(name, seed, metric, np.nan if score is None else score) for metric, score in scores.items()]
    return pd.DataFrame(rows, columns=["group", "seed", "metric", "value"])


def _over_rows(name: str, first: Sequence[Run], other: Sequence[Run], resamples: int) -> Iterator[tuple[Any, ...]]:
    """The differences of two groups over dev rows, of their common seeds if there are any; none between stages."""
    if first[0].multitask != other[0].multitask:
        return
    seeds = {run.settings.get("seed") for run in first} & {run.settings.get("seed") for run in other}
    if seeds:
        first, other = ([run for run in side if run.settings.get("seed") in seeds] for side in (first, other))
    norms = (first[0].dev_norm, other[0].dev_norm) if first[0].multitask else None
    yield from overview.over_rows(name, [run.tasks for run in first], [run.tasks for run in other], norms, resamples)


def _together(runs: dict[str, tuple[Run, int]]) -> list[Figure]:
    """What at least two runs have logged, a line for each run, in the colour of its group."""
    lines: dict[tuple[str, str, str, bool], list[tuple[str, figures.Points, int]]] = {}
    for name, (run, slot) in runs.items():
        for key in training.evaluated(run):
            where = (f"dev-{key}", *training.meaning(run, key), True)
            lines.setdefault(where, []).append((name, training.at_evaluations(run, key), slot))
        for key in training.parts(run, "loss"):
            where = (f"loss-{key}", *training.loss_meaning(run, key), False)
            lines.setdefault(where, []).append((name, training.points(run.train, f"{key}/loss"), slot))
    found = []
    for (name, title, unit, dotted), each in lines.items():
        if len(each) > 1 and all(points for _, points, _ in each):
            curve = Curve(unit, each, dotted=dotted, last=max(run.step for run, _ in runs.values()))
            found.append(Figure(f"all-{name}", title, figures.curves(curve), curve=curve.data()))
    return found
