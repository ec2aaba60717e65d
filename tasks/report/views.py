"""What the page shows of one run beside the run itself: intervals, facts, figures, data files, how to repeat it."""

import json
import shlex
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.metrics

from tasks import compare, metrics
from tasks.contrastive.settings import DATA, TRIPLETS
from tasks.record import TaskScores
from tasks.report import figures, measures, papers, training
from tasks.report.collect import Run

_LONGEST_LIST = 100  # entries of a list of the manifest that the page shows
_MOST_LINES = 200  # of the counts, skipped and noted rows of a data file


def run_view(run: Run, place: int, resamples: int) -> dict[str, Any]:
    """Everything that the template shows of one run; `place` makes its anchors unique."""
    dev = run.data.get("dev", {}) if run.multitask else {}
    beside = [name for name in run.tasks if papers.on_cbcl_rows(name, dev.get(name, {}))]
    around, norm = compare.own_intervals(run.tasks, norm=run.multitask, resamples=resamples)
    strips = {}
    for name in beside:
        task, reported = run.tasks[name], [(one.system, one.scores[name]) for one in papers.CBCL_DEV]
        strips[name] = figures.strip(f"{task.title}: this run and the paper", task.score, around[name], reported)
    known = [task for task in run.tasks.values() if task.rows is not None or task.per_class]
    # The run's own pictures, less those that the page draws from the same numbers.
    drawn = {"loss": run.train, "sts-dev": run.evaluations, "mix": training.curriculum_mix(run)}
    return {
        "place": place,
        "run": run,
        "written": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.written)),
        "state": run.state(time.time()),
        "facts": [(name, str(value)) for name, value in _facts(run) if value not in ("", None)],
        "around": around,
        "norm": norm,
        "strips": strips,
        "whole": len(beside) == len(papers.CBCL_DEV[0].scores),
        "meanings": {name: training.meaning(run, name) for name in run.changes},
        "details": [_details(run, task, task.name in beside) for task in known],
        "curves": training.curves(run),
        "throughput": training.throughput(run),
        "pictures": {name: b64encode(svg).decode() for name, svg in run.pictures.items() if not drawn.get(name)},
        "accounts": _accounts(run.data),
        "command": command(run),
        "manifest": json.dumps(_shortened(run.manifest), indent=2, ensure_ascii=False),
    }


def command(run: Run) -> str:
    """The command to type again: with the run's data folder and thread count, without `--resume`."""
    words = [word for word in shlex.split(str(run.manifest.get("command", ""))) if word != "--resume"]
    threads = run.manifest.get("environment", {}).get("threads")
    variables = {**run.manifest.get("variables", {}), **({"OMP_NUM_THREADS": threads} if threads else {})}
    before = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    return " ".join([*before, shlex.join(["python", *words])])


def _facts(run: Run) -> list[tuple[str, Any]]:
    manifest, settings = run.manifest, run.settings
    environment, steps = manifest.get("environment", {}), manifest.get("plan", {}).get("steps")
    first, times = (run.parts or [environment])[0], len(run.parts) - 1
    resumed = "" if times < 1 else f", resumed {'once' if times == 1 else f'{times} times'}"
    loss, parameters = run.scores.get("last_epoch_loss"), manifest.get("parameters")
    return [
        ("started", str(first.get("started", "")).replace("T", " ")[:16] + resumed),
        ("weights", settings.get("encoder") or settings.get("weights", "")),
        ("preset", manifest.get("preset", "")),
        *([("sampling", settings.get("sampling"))] if run.multitask else _objective(settings)),
        ("steps", f"{run.step:,}" + (f" of {steps:,}" if isinstance(steps, int) else "")),
        ("kept", _kept(run)),
        ("time", training.duration(run.seconds) if run.seconds else ""),
        ("training rows", _training_rows(run)),
        ("limit", f"{settings['limit']:,} rows, drawn by seed" if settings.get("limit") else ""),
        ("dev pairs", _dev_pairs(run.data.get("sts_dev") or {})),
        ("last epoch's training loss", "" if loss is None else f"{loss:.4f}"),
        ("training texts", _in_tests(run.data.get("train", {}))),
        ("batch", settings.get("batch_size")),
        ("learning rate", f"{settings['lr']:g}" if isinstance(settings.get("lr"), int | float) else "by default"),
        ("seed", settings.get("seed")),
        ("number format", f"{manifest.get('precision', '')} on {environment.get('device', '')}"),
        ("parameters", f"{parameters:,}" if parameters else ""),
    ]


def _training_rows(run: Run) -> str:
    """The number of training rows, by task if there are several."""
    train, drawn = run.data.get("train", {}), run.manifest.get("training_rows")
    if run.multitask:
        counts = drawn or {name: one.get("kept") for name, one in train.items()}
        return ", ".join(f"{count:,} {run.task_title(name)}" for name, count in counts.items() if count is not None)
    kept = sum(drawn.values()) if drawn else train.get("kept", train.get("counts", {}).get("triplets"))
    return "" if kept is None else f"{kept:,}"


def _kept(run: Run) -> str:
    """The step whose weights are kept, and by which rule."""
    last, metric = run.selection.get("keep") == "last", run.selection.get("metric", "dev score")
    if not run.finished:
        return "the last step" if last else f"the best evaluation by {metric}"
    if not run.kept_step:
        return f"the encoder from before training: no evaluation was better by {metric}"
    return f"step {run.kept_step:,}, {'the last' if last else f'the best by {metric}'}"


def _dev_pairs(dev: dict[str, Any]) -> str:
    """Stage one's dev pairs: name, number, and how many of them are in scored sets."""
    if not dev.get("name"):
        return ""
    shared = ", ".join(f"{count:,} in {name}" for name, count in dev.get("also_in", {}).items() if count)
    absent = f"; without {', '.join(dev['absent'])}" if dev.get("absent") else ""
    return f"{dev['name']}, {dev.get('kept', 0):,}{absent}{f'; of these {shared}' if shared else ''}"


def _objective(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """What stage one minimises, and on what; objectives on triplets have an order."""
    marks = f"1 to {settings.get('marks_most')}, {settings.get('marks')}" if settings.get("marks_most") else ""
    weight = f", weight {settings['eda_weight']:g}" if settings.get("eda_weight") else ""
    ordered = DATA.get(settings.get("objective", "nt-xent")) == TRIPLETS
    return [
        ("objective", settings.get("objective")),
        ("order", settings.get("order") if ordered else ""),
        ("texts", settings.get("texts")),
        ("views", settings.get("views")),
        ("punctuation", marks + weight),
    ]


def _in_tests(train: dict[str, Any]) -> str:
    """How many unlabelled training texts are in test and dev files; empty if none are known."""
    found = []
    shared, seen = train.get("also_in_test", {}).get("any", 0), train.get("dev_pairs_seen", 0)
    if train.get("transductive"):
        found.append("hold test sentences (transductive)")
    elif shared:
        found.append(f"{shared:,} of {train.get('kept', 0):,} are in a test file too")
    if train.get("weights_transductive"):
        found.append("the weights come from a run on test sentences (transductive)")
    if seen:
        found.append(f"{seen:,} dev pairs are made of them")
    return "; ".join(found)


def _details(run: Run, task: TaskScores, beside_paper: bool) -> dict[str, Any]:
    """Class table, confusion and calibration of a classifier; scatter and errors of a regression."""
    rows = task.rows.labelled() if task.rows is not None else None
    f1 = papers.CBCL_F1.get(task.name, ()) if beside_paper else ()
    view: dict[str, Any] = {"task": task, "paper": f1 if len(f1) == len(task.per_class) else ()}
    view |= {"confusion": "", "scatter": ""}
    if rows is None or not len(rows):
        return view
    if task.classes:
        labels, two = list(range(len(task.classes))), len(task.classes) == 2
        table = sklearn.metrics.confusion_matrix(rows.gold, rows.predicted, labels=labels)
        found = measures.calibration(rows, 20 if two else 10)
        view["confusion"] = figures.confusion(f"{task.title}: confusion matrix", table, task.classes)
        view["reliability"] = figures.reliability(f"{task.title}: reliability diagram", found, 0.5 if two else 0.0)
        view["ece"] = found.ece
    else:
        how: dict[str, Any] = {
            "y_label": "predicted (points)" if run.multitask else "cosine",
            "same_scale": run.multitask,
        }
        title = f"{task.title}: predicted over gold"
        view["scatter"] = figures.scatter(title, rows.gold, rows.predicted, **how)
        view["numbers"] = _regression(rows.gold, rows.predicted, points=run.multitask)
        view["levels"] = _levels(rows.gold, rows.predicted)
    return view


def _levels(gold: np.ndarray, predicted: np.ndarray) -> list[tuple[int, int, float | None, float | None]]:
    """For each point of gold similarity: its lower end, rows, mean gold and mean prediction."""
    found = []
    for level in range(5):
        inside = (gold >= level) & ((gold < level + 1) | (level == 4))
        means = [float(side[inside].mean()) if inside.any() else None for side in (gold, predicted)]
        found.append((level, int(inside.sum()), means[0], means[1]))
    return found


def _regression(gold: np.ndarray, predicted: np.ndarray, *, points: bool) -> list[tuple[str, str]]:
    both = {"Pearson's r": metrics.pearson(predicted, gold), "Spearman's ρ": metrics.spearman(predicted, gold)}
    found = [(name, "undefined" if value is None else f"{value:.3f}") for name, value in both.items()]
    if points:
        away = np.abs(predicted - gold)
        found += [
            ("mean absolute error", f"{away.mean():.2f} points"),
            ("mean error (predicted − gold)", f"{(predicted - gold).mean():+.2f} points"),
            ("rows more than 1 point off", f"{(away > 1).sum():,} of {len(gold):,} ({(away > 1).mean():.0%})"),
        ]
    return found


def _accounts(data: Any, name: str = "") -> list[dict[str, Any]]:
    """Every set of data files of a manifest: the rows read, kept, skipped and noted, and whatever else was counted."""
    if not isinstance(data, dict):
        return []
    if not {"file", "files"} & data.keys():
        return [row for key, value in data.items() for row in _accounts(value, f"{name} {key}".strip())]
    counts, skipped, noted = dict(data.get("counts", {})), data.get("skipped", ()), data.get("noted", ())
    numbers = {
        "read": data.get("read", counts.pop("read", None)),
        "kept": data.get("kept", counts.pop("triplets", None)),
        "labelled": data.get("labelled"),
        "skipped": counts.pop("skipped", len(skipped)),
        "noted": len(noted),
    }
    lines = [f"{key.replace('_', ' ')}: {count:,}" for key, count in counts.items() if count] + _of_texts(data)
    for row in (*skipped, *noted):
        place = f"{Path(row['file']).name}: " if row.get("file") else ""
        lines.append(f"{place}line {row.get('line')}: {row.get('why')}")
    more = [f"… and {len(lines) - _MOST_LINES} more, in manifest.json"] if len(lines) > _MOST_LINES else []
    files = [(one["file"], str(one.get("sha256", ""))[:12]) for one in (data, *data.get("files", ())) if "file" in one]
    return [{"name": name, "files": files, "numbers": numbers, "lines": lines[:_MOST_LINES] + more}]


def _of_texts(data: dict[str, Any]) -> list[str]:
    """The counts that only unlabelled texts have."""
    found = [f"not in the data folder: {name}" for name in data.get("absent", ())]
    found += [f"{name}: {data[name]:,}" for name in ("texts", "distinct", "duplicates") if name in data]
    for folder, count in data.get("also_in_test", {}).items():
        found.append(f"kept texts that are in a test file{'' if folder == 'any' else f' of {folder}'}: {count:,}")
    return found


def _shortened(value: Any) -> Any:
    """The manifest with its long lists cut."""
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        more = [f"… and {len(value) - _LONGEST_LIST:,} more, in manifest.json"] if len(value) > _LONGEST_LIST else []
        return [_shortened(one) for one in value[:_LONGEST_LIST]] + more
    return value
