"""The model card of a run's encoder: `encoder/README.md`, in the form that the Hugging Face hub reads."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import StrictUndefined, Template

from minbert.files import expanded, read_json, write_atomic
from tasks import compare
from tasks.intervals import RESAMPLES
from tasks.manifests import RecordedData, data_files, data_sets, manifests_behind
from tasks.metrics import DEV_NORM
from tasks.report import facts
from tasks.runs import Run, read_run
from tasks.tables import MISSING, Table, number

_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_NOTE = (
    f"{_MINILM} was trained on Quora duplicates and on the captions of Flickr30k and COCO, among others: "
    "scores on Quora are not clean, nor are those on STS, some of whose pairs are such captions."
)


def write_missing(run: Run) -> None:
    """Write the card of a finished run whose encoder has none; an edited card stays as it is."""
    encoder = run.folder / "encoder"
    if run.finished and encoder.is_dir() and not (encoder / "README.md").exists():
        write_card(run.folder)


def write_card(folder: Path, resamples: int = RESAMPLES) -> Path:
    """Write the card of a finished run from what its folder records, and return its path."""
    run, encoder = read_run(folder), folder / "encoder"
    manifests = [manifest for _, manifest in manifests_behind(encoder)]
    base = _base(manifests[-1])
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    card = Template(template, undefined=StrictUndefined).render(
        run=run,
        config=read_json(encoder / "config.json"),
        pooler=read_json(encoder / "minbert.json")["pooler"],
        kept=facts.kept(run),
        kind="fine-tuned on several tasks" if run.multitask else "trained by contrastive learning",
        base=base,
        scores=_scores(run, resamples).pipes(),
        resamples=f"{resamples:,}",
        files=_files(manifests).pipes(),
        notes=list(_notes(manifests, base)),
        commands=[facts.command(one) for one in reversed(manifests)],
        settings=json.dumps(run.settings, indent=2, ensure_ascii=False),
    )
    path = encoder / "README.md"
    write_atomic(path, card + "\n")
    return path


def _base(manifest: dict[str, Any]) -> str | None:
    """The hub's name of the weights that a run started from; None for a folder."""
    settings = manifest.get("all_settings", {})
    name = str(settings.get("weights", ""))
    if settings.get("encoder"):
        return None
    if name == "minilm":
        return _MINILM
    return None if expanded(name).is_dir() or name.startswith((".", "/", "~")) or name.count("/") > 1 else name


def _scores(run: Run, resamples: int) -> Table:
    """Every task, and the dev norm of stage two."""
    own, norm = compare.own_intervals(run.tasks, norm=run.multitask, resamples=resamples)
    rows = [(one.title, one.metric, str(one.count), one.before, one.score, own[one.name]) for one in run.tasks.values()]
    rows += [(DEV_NORM, "mean", "", None, run.dev_norm, norm)] if run.multitask else []
    cells = [(*row[:3], number(row[3], 3), number(row[4], 3), row[5].text() if row[5] else MISSING) for row in rows]
    columns = ["task", "metric", "rows", "before training", "score", "95% interval"]
    return Table("Scores", pd.DataFrame(cells, columns=columns), left=2)


def _files(manifests: Sequence[dict[str, Any]]) -> Table:
    """Name, use and SHA-256 of every file that the encoder was trained or chosen on."""
    entries = dict.fromkeys(entry for manifest in manifests for entry in data_files(manifest["data"]))
    uses = {"train": "training", "dev": "development"}
    rows = [(Path(file).name, uses[use], sha256[:12]) for file, sha256, use in entries]
    return Table("Data", pd.DataFrame(rows, columns=["file", "used for", "SHA-256"]), left=3)


def _notes(manifests: Sequence[dict[str, Any]], base: str | None) -> Iterator[str]:
    chosen = any(one["selection"]["by_dev_pairs"] for one in manifests)
    verb = "helped to choose" if chosen else "did not choose"
    yield f"The development rows {verb} the checkpoint or the end of training."
    for data in (dict(data_sets(one["data"])) for one in manifests):
        if texts := facts.in_tests(data.get("train", RecordedData())):
            yield f"Training texts: {texts}."
        if counts := facts.shared(data.get("sts_dev", RecordedData())):
            yield f"Pairs of a development set that are also in other scored sets: {counts}."
    yield _MINILM_NOTE if base == _MINILM else "What the first weights were trained on is not recorded here."
    yield "`python -m tasks.benchmarks.sts_suite` counts the scored pairs that are in the training files."
