"""What the page says of a run in addition to its scores: settings, rows, data files, leaks, and the command."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tasks.manifests import RecordedData, manifests_behind
from tasks.runs import Run
from tasks.tables import MISSING, Table, duration

_SETTINGS = ("weights", "encoder", "sentence_encoder", "objective", "batch_size", "lr", "seed")
"""The settings that stand beside the scores, if they are not empty."""
_MINILM = (
    "The first weights, all-MiniLM-L6-v2, were trained on Quora duplicates and on the captions of Flickr30k and COCO, "
    "among others: scores on Quora are not clean, nor are those on STS, some of whose pairs are such captions."
)
_MOST_LINES = 200  # counts, skipped and noted rows that the page lists


def command(manifest: Mapping[str, Any]) -> str:
    """The command to type again: with the run's data folder, threads and processes, without `--resume`."""
    words = [word for word in shlex.split(manifest["command"]) if word != "--resume"]
    threads = manifest["environment"].get("threads")
    variables = manifest.get("variables", {}) | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    before = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    console = words[:1] and words[0].startswith("minbert-")
    launcher = [] if console else ["python"]
    if (processes := _processes(manifest)) > 1:
        launcher = ["torchrun", "--nproc-per-node", str(processes), *(["--no-python"] if console else [])]
    return " ".join([*before, shlex.join([*launcher, *words])])


def _processes(manifest: Mapping[str, Any]) -> int:
    number: int = manifest["settings"].get("number of processes", 1)
    return number


def run_facts(run: Run) -> list[tuple[str, str]]:
    """Names and values of what is known of a run; what is not known is left out."""
    manifest, loss = run.manifest, run.scores.get("last_epoch_loss")
    environment, parameters, times = manifest["environment"], manifest.get("parameters"), len(run.sessions) - 1
    resumed = f", resumed {'once' if times == 1 else f'{times} times'}" if times > 0 else ""
    rows = [
        ("wall time", duration(run.seconds)),
        ("device", f"{environment['device']}, {manifest['precision']}"),
        ("processes", str(_processes(manifest)) if _processes(manifest) > 1 else ""),
        ("training rows", _training_rows(run)),
        ("steps", f"{run.last_step:,} of {run.planned_steps:,}"),
        ("kept", _kept(run)),
        ("started", run.sessions[0]["started"].replace("T", " ")[:16] + resumed),
        ("preset", manifest.get("preset", "")),
        *((name.replace("_", " "), str(run.settings.get(name) or "")) for name in _SETTINGS),
        ("dev pairs", _dev_pairs(run.data.get("sts_dev", RecordedData()))),
        ("training texts", _in_tests(run.data.get("train", RecordedData()))),
        ("last epoch's training loss", "" if loss is None else f"{loss:.4f}"),
        ("parameters", f"{parameters:,}" if parameters else ""),
    ]
    return [(name, value) for name, value in rows if value]


def first_weights(run: Run) -> str:
    """What the first weights, those behind all earlier runs, have seen: known of the packaged MiniLM, else empty."""
    *_, first = [run.manifest, *(manifest for _, manifest in manifests_behind(run.folder))]
    settings = first.get("all_settings", {})
    return _MINILM if settings.get("weights") == "minilm" and not settings.get("encoder") else ""


def _training_rows(run: Run) -> str:
    """The number of training rows, by task if there are several."""
    counts = run.manifest.get("training_rows", {})
    if run.multitask:
        return ", ".join(f"{count:,} {run.tasks[name].title}" for name, count in counts.items())
    return f"{sum(counts.values()):,}"


def _kept(run: Run) -> str:
    """The step whose weights are kept, and by which rule; with `--average` the steps whose mean they are."""
    rule = "the last" if run.selection["keep"] == "last" else f"the best by {run.selection['metric']}"
    if not run.kept_step:
        return f"the encoder from before training: no evaluation was better by {run.selection['metric']}"
    share = run.settings.get("average") or 0
    if share and run.kept_step == run.planned_steps:
        return f"the mean of the weights over the last {share:.0%} of {run.kept_step:,} steps, {rule}"
    return f"step {run.kept_step:,}, {rule}"


def _dev_pairs(dev: RecordedData) -> str:
    """Stage one's dev pairs: name, number, and how many of them are in scored sets."""
    if not dev.name:
        return ""
    absent = f"; without {', '.join(dev.absent)}" if dev.absent else ""
    return f"{dev.name}, {dev.rows or 0:,}{absent}{f'; of these {_shared(dev)}' if _shared(dev) else ''}"


def _shared(dev: RecordedData) -> str:
    """How many dev pairs are in scored sets as well, by set; empty if none are known."""
    return ", ".join(f"{count:,} in {name}" for name, count in dev.also_in.items() if count)


def _in_tests(train: RecordedData) -> str:
    """How many unlabelled training texts are in test and dev files; empty if none are known."""
    parts = []
    leaked = train.also_in_test.get("any", 0)
    if train.transductive:
        parts.append("hold test sentences (transductive)")
    elif leaked:
        parts.append(f"{leaked:,} of {train.rows or 0:,} are in a test file too")
    if train.weights_transductive:
        parts.append("the weights come from a run on test sentences (transductive)")
    if train.dev_pairs_seen:
        parts.append(f"{train.dev_pairs_seen:,} dev pairs are made of them")
    return "; ".join(parts)


def data_table(data: Mapping[str, RecordedData]) -> Table:
    """Every set of data files of a run: the rows read, kept, labelled, skipped and noted."""
    rows = []
    for name, one in data.items():
        files = [file for file in (one, *one.files) if file.file]
        counts = {
            "read": one.counts.get("read") if one.read is None else one.read,
            "kept": one.rows,
            "labelled": one.labelled,
            "skipped": one.counts.get("skipped", len(one.skipped)),
            "noted": len(one.noted),
        }
        shown = {title: MISSING if count is None else f"{count:,}" for title, count in counts.items()}
        paths = ", ".join(f"{file.file} (sha256 {file.sha256[:12]}…)" for file in files)
        rows.append({"set": name, "file": paths or MISSING, **shown})
    return Table("", pd.DataFrame(rows), left=2)


def data_lines(data: Mapping[str, RecordedData]) -> list[str]:
    """Other counts of the sets of data, files that are missing, and the skipped and noted rows."""
    lines = []
    for name, one in data.items():
        lines += [f"{name}: {key.replace('_', ' ')}: {count:,}" for key, count in one.counts.items() if count]
        lines += [f"{name}: not in the data folder: {missing}" for missing in one.absent]
        for row in (*one.skipped, *one.noted):
            file = f"{Path(row.file).name}: " if row.file else ""
            lines.append(f"{name}: {file}line {row.line}: {row.why}")
    more = [f"… and {len(lines) - _MOST_LINES:,} more, in manifest.json"] if len(lines) > _MOST_LINES else []
    return lines[:_MOST_LINES] + more
