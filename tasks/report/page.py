"""The report page of a run, the comparison of several, and the page of an ensemble: one HTML file each."""

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
from minbert.training.settings import Settings, flags_of, flags_without_effect
from tasks import compare
from tasks.compare import Scored
from tasks.contrastive.settings import ContrastiveSettings
from tasks.intervals import RESAMPLES
from tasks.metrics import DEV_NORM
from tasks.report import facts, overview, training
from tasks.report.details import details
from tasks.report.html import Figure, rendered, write_page
from tasks.runs import Run, read_run
from tasks.settings import MultitaskSettings
from tasks.tables import MISSING, Table, number

_SEED = re.compile(r"[-_/. ]*seed[-_ ]?\d*")
_KINDS: list[type[Settings]] = [MultitaskSettings, *ContrastiveSettings.kinds().values()]
_RECORDS = {name: record for kind in _KINDS for name, (record, _) in flags_of(kind).items()}
_ALIKE = {"seed"}.union(*map(flags_without_effect, _KINDS))
"""Settings that may differ between the runs of a group, which read the same data."""
_NOT_SHOWN = {name for name in _ALIKE if _RECORDS[name] == "run" or name in ("seed", "data") or name.endswith("_out")}
"""Settings that are not in the table of groups."""


def write_report(folders: Sequence[Path], out: Path | None = None, *, texts: bool = True) -> Path:
    """Write the page of one run, or the comparison of several; returns its path.

    `out` is by default `report.html` in a single run's folder, and `runs/comparison.html` for several.
    Raises `UserError` if a folder is not a run's.
    """
    if len(folders) > 1:
        path = out or Path("runs/comparison.html")
        names = distinct_names(list(folders))
        write_comparison(path, [read_run(folder, name) for folder, name in zip(folders, names, strict=True)])
    else:
        run, path = read_run(folders[0]), out or expanded(folders[0]) / "report.html"
        write_page(path, *build(run, path, texts=texts))
    return path


def build(run: Run, path: Path, *, texts: bool = True, resamples: int = RESAMPLES) -> tuple[str, list[Figure]]:
    """The page of a run that is to be written to `path`, and its figures. Without `texts` it holds no sentence."""
    tasks = [details(task, texts=texts) for task in run.tasks.values() if task.rows is not None or task.per_class]
    trained = training.training_figures(run)
    sections = [("scores", "Scores"), *((one.anchor, one.title) for one in tasks)]
    html = rendered(
        "run.html",
        title=run.name,
        sections=[*sections, ("training", "Training"), ("data", "Data"), ("repeat", "Repeat")],
        run=run,
        written=time.strftime("%Y-%m-%d %H:%M", time.localtime(run.written)),
        state=run.state(time.time()),
        links=facts.links(run, path),
        facts=facts.facts(run),
        cards=_cards(run, resamples) if run.scores else [],
        changes=_changes(run),
        resamples=f"{resamples:,}",
        details=tasks,
        trained=trained,
        data=facts.data_table(run.data),
        skipped=facts.data_lines(run.data),
        command=facts.command(run.manifest),
        settings=json.dumps(run.settings, indent=2, ensure_ascii=False),
    )
    return html, [*trained, *(figure for one in tasks for figure in one.figures)]


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
        gap = None if both.before is None or both.after is None else both.after - both.before
        cells = {"before": number(both.before, 4), "after": number(both.after, 4), "change": number(gap, 4, sign=True)}
        rows.append({"number": f"{title}: {unit}", **cells})
    return Table("", pd.DataFrame(rows))


def write_comparison(path: Path, runs: Sequence[Run], resamples: int = RESAMPLES) -> None:
    """Write the overview of several runs, with the seeds of one setting as one group, and their curves."""
    groups = grouped(runs)
    first, *others = groups.values()
    more = [row for name, group in zip([*groups][1:], others) for row in _over_rows(name, first, group, resamples)]
    settings = pd.DataFrame({name: group[0].settings for name, group in groups.items()}).T
    absent = [name for name in settings if name in _NOT_SHOWN or not all(name in run.settings for run in runs)]
    settings = settings.drop(columns=absent)
    unfinished = ", ".join(run.name for run in runs if not run.finished)
    lead = [
        f"The baseline is {next(iter(groups))}. Runs that differ by their seed alone are one row. Intervals over dev "
        f"rows hold the middle 95% of {resamples:,} paired bootstrap resamples of the rows that both sides have "
        "predicted; they say nothing of how another training seed would differ, which intervals over seeds do."
    ]
    lead += [f"Not finished: {unfinished}, with the best evaluation so far."] if unfinished else []
    overview.write_overview(
        path,
        f"{len(runs)} runs compared",
        as_frame(groups),
        settings.astype(object).where(settings.notna() & (settings != ""), MISSING),
        more=pd.DataFrame(more, columns=overview.OVER_ROWS),
        lead=lead,
        figures=training.common_curves([(run, slot) for slot, group in enumerate(groups.values()) for run in group]),
    )


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by their settings, except for seeds and paths; named by their names without a seed."""
    groups: dict[tuple[str, int], list[Run]] = {}
    again: Counter[tuple[str, Any]] = Counter()
    for run in runs:
        settings = {name: value for name, value in run.settings.items() if name not in _ALIKE}
        hashes = {name: value for name, value in run.manifest.settings.items() if name.startswith("data ")}
        for name in ("encoder", "sentence_encoder"):  # stage one of the same seed
            settings[name] = _SEED.sub("", str(run.settings.get(name) or ""))
        key, seed = json.dumps(settings | hashes, sort_keys=True, default=str), run.settings.get("seed")
        groups.setdefault((key, again[key, seed]), []).append(run)  # the same seed again is another group
        again[key, seed] += 1
    named: dict[str, list[Run]] = {}
    taken = {run.name for run in runs}
    for group in groups.values():
        names = [run.name for run in group]
        stems = {_SEED.sub("", name) for name in names} if len(names) > 1 else {""}
        stem = stems.pop() if len(stems) == 1 else ""
        named[stem if stem and stem not in named and stem not in taken else ", ".join(names)] = group
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


def _over_rows(name: str, first: Sequence[Run], other: Sequence[Run], resamples: int) -> Iterator[tuple[Any, ...]]:
    """The differences of two groups over dev rows, of their common seeds if there are any; none between stages."""
    if first[0].multitask != other[0].multitask:
        return
    seeds = {run.settings.get("seed") for run in first} & {run.settings.get("seed") for run in other}
    if seeds:
        first, other = ([run for run in side if run.settings.get("seed") in seeds] for side in (first, other))
    norms = (first[0].dev_norm, other[0].dev_norm) if first[0].multitask else None
    yield from overview.over_rows(name, [run.tasks for run in first], [run.tasks for run in other], norms, resamples)


def write_ensemble(
    path: Path, ensemble: Scored, members: Mapping[str, Scored], scores: Mapping[str, Any], *, texts: bool
) -> None:
    """Write the page of an ensemble, compared with its members; without `texts` no sentence is shown.

    `scores` is the content of the ensemble's `scores.json`.
    """
    name = f"ensemble of {len(scores['used'])}"
    contents = {name: scores, **scores["members"]}
    rows: list[tuple[Any, ...]] = []
    over_rows: list[tuple[Any, ...]] = []
    for system, tasks in {name: ensemble, **members}.items():
        content = contents[system]
        values = [(task.shown, task.score, content["tasks"][key]["interval"]) for key, task in tasks.items()]
        for metric, value, interval in [*values, (DEV_NORM, content["dev_norm"], content["interval"])]:
            rows.append((system, None, metric, np.nan if value is None else value, *(interval or (np.nan, np.nan))))
        if system != name:
            norms = scores["dev_norm"], content["dev_norm"]
            over_rows += overview.over_rows(system, [ensemble], [tasks], norms, RESAMPLES)
    frame = pd.DataFrame(rows, columns=["group", "seed", "metric", "value", "own_low", "own_high"])
    more = pd.DataFrame(over_rows, columns=overview.OVER_ROWS)
    more = frame.drop(columns=["seed", "value"]).merge(more, on=["group", "metric"], how="left")
    lead = [f"The mean of the class probabilities and similarities of {', '.join(scores['used'])}."]
    lead += ["The members were chosen on these dev rows: the ensemble's dev scores are too high."] * scores[
        "chosen_on_dev"
    ]
    lead += [
        f"The baseline is the ensemble. Intervals hold the middle 95% of {RESAMPLES:,} paired bootstrap resamples of "
        "the dev rows; they say nothing of how members of other seeds would differ."
    ]
    below = [details(task, texts=texts) for task in ensemble.values()]
    overview.write_overview(path, f"Ensemble of {len(scores['used'])} runs", frame, more=more, lead=lead, details=below)
