"""What the page says of a run beside its scores: settings, rows, data files, leaks, and the command to repeat it."""

import os
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tasks.contrastive.settings import DATA, TRIPLETS
from tasks.report.collect import Run
from tasks.tables import duration

_LONGEST_LIST = 100  # entries of a list of the manifest that the page shows
_MOST_LINES = 200  # of the counts, skipped and noted rows of a data file


def command(manifest: dict[str, Any]) -> str:
    """The command to type again: with the run's data folder and thread count, without `--resume`."""
    recorded = str(manifest.get("command", ""))
    try:
        words = shlex.split(recorded)
    except ValueError:  # a quote is not closed: edited by hand
        words = recorded.split()
    words = [word for word in words if word != "--resume"]
    threads = manifest.get("environment", {}).get("threads")
    variables = {**manifest.get("variables", {}), **({"OMP_NUM_THREADS": threads} if threads else {})}
    before = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    python = [] if words[:1] and words[0].startswith("minbert-") else ["python"]
    return " ".join([*before, shlex.join([*python, *words])])


def links(run: Run, page: Path) -> list[tuple[str, str]]:
    """Name and relative address of the run's encoder and predictions, as far as they are there."""
    found = [(name, run.folder / name) for name in ("encoder", "predictions") if (run.folder / name).is_dir()]
    return [(name, quote(os.path.relpath(path, page.absolute().parent)) + "/") for name, path in found]


def facts(run: Run) -> list[tuple[str, str]]:
    """Names and values of what is known."""
    manifest, settings = run.manifest, run.settings
    environment, steps = manifest.get("environment", {}), manifest.get("plan", {}).get("steps")
    first, times = (run.parts or [environment])[0], len(run.parts) - 1
    resumed = "" if times < 1 else f", resumed {'once' if times == 1 else f'{times} times'}"
    loss, parameters = run.scores.get("last_epoch_loss"), manifest.get("parameters")
    found = [
        ("time", duration(run.seconds) if run.seconds else ""),
        ("device", f"{environment.get('device', '')}, {manifest.get('precision', '')}"),
        ("training rows", _training_rows(run)),
        ("steps", f"{run.step:,}" + (f" of {steps:,}" if isinstance(steps, int) else "")),
        ("kept", _kept(run)),
        ("started", str(first.get("started", "")).replace("T", " ")[:16] + resumed),
        ("weights", settings.get("encoder") or settings.get("weights", "")),
        ("sentence encoder", settings.get("sentence_encoder")),
        ("preset", manifest.get("preset", "")),
        *([("sampling", settings.get("sampling"))] if run.multitask else _objective(settings)),
        ("limit", f"{settings['limit']:,} rows, drawn by seed" if settings.get("limit") else ""),
        ("dev pairs", _dev_pairs(run.data.get("sts_dev") or {})),
        ("last epoch's training loss", "" if loss is None else f"{loss:.4f}"),
        ("training texts", in_tests(run.data.get("train", {}))),
        ("pooler", settings.get("pooler")),
        ("batch", settings.get("batch_size")),
        ("learning rate", f"{settings['lr']:g}" if isinstance(settings.get("lr"), int | float) else "by default"),
        ("heads' learning rate", f"{settings['head_lr']:g}" if settings.get("head_lr") else ""),
        ("R-Drop", f"{settings['r_drop']:g}" if settings.get("r_drop") else ""),
        ("weights averaged", _averaged(run)),
        ("seed", settings.get("seed")),
        ("parameters", f"{parameters:,}" if parameters else ""),
    ]
    return [(name, str(value)) for name, value in found if value not in ("", None)]


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


def _averaged(run: Run) -> str:
    """The part of the steps whose mean weights the run has kept."""
    part = run.settings.get("average", 0)
    return f"over the last {part:.0%} of the steps" if part and run.finished and run.kept_step == run.step else ""


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


def in_tests(train: dict[str, Any]) -> str:
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


def accounts(data: Any, name: str = "") -> list[dict[str, Any]]:
    """Every set of data files of a manifest: the rows read, kept, skipped and noted, and whatever else was counted."""
    if not isinstance(data, dict):
        return []
    if not {"file", "files"} & data.keys():
        return [row for key, value in data.items() for row in accounts(value, f"{name} {key}".strip())]
    counts, skipped, noted = dict(data.get("counts", {})), data.get("skipped", ()), data.get("noted", ())
    numbers = {
        "read": data.get("read", counts.pop("read", None)),
        "kept": data.get("kept", counts.pop("triplets", None)),
        "labelled": data.get("labelled"),
        "skipped": counts.pop("skipped", len(skipped)),
        "noted": len(noted),
    }
    lines = [f"{key.replace('_', ' ')}: {count:,}" for key, count in counts.items() if count]
    lines += [f"not in the data folder: {name}" for name in data.get("absent", ())]
    lines += [f"{name}: {data[name]:,}" for name in ("texts", "distinct", "duplicates") if name in data]
    for folder, count in data.get("also_in_test", {}).items():
        lines.append(f"kept texts that are in a test file{'' if folder == 'any' else f' of {folder}'}: {count:,}")
    for row in (*skipped, *noted):
        place = f"{Path(row['file']).name}: " if row.get("file") else ""
        lines.append(f"{place}line {row.get('line')}: {row.get('why')}")
    more = [f"… and {len(lines) - _MOST_LINES} more, in manifest.json"] if len(lines) > _MOST_LINES else []
    files = [(one["file"], str(one.get("sha256", ""))[:12]) for one in (data, *data.get("files", ())) if "file" in one]
    return [{"name": name, "files": files, "numbers": numbers, "lines": lines[:_MOST_LINES] + more}]


def shortened(value: Any) -> Any:
    """The manifest with its long lists cut."""
    if isinstance(value, dict):
        return {key: shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        more = [f"… and {len(value) - _LONGEST_LIST:,} more, in manifest.json"] if len(value) > _LONGEST_LIST else []
        return [shortened(one) for one in value[:_LONGEST_LIST]] + more
    return value
