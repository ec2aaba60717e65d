"""The report page of a run: one HTML file of `report.html` and `style.css`, in which no data becomes markup."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from minbert.files import expand_user, write_atomic
from tasks import compare, manifests
from tasks.intervals import RESAMPLES, Interval
from tasks.metrics import CORRELATIONS, DEV_NORM
from tasks.record import PredictedRows, TaskScores
from tasks.report import figures
from tasks.report.figures import Figure
from tasks.runs import Run, read_run
from tasks.tables import MISSING, Table, class_table, duration, number, numbers

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_SETTINGS = (
    "weights",
    "encoder",
    "from_run",
    "sentence_encoder",
    "objective",
    "batch_size",
    "lr",
    "seed",
)  # shown if not empty
_MINILM = (
    f"The first weights, all-MiniLM-L6-v2, were trained on {manifests.MINILM_DATA}, among others, so scores on such "
    "texts (Quora, a part of STS) are not clean."
)
_MAX_LINES = 200  # counts, skipped rows and warnings that the page lists
_WORST = 25  # listed errors of a task


def write_report(folder: Path, out: Path | None = None, *, texts: bool = True) -> Path:
    """Write the page of a run, by default `report.html` in its folder; returns the path.

    Without `texts` it holds no sentence. Raises `UserError` if the folder is not a finished run's.
    """
    folder = expand_user(folder)
    path = out or folder / "report.html"
    html = build(read_run(folder), texts=texts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, html)
    return path


def build(run: Run, *, texts: bool = True) -> str:
    """The page of a run. Without `texts` it holds no sentence."""
    return _TEMPLATES.get_template("report.html").render(
        run=run,
        name=run.name,
        lead="Multitask fine-tuning." if run.multitask else "Pre-training.",
        cards=score_cards(run.tasks, run.dev_norm),
        resamples=f"{RESAMPLES:,}",
        by_dev_pairs=selected_by_dev(run),
        first_weights=_MINILM if manifests.starts_from_minilm(run.folder) else "",
        tables=[change_table(run)],
        facts=facts(run),
        tasks=task_sections(run.tasks, texts=texts),
        training=figures.training_figures(run),
        single_points=single_points(run),
        data=data_table(run),
        data_files=data_files(run),
        data_lines=data_lines(run),
        command=command(run.manifest),
        settings=json.dumps(run.settings, indent=2, ensure_ascii=False),
    )


def write_ensemble(
    path: Path,
    tasks: Mapping[str, TaskScores],
    norm: float | None,
    tables: Sequence[Table],
    members: Sequence[Path],
    typed: str,
    *,
    texts: bool,
) -> None:
    """Write the page of an ensemble: its scores, `tables` that compare it with its members, and its dev rows.

    `members` are the folders of its runs; `typed` is its command. Without `texts` it holds no sentence.
    """
    html = _TEMPLATES.get_template("report.html").render(
        run=None,
        name=path.resolve().parent.name,
        lead=f"Ensemble of {len(members)} runs.",
        cards=score_cards(tasks, norm),
        resamples=f"{RESAMPLES:,}",
        by_dev_pairs=any(selected_by_dev(read_run(folder)) for folder in members),
        first_weights=_MINILM if any(map(manifests.starts_from_minilm, members)) else "",
        tables=tables,
        facts=[],
        tasks=task_sections(tasks, texts=texts),
        command=typed,
    )
    write_atomic(path, html)


# --- scores


def score_cards(tasks: Mapping[str, TaskScores], norm: float | None) -> list[dict[str, Any]]:
    """The scores: the dev norm of several tasks, and each task's."""
    if len(tasks) == 1:
        norm = None  # it says the same as the score
    by_task, norm_interval = compare.score_intervals(tasks, norm=norm is not None)
    cards = []
    if norm is not None:
        notes = [f"mean of {_parts_of_norm(tasks)}", *_interval_note(norm_interval)]
        cards.append({"title": DEV_NORM, "score": _score(norm), "notes": notes, "main": True})
    for name, task in tasks.items():
        notes = [f"{task.metric} on {task.count:,} rows", *_interval_note(by_task[name])]
        if task.before is not None:
            note = f"{number(task.before, 4)} before training"
            if task.score is not None:
                note += f" ({number(task.score - task.before, 4, sign=True)} since)"
            notes.append(note)
        cards.append({"title": task.title, "score": _score(task.score), "notes": notes, "main": False})
    return cards


def _parts_of_norm(tasks: Mapping[str, TaskScores]) -> str:
    """What the dev norm is the mean of, in words."""
    names = {task.metric for task in tasks.values()}
    parts = []
    if "accuracy" in names:
        parts.append("the accuracies")
    if "macro-F1" in names:
        parts.append("macro-F1")
    if names & set(CORRELATIONS):
        parts.append("(r + 1) / 2".replace(" ", "\N{NO-BREAK SPACE}"))
    return " and ".join(parts)


def _score(value: float | None) -> str:
    return number(value, 4, missing="undefined")


def _interval_note(interval: Interval | None) -> list[str]:
    if interval is None:
        return []
    return ["95% interval " + interval.text().replace(" ", "\N{NO-BREAK SPACE}")]


def single_points(run: Run) -> Table:
    """The losses of a short run that were logged once, which are no curves."""
    rows = []
    for curve in figures.loss_curves(run):
        if len(curve.points) == 1:
            step, value = curve.points[0]
            rows.append({"loss": curve.title, "unit": curve.unit, "value": number(value, 4), "step": f"{step:,}"})
    return Table("Measured at one step", pd.DataFrame(rows), left=2)


def change_table(run: Run) -> Table:
    """Stage one's metrics before and after training."""
    rows = []
    for name, change in run.changes.items():
        before = change["before"]
        after = change["after"]
        gap = None
        if before is not None and after is not None:
            gap = after - before
        rows.append(
            {
                "metric": ": ".join(figures.describe_metric(run, name)),
                "before": number(before, 4),
                "after": number(after, 4),
                "change": number(gap, 4, sign=True),
            }
        )
    return Table("", pd.DataFrame(rows))


def selected_by_dev(run: Run) -> bool:
    """Whether dev rows chose a run's weights: among several evaluations, or between one and the start of stage one."""
    selection = run.manifest["selection"]
    # stage one may keep the weights from before training
    has_choice = len(run.evaluations) > 1 or (not run.multitask and selection["keep"] == "best")
    return bool(selection["by_dev_pairs"]) and has_choice


# --- facts


def facts(run: Run) -> list[tuple[str, str]]:
    """Names and values of what is known of a run in addition to its scores; what is not known is left out."""
    manifest = run.manifest
    sessions = manifest["sessions"]
    processes = _processes(manifest)
    parameters = manifest.get("parameters")
    loss = run.scores.get("last_epoch_loss")
    begun = sessions[0]["started"]  # in local time, with its offset to UTC at the end
    started = f"{begun[:10]} {begun[11:16]} {begun[19:]}"
    if len(sessions) > 1:
        count = len(sessions) - 1
        started += ", resumed once" if count == 1 else f", resumed {count} times"
    rows = [
        ("wall time", duration(sum(session["seconds"] for session in sessions))),
        ("device", f"{manifest['environment']['device']}, {manifest['precision']}"),
        ("processes", str(processes) if processes > 1 else ""),
        ("training rows", _training_rows(run)),
        ("steps", f"{run.scores['last_step']:,} of {manifest['plan']['steps']:,}"),
        # not recorded by earlier versions
        ("kept", run.scores.get("kept_weights", "")),
        ("started", started),
        ("preset", manifest.get("preset", "")),
    ]
    for name in _SETTINGS:
        value = run.settings.get(name)
        rows.append((name.replace("_", " "), "" if value is None else str(value)))
    entries = manifests.data_entries(manifest)
    if not run.multitask:
        rows.append(("dev pairs", _dev_pairs(entries["sts_dev"])))
        rows.append(("training texts", _leaks(entries["train"])))
    rows.append(("last epoch's training loss", "" if loss is None else f"{loss:.4f}"))
    rows.append(("parameters", f"{parameters:,}" if parameters else ""))
    return [(name, value) for name, value in rows if value]


def _processes(manifest: dict[str, Any]) -> int:
    return manifest["settings"].get("number of processes", 1)


def _training_rows(run: Run) -> str:
    """The number of training rows, by task if there are several."""
    counts = run.manifest.get("training_rows", {})
    if run.multitask:
        return ", ".join(f"{count:,} {run.tasks[name].title}" for name, count in counts.items())
    return f"{sum(counts.values()):,}"


def _dev_pairs(entry: dict[str, Any]) -> str:
    """Stage one's dev pairs: name, number, and how many of them are in scored sets."""
    if not entry.get("kept"):
        return ""
    text = f"{entry['name']}, {entry['kept']:,}"
    if entry.get("absent"):
        text += f"; without {', '.join(entry['absent'])}"
    shared = [f"{count:,} in {name}" for name, count in entry.get("also_in", {}).items() if count]
    if shared:
        text += f"; of these {', '.join(shared)}"
    return text


def _leaks(entry: dict[str, Any]) -> str:
    """How many of stage one's unlabelled training texts are in test and dev files; empty if none are known."""
    parts = []
    in_tests = entry.get("also_in_test", {}).get("any", 0)
    if entry.get("transductive"):
        parts.append("hold test sentences (transductive)")
    elif in_tests:
        parts.append(f"{in_tests:,} of {entry.get('kept') or 0:,} are in a test file too")
    if entry.get("weights_transductive"):
        parts.append("the weights come from a run on test sentences (transductive)")
    if entry.get("dev_pairs_seen"):
        parts.append(f"{entry['dev_pairs_seen']:,} dev pairs are made of them")
    return "; ".join(parts)


# --- tasks


@dataclass(frozen=True)
class TaskSection:
    """What a page shows of one task; no errors where predictions have another scale than gold."""

    anchor: str
    title: str
    figure: Figure | None
    classes: Table
    errors: Table | None


def task_sections(tasks: Mapping[str, TaskScores], *, texts: bool) -> list[TaskSection]:
    """What the page shows of each task with dev rows or classes."""
    sections = []
    for task in tasks.values():
        if task.rows is not None or task.per_class:
            sections.append(task_section(task, texts=texts))
    return sections


def task_section(task: TaskScores, *, texts: bool) -> TaskSection:
    """Figure and tables of a task; without `texts` no sentence of the data is in them."""
    figure = None
    errors = None
    rows = task.labelled_rows
    if rows is not None:
        figure = figures.task_figure(task, rows)
        if not task.cosines:
            errors = worst_errors(task, rows, texts=texts)
    title = task.title[:1].upper() + task.title[1:]
    return TaskSection(f"dev-{task.name}", title, figure, class_table("", task.per_class), errors)


def failed_rows(task: TaskScores, rows: PredictedRows) -> np.ndarray:
    """The indices of the rows with another class than gold, or off by more than a fifth of the scale: one of 5."""
    tolerance = 0 if task.classes else task.tolerance
    return np.flatnonzero(np.abs(rows.predicted - rows.gold) > tolerance)


def worst_errors(task: TaskScores, rows: PredictedRows, *, texts: bool) -> Table:
    """The failed rows with the least probable gold classes, or the largest distances from gold."""
    failures = rows.at(failed_rows(task, rows))
    if failures.probabilities is not None:
        of_gold = failures.probabilities[np.arange(len(failures)), failures.gold.astype(np.int64)]
        order = np.argsort(of_gold, kind="stable")[:_WORST]
        last_column = {"p(gold)": numbers(of_gold[order], 3)}
    else:
        distances = np.abs(failures.predicted - failures.gold)
        order = np.argsort(-distances, kind="stable")[:_WORST]
        last_column = {"off by": numbers(distances[order])}
    worst = failures.at(order)
    table: dict[str, list[str]] = {}
    if texts:
        table["text"] = ["\n/ ".join(text) for text in worst.texts]
    if task.classes:
        table["gold"] = [task.classes[int(label)] for label in worst.gold]
        table["predicted"] = [task.classes[int(label)] for label in worst.predicted]
    else:
        table["gold"] = numbers(worst.gold)
        table["predicted"] = numbers(worst.predicted)
    table |= {**last_column, "id": worst.ids}
    title = f"{len(failures):,} of {len(rows):,} rows failed: the worst {len(worst)}"
    return Table(title, pd.DataFrame(table))


# --- data, and the command


def data_table(run: Run) -> Table:
    """The data sets of a run, with the rows read, kept, left out, labelled and skipped, and the warnings."""
    rows = []
    for name, entry in manifests.data_entries(run.manifest).items():
        counts = entry.get("counts", {})
        numbers_of_rows = {
            "read": entry.get("read", counts.get("read")),
            "kept": entry.get("kept"),
            "left out": entry.get("left_out", 0),
            "labelled": entry.get("labelled"),
            "skipped": max(counts.get("skipped", 0), len(entry.get("skipped", []))),
            "warnings": len(entry.get("warnings", [])),
        }
        row = {"set": name}
        for title, count in numbers_of_rows.items():
            row[title] = MISSING if count is None else f"{count:,}"
        rows.append(row)
    return Table("", pd.DataFrame(rows))


def data_files(run: Run) -> list[str]:
    """The files of the data sets, with the first digits of their hashes."""
    lines = []
    for name, entry in manifests.data_entries(run.manifest).items():
        for file in manifests.files_of(entry):
            lines.append(f"{name}: {file['file']} (sha256 {file['sha256'][:12]}…)")
    return lines


def data_lines(run: Run) -> list[str]:
    """Other counts of the data sets, files that are missing, skipped rows and warnings."""
    lines = []
    for name, entry in manifests.data_entries(run.manifest).items():
        for key, count in entry.get("counts", {}).items():
            if count:
                lines.append(f"{name}: {key.replace('_', ' ')}: {count:,}")
        if "drawn" in entry:
            lines.append(f"{name}: {entry['drawn']}")
        if entry.get("in_train"):
            lines.append(f"{name}: rows with the texts of a training row: {entry['in_train']:,}")
        for missing in entry.get("absent", []):
            lines.append(f"{name}: not in the data folder: {missing}")
        for row in [*entry.get("skipped", []), *entry.get("warnings", [])]:
            file = f"{Path(row['file']).name}: " if row.get("file") else ""
            lines.append(f"{name}: {file}line {row['line']}: {row['why']}")
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"… and {len(lines) - _MAX_LINES:,} more, in manifest.json"]
    return lines


def command(manifest: dict[str, Any]) -> str:
    """The command to type again: with the run's data folder, threads and processes, without `--resume`."""
    words: list[str] = []
    before = ""
    for word in shlex.split(manifest["command"]):
        is_flag = word.startswith("--resume")
        # the flag may have a value behind it, such as true
        is_its_value = before == "--resume" and not word.startswith("-")
        if not (is_flag or is_its_value):
            words.append(word)
        before = word
    variables = dict(manifest.get("variables", {}))
    threads = manifest["environment"].get("threads")
    if threads:
        variables["OMP_NUM_THREADS"] = str(threads)
    if _processes(manifest) > 1:
        launcher = ["torchrun", "--nproc-per-node", str(_processes(manifest))]
        if words[0].startswith("minbert-"):
            words = [*launcher, "--no-python", *words]
        else:
            # torchrun stands in place of python
            words = [*launcher, *words[1:]]
    assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*assignments, shlex.join(words)])
