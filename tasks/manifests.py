"""A finished run as its manifest tells it: its data, their files, its sessions, and the runs behind its encoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import read_json
from minbert.train import checkpoint
from tasks import readers

MINILM_DATA = "SNLI, MultiNLI, Quora duplicates and captions of Flickr30k and COCO"
"""What all-MiniLM-L6-v2 was trained on, among others, that the tasks and suites here score."""


def finished(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest and the scores of a finished run. Raises `UserError` if `folder` is not one."""
    manifest = read_json(folder / "manifest.json")
    scores = folder / "scores.json"
    if not scores.is_file():
        raise UserError(f"{folder}: has no scores.json, which a run writes at its end: let it finish first (--resume)")
    return manifest, read_json(scores)


def fine_tuned(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """As `finished`, of a run of stage two, which has heads; `scores["step"]` is the checkpoint that it has kept."""
    manifest, scores = finished(folder)
    if not is_multitask(manifest):
        raise UserError(f"{folder}: holds no heads: only runs of multitask_train.py have them")
    return manifest, scores


def is_multitask(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is of a run of stage two: its command alone has the setting `tasks`."""
    return "tasks" in manifest.get("all_settings", {})


def kept_weights(run: Path, scores: Mapping[str, Any]) -> Path:
    """The file of the encoder and heads that a run of stage two has kept, which `fine_tuned` gave these scores."""
    return checkpoint.folder_of(run / "checkpoints", scores["step"]) / "model.safetensors"


def recorded_file(run: Path, task: str, split: str, data: Path | None) -> Path:
    """The file that a run read for a task and a split.

    It is the file of the recorded name in `data/course` or `data`, or else the recorded one, whichever has the recorded
    hash. Raises `UserError` if none has.
    """
    entry = read_json(run / "manifest.json")["data"][split][task]
    recorded = Path(entry["file"])
    candidates = [recorded]
    if data is not None:
        candidates = [data / "course" / recorded.name, data / recorded.name, recorded]
    for path in candidates:
        if path.is_file() and readers.digest(path) == entry["sha256"]:
            return path
    raise UserError(
        f"{recorded}: missing, or not the file that {run} was made with; give the folder that holds it with --data DIR"
    )


def data_entries(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of the data sets by name: `train sst` of stage two; `train`, `sts_dev`, `sts_dev STS12` of stage one.

    An entry has `file` and `sha256`, or `files` with these of each; the rows `read`, `kept` and `labelled`, or `counts`
    of them; and the rows `skipped` and those with `warnings`.
    """
    data = manifest["data"]
    entries = {}
    if is_multitask(manifest):
        for split, of_split in data.items():
            for task, entry in of_split.items():
                entries[f"{split} {task}"] = entry
        return entries
    entries["train"] = data["train"]
    entries["sts_dev"] = data["sts_dev"]
    # several dev sets are entries in the entry of all of them
    for name, value in data["sts_dev"].items():
        if isinstance(value, dict) and "file" in value:
            entries[f"sts_dev {name}"] = value
    return entries


def files_of(entry: dict[str, Any]) -> list[dict[str, str]]:
    """The files of a data set with their hashes."""
    if entry.get("file"):
        return [entry]
    return entry.get("files", [])


def manifest_behind(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The manifest of the run that an encoder's folder comes from, as (its path, its content), or None.

    It is searched for in `folder` and its parent. Another program's `manifest.json` is ignored.
    """
    for path in (folder / "manifest.json", folder.parent / "manifest.json"):
        if path.is_file():
            content = read_json(path)
            is_run = isinstance(content, dict) and {"data", "settings"} <= content.keys()
            return (path, content) if is_run else None
    return None


def describe_run(folder: Path) -> str:
    """The preset of the run that an encoder's folder comes from, for display; empty without such a run."""
    if not folder.is_dir():  # a name, such as minilm
        return ""
    behind = manifest_behind(folder)
    return f"a run with --preset {behind[1]['preset']}" if behind and "preset" in behind[1] else ""


def manifests_behind(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The manifests behind an encoder, as `manifest_behind`: of its run, then of the runs before it."""
    manifests: dict[Path, tuple[Path, dict[str, Any]]] = {}
    before: str | Path | None = folder
    while before:
        behind = manifest_behind(Path(before))
        if behind is None or behind[0].resolve() in manifests:
            break
        path, content = behind
        # each once: manifests that name each other's weights would never end
        manifests[path.resolve()] = behind
        before = (content.get("weights") or {}).get("folder")
    return [*manifests.values()]


def starts_from_minilm(folder: Path) -> bool:
    """Whether the first weights behind a run or an encoder are all-MiniLM-L6-v2's, by the name of their folder."""
    first = str(folder)
    for _, manifest in manifests_behind(folder):
        first = str((manifest.get("weights") or {}).get("folder", ""))
    return "all-minilm-l6-v2" in first.lower().replace("_", "-")
