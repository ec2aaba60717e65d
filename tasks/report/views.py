"""What the page's template is given for one run: numbers as text, figures as SVG. Undefined is said, never NaN."""

import json
import shlex
import time
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.metrics

from tasks import compare
from tasks.contrastive.settings import DATA, TRIPLETS
from tasks.intervals import Interval
from tasks.record import TaskScores
from tasks.report import figures, measures, mix, papers, training
from tasks.report.collect import Run
from tasks.report.training import METRICS

_LONGEST_LIST = 100  # entries of a list of the manifest that the page shows
_SKIPPED_SHOWN = 200


def number(value: float | None, digits: int = 3) -> str:
    """A score as a person reads it."""
    return "undefined" if value is None else f"{value:.{digits}f}"


def bounds(around: Interval | None, digits: int = 3) -> str:
    """An interval as a person reads it, empty where there is none."""
    return "" if around is None else f"{around.low:.{digits}f} to {around.high:.{digits}f}"


def of_run(run: Run, place: int, resamples: int) -> dict[str, Any]:
    """Everything the template shows of one run; `place` makes its anchors unique."""
    dev = run.manifest.get("data", {}).get("dev", {}) if run.stage == "multitask" else {}
    beside = [name for name in run.tasks if papers.on_cbcl_rows(name, dev.get(name, {}))]
    around, norm = compare.own_intervals(run.tasks, norm=run.stage == "multitask", resamples=resamples)
    return {
        "place": place,
        "name": run.name,
        "stage": run.stage,
        "finished": run.finished,
        "state": _state(run),
        "chosen": run.selection.get("by_dev_pairs", True),
        "facts": _facts(run),
        "scores": _scores(run, around, beside),
        "norm": {"score": number(run.dev_norm, 4), "around": bounds(norm)} if run.stage == "multitask" else None,
        "changes": _changes(run),
        "paper": _paper(run, beside),
        "tasks": [
            _details(run, task, task.name in beside)
            for task in run.tasks.values()
            if task.rows is not None or task.per_class
        ],
        "training": training.curves(run),
        "throughput": training.throughput(run),
        "pictures": _pictures(run),
        "left_out": run.left_out,
        "accounts": _accounts(run.manifest.get("data", {})),
        "command": command(run),
        "manifest": json.dumps(_shortened(run.manifest), indent=2, ensure_ascii=False),
    }


def _pictures(run: Run) -> list[dict[str, str]]:
    """The run's own pictures, less those that the page draws from the same numbers."""
    here = {
        "loss": bool(run.train),
        "sts-dev": bool(run.evaluations),
        "mix": mix.of_curriculum(run) is not None,
    }
    chosen = [(name, data) for name, data in run.pictures if not here.get(name)]
    return [
        {"name": name.replace("_", " ").replace("-", " "), "data": b64encode(data).decode("ascii")}
        for name, data in chosen
    ]


def command(run: Run) -> str:
    """The command to type again: with the run's data folder and thread count, without `--resume`."""
    words = [word for word in shlex.split(str(run.manifest.get("command", ""))) if word != "--resume"]
    threads = run.manifest.get("environment", {}).get("threads")
    variables = {**run.manifest.get("variables", {}), **({"OMP_NUM_THREADS": threads} if threads else {})}
    before = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    return " ".join([*before, shlex.join(["python", *words])])


def _facts(run: Run) -> list[tuple[str, str]]:
    manifest, settings = run.manifest, run.settings
    environment, steps = manifest.get("environment", {}), manifest.get("plan", {}).get("steps")
    weights = settings.get("encoder") or settings.get("weights", "")
    first = run.parts[0] if run.parts else environment
    resumed = f", resumed {_times(len(run.parts) - 1)}" if len(run.parts) > 1 else ""
    facts = [
        ("started", str(first.get("started", "")).replace("T", " ")[:16] + resumed),
        ("weights", weights),
        ("preset", manifest.get("preset", "")),
        *(_objective(settings) if run.stage == "contrastive" else [("sampling", settings.get("sampling"))]),
        ("steps", f"{run.step:,} of {steps:,}" if isinstance(steps, int) else f"{run.step:,}"),
        ("kept", _kept(run)),
        ("time", training.duration(run.seconds) if run.seconds else ""),
        ("training rows", _training_rows(run)),
        ("limit", f"{settings['limit']:,} rows, drawn by seed" if settings.get("limit") else ""),
        ("dev pairs", _dev_pairs(manifest.get("data", {}).get("sts_dev") or {})),
        (
            "last epoch's training loss",
            number(run.scores["last_epoch_loss"], 4) if "last_epoch_loss" in run.scores else "",
        ),
        ("training texts", _in_tests(manifest.get("data", {}).get("train", {}))),
        ("batch", settings.get("batch_size")),
        ("learning rate", f"{settings['lr']:g}" if isinstance(settings.get("lr"), int | float) else "by default"),
        ("seed", settings.get("seed")),
        ("number format", f"{manifest.get('precision', '')} on {environment.get('device', '')}"),
        ("parameters", f"{manifest['parameters']:,}" if isinstance(manifest.get("parameters"), int) else ""),
    ]
    return [(name, str(value)) for name, value in facts if value not in ("", None)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _state(run: Run) -> str:
    """Whether the run is finished, running or stopped, and when it wrote last."""
    state = run.state(time.time())
    said = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.written))
    return {
        "finished": "Finished",
        "running": f"Running, last logged at {said}",
        "stopped": f"Stopped, last logged at {said}",
    }[state]


def _training_rows(run: Run) -> str:
    """The rows that are trained on, by task where there are several."""
    train = run.manifest.get("data", {}).get("train", {})
    drawn = run.manifest.get("training_rows")
    if run.stage == "contrastive" and drawn:
        return f"{sum(drawn.values()):,}"
    if run.stage == "multitask":
        kept = drawn or {name: one.get("kept") for name, one in train.items() if isinstance(one, dict)}
        shown = [(run.tasks[name].title if name in run.tasks else name, count) for name, count in kept.items()]
        return ", ".join(f"{count:,} {name}" for name, count in shown if isinstance(count, int))
    kept = train.get("kept", train.get("counts", {}).get("triplets"))
    return f"{kept:,}" if isinstance(kept, int) else ""


def _kept(run: Run) -> str:
    """Which step's weights the run has left, and by what; before it has, the rule."""
    last, metric = run.selection.get("keep") == "last", run.selection.get("metric", "dev score")
    if not run.finished:
        return "the last step" if last else f"the best evaluation by {metric}"
    if not run.kept_step:
        return f"the encoder from before training: no evaluation was better by {metric}"
    return f"step {run.kept_step:,}, {'the last' if last else f'the best by {metric}'}"


def _dev_pairs(dev: dict[str, Any]) -> str:
    """Stage one's dev pairs: which, how many, and how many of them stand in scored sets."""
    if not dev.get("name"):
        return ""
    shared = ", ".join(f"{count:,} in {name}" for name, count in dev.get("also_in", {}).items() if count)
    absent = f"; without {', '.join(dev['absent'])}" if dev.get("absent") else ""
    return f"{dev['name']}, {dev.get('kept', 0):,}{absent}{f'; of these {shared}' if shared else ''}"


def _objective(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """What stage one minimises, and on what; an order is shown where there is one."""
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
    """What unlabelled training texts share with files that judge; empty where nothing is known to be shared."""
    found = []
    shared, seen = train.get("also_in_test", {}).get("any", 0), train.get("dev_pairs_seen", 0)
    if train.get("transductive"):
        found.append("hold test sentences (transductive)")
    elif shared:
        found.append(f"{shared:,} of {train.get('kept', 0):,} stand in a test file too")
    if train.get("weights_transductive"):
        found.append("the weights come from a run on test sentences (transductive)")
    if seen:
        found.append(f"{seen:,} dev pairs are made of them")
    return "; ".join(found)


def _scores(run: Run, around: dict[str, Interval | None], beside: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for task in run.tasks.values():
        reported = [(one.system, one.scores[task.name]) for one in papers.CBCL_DEV if task.name in one.scores]
        found.append(
            {
                "title": task.title,
                "metric": METRICS.get(task.metric, task.metric),
                "score": number(task.score, 4 if run.stage == "contrastive" else 3),
                "before": number(task.before, 4) if task.before is not None else "",
                "gain": "" if task.score is None or task.before is None else f"{task.score - task.before:+.4f}",
                "around": bounds(around[task.name]),
                "count": f"{task.count:,}",
                "strip": figures.strip(f"{task.title}: this run and the paper", task.score, around[task.name], reported)
                if task.name in beside
                else "",
            }
        )
    return found


def _changes(run: Run) -> list[dict[str, str]]:
    """The numbers of stage one before and after training."""
    found = []
    for name, (before, after) in run.changes.items():
        title, unit = training.meaning(run, name)
        change = "undefined" if before is None or after is None else f"{after - before:+.4f}"
        values = {"before": number(before, 4), "after": number(after, 4), "change": change}
        found.append({"title": title, "unit": unit, **values})
    return found


def _paper(run: Run, known: Sequence[str]) -> dict[str, Any]:
    """The paper's dev scores beside the run's, of the tasks whose dev rows are the paper's."""
    own = [number(run.tasks[name].score) for name in known]
    whole = len(known) == len(papers.CBCL_DEV[0].scores)
    if whole:
        own.append(number(run.dev_norm))
    rows = [
        (one.system, [number(one.scores[name]) for name in known] + ([number(one.dev_norm)] if whole else []))
        for one in papers.CBCL_DEV
    ]
    heads = [f"{run.tasks[name].title}, {METRICS.get(run.tasks[name].metric, '')}" for name in known]
    return {"heads": heads + (["dev norm"] if whole else []), "own": own, "rows": rows}


def _details(run: Run, task: TaskScores, beside_paper: bool) -> dict[str, Any]:
    """Class table, confusion and calibration of a classifier; scatter and errors of a regression."""
    rows = task.rows.labelled() if task.rows is not None else None
    f1 = papers.CBCL_F1.get(task.name, ())
    reported = beside_paper and bool(f1) and len(f1) == len(task.per_class)
    view: dict[str, Any] = {
        "title": task.title,
        "table": [_class(row, f1[place] if reported else None) for place, row in enumerate(task.per_class)],
        "paper": reported,
        "confusion": "", "reliability": "", "scatter": "", "said": [],
    }  # fmt: skip
    if rows is None or not len(rows):
        return view
    if task.classes:
        labels = list(range(len(task.classes)))
        table = sklearn.metrics.confusion_matrix(rows.gold, rows.predicted, labels=labels)
        found = measures.calibration(rows, 20 if len(task.classes) == 2 else 10)
        view["confusion"] = figures.confusion(f"{task.title}: confusion matrix", table, task.classes)
        least = 0.5 if len(task.classes) == 2 else 0.0
        view["reliability"] = figures.reliability(f"{task.title}: reliability diagram", found, least)
        view["ece"] = number(found.ece)
    else:
        cosine = run.stage == "contrastive"
        label = "cosine" if cosine else "predicted (points)"
        view["scatter"] = figures.scatter(
            f"{task.title}: predicted over gold", rows.gold, rows.predicted, y_label=label, same_scale=not cosine
        )
        view["said"] = _regression(rows.gold, rows.predicted, points=not cosine)
        view["levels"] = _levels(rows.gold, rows.predicted)
    return view


def _levels(gold: np.ndarray, predicted: np.ndarray) -> list[tuple[str, ...]]:
    """For each point of gold similarity: its range, rows, mean gold and mean prediction."""
    found = []
    for level in range(5):
        inside = (gold >= level) & ((gold < level + 1) | (level == 4))
        means = [number(float(side[inside].mean()), 2) if inside.any() else "–" for side in (gold, predicted)]
        found.append((f"{level} to {level + 1}", f"{int(inside.sum()):,}", *means))
    return found


def _class(row: dict[str, Any], paper: float | None) -> dict[str, str]:
    scores = {key: number(row.get(key)) for key in ("precision", "recall", "f1")}
    return {"label": str(row.get("label")), **scores, "support": f"{row.get('support', 0):,}", "paper": number(paper)}


def _regression(gold: np.ndarray, predicted: np.ndarray, *, points: bool) -> list[tuple[str, str]]:
    from tasks import metrics

    found = [
        ("Pearson's r", number(metrics.pearson(predicted, gold))),
        ("Spearman's ρ", number(metrics.spearman(predicted, gold))),
    ]
    if points:
        away = np.abs(predicted - gold)
        found += [
            ("mean absolute error", f"{away.mean():.2f} points"),
            ("mean error (predicted − gold)", f"{(predicted - gold).mean():+.2f} points"),
            ("rows more than 1 point off", f"{(away > 1).sum():,} of {len(gold):,} ({(away > 1).mean():.0%})"),
        ]
    return found


def _accounts(data: Any, name: str = "") -> list[dict[str, Any]]:
    """Every set of data files of a manifest: what was read, kept, skipped and noted, and what else was counted."""
    if not isinstance(data, dict):
        return []
    if not {"file", "files"} & data.keys():
        return [row for key, value in data.items() for row in _accounts(value, f"{name} {key}".strip())]
    counts = dict(data.get("counts", {}))
    known = {
        "read": data.get("read", counts.pop("read", None)),
        "kept": data.get("kept", counts.pop("triplets", None)),
        "labelled": data.get("labelled"),
        "skipped": counts.pop("skipped", len(data.get("skipped", ()))),
        "noted": len(data.get("noted", ())),
    }
    listed = [f"{key.replace('_', ' ')}: {count:,}" for key, count in counts.items() if count] + _of_texts(data)
    listed += [_row(row) for row in (*data.get("skipped", ()), *data.get("noted", ()))]
    files = [one for one in (data, *data.get("files", ())) if "file" in one]
    return [
        {
            "name": name,
            "files": [(str(one["file"]), str(one.get("sha256", ""))[:12]) for one in files],
            **{key: "–" if count is None else f"{count:,}" for key, count in known.items()},
            "listed": listed[:_SKIPPED_SHOWN],
            "more": max(len(listed) - _SKIPPED_SHOWN, 0),
        }
    ]


def _of_texts(data: dict[str, Any]) -> list[str]:
    """What is counted of unlabelled texts alone."""
    found = [f"not in the data folder: {name}" for name in data.get("absent", ())]
    found += [f"{name}: {data[name]:,}" for name in ("texts", "distinct", "duplicates") if name in data]
    for folder, count in data.get("also_in_test", {}).items():
        found.append(f"kept texts that stand in a test file{'' if folder == 'any' else f' of {folder}'}: {count:,}")
    return found


def _row(row: dict[str, Any]) -> str:
    place = f"{Path(row['file']).name}: " if row.get("file") else ""
    return f"{place}line {row.get('line')}: {row.get('why')}"


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        more = [f"… and {len(value) - _LONGEST_LIST:,} more, in manifest.json"] if len(value) > _LONGEST_LIST else []
        return [_shortened(one) for one in value[:_LONGEST_LIST]] + more
    return value
