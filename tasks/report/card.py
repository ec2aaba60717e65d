"""The model card of a run's encoder: `encoder/README.md`, in the form that the Hugging Face hub reads."""

import json
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from minbert.files import expanded, read_json, write_atomic
from minbert.training import cli
from tasks import compare
from tasks.compare import DEV_NORM
from tasks.data import FOLDER
from tasks.data.fetch import sources
from tasks.intervals import RESAMPLES
from tasks.record import data_files, manifests_behind
from tasks.report import facts
from tasks.report.collect import Run, read_run
from tasks.report.html import bounds
from tasks.tables import MISSING, number

_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_NOTES = {_MINILM: f"{_MINILM} was trained on Quora duplicates, among others: scores on Quora are not clean."}
_METRICS = {"accuracy": "accuracy", "Pearson's r": "pearson", "Spearman's rho": "spearman"}


def write_missing(folders: Sequence[Path]) -> None:
    """Write the card of every finished run among `folders` whose encoder has none; an edited card stays as it is."""
    for folder in map(expanded, folders):
        encoder = folder / "encoder"
        if not (folder / "scores.json").is_file() or not encoder.is_dir():
            cli.say(f"note: {folder}: no card, as the run is not finished or has no encoder", sys.stderr)
        elif (encoder / "README.md").exists():
            cli.say(f"note: {encoder / 'README.md'} is kept as it is", sys.stderr)
        else:
            write_card(folder)


def write_card(folder: Path, resamples: int = RESAMPLES) -> Path:
    """Write the card of a finished run from what its folder records, and return its path."""
    run, encoder = read_run(folder), folder / "encoder"
    manifests = [manifest for _, manifest in manifests_behind(encoder)]
    base = _base(manifests[-1])
    about = ModelCardData(
        model_name=run.name,
        base_model=base,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "feature-extraction", "bert"],
        eval_results=list(_results(run)),
    )
    card = ModelCard.from_template(
        about,
        template_str=resources.files("tasks.report").joinpath("card.md").read_text(encoding="utf-8"),
        run=run,
        config=read_json(encoder / "config.json"),
        pooler=read_json(encoder / "minbert.json")["pooler"],
        kind="fine-tuned on several tasks" if run.multitask else "trained by contrastive learning",
        base=f"`{base}`" if base else "weights of a local folder",
        scores=_scores(run, resamples),
        resamples=f"{resamples:,}",
        files=_files(manifests),
        notes=list(_notes(manifests, base)),
        commands=[facts.command(one) for one in reversed(manifests)],
        settings=json.dumps(run.settings, indent=2, ensure_ascii=False),
    )
    path = encoder / "README.md"
    write_atomic(path, str(card) + "\n")
    return path


def _base(manifest: dict[str, Any]) -> str | None:
    """The hub's name of the weights that a run started from; None for a folder."""
    settings = manifest["all_settings"]
    name = str(settings["weights"])
    if settings.get("encoder"):
        return None
    if name == "minilm":
        return _MINILM
    return None if expanded(name).is_dir() or name.startswith((".", "/", "~")) or name.count("/") > 1 else name


def _results(run: Run) -> Iterator[EvalResult]:
    for task in run.tasks.values():
        if task.score is not None:
            kind = "text-classification" if task.classes else "sentence-similarity"
            metric, score = _METRICS.get(task.metric, task.metric), round(task.score, 4)
            yield EvalResult(kind, task.name, task.title, metric, score, dataset_split="development")


def _scores(run: Run, resamples: int) -> list[Sequence[str]]:
    """The rows of the table of scores: every task, and the dev norm of stage two."""
    own, norm = compare.own_intervals(run.tasks, norm=run.multitask, resamples=resamples)
    rows = [(one.title, one.metric, str(one.count), one.before, one.score, own[one.name]) for one in run.tasks.values()]
    rows += [(DEV_NORM, "mean", "", None, run.dev_norm, norm)] if run.multitask else []
    return [(*row[:3], number(row[3], 3), number(row[4], 3), bounds(row[5]) or MISSING) for row in rows]


def _files(manifests: Sequence[dict[str, Any]]) -> list[Sequence[str]]:
    """Name, use, SHA-256 and licence of every file that the encoder was trained or chosen on."""
    sample = (FOLDER / "sample").resolve()
    found = dict.fromkeys(entry for manifest in manifests for entry in data_files(manifest["data"]))
    rows: list[Sequence[str]] = []
    for file, sha256, use in found:
        own = Path(file).resolve().is_relative_to(sample)
        licence = "MIT (written for this project)" if own else sources.licence_of(Path(file)) or "not known"
        rows.append((Path(file).name, "training" if use == "train" else "development", sha256[:12], licence))
    return rows


def _notes(manifests: Sequence[dict[str, Any]], base: str | None) -> Iterator[str]:
    chosen = any((one.get("selection") or {}).get("by_dev_pairs", True) for one in manifests)
    how = "helped to choose" if chosen else "did not choose"
    yield f"The development rows {how} the checkpoint or the end of training."
    for data in (one["data"] for one in manifests):
        if texts := facts.in_tests(data.get("train", {})):
            yield f"Training texts: {texts}."
        shared = {name: count for name, count in (data.get("sts_dev", {}).get("also_in") or {}).items() if count}
        if shared:
            counts = ", ".join(f"{count:,} in {name}" for name, count in shared.items())
            yield f"Pairs of a development set that are also in other scored sets: {counts}."
    yield _NOTES.get(base or "", "What the first weights were trained on is not recorded here.")
    yield "`python -m tasks.benchmarks.sts_suite` counts the scored pairs that are in the training files."
