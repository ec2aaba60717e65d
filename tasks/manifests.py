"""The data sets that the manifest of a run names, and the manifests of the runs that its encoder comes from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from minbert.files import read_json


class SkippedRow(BaseModel):
    """A row of a data file that was skipped, or kept with a warning."""

    line: int | None = None
    why: str = ""
    file: str = ""


class RecordedData(BaseModel):
    """A data file, or several that are read as one, with the number of their rows; None where it is not known."""

    file: str = ""
    sha256: str = ""
    files: list["RecordedData"] = []
    name: str = ""
    read: int | None = None
    kept: int | None = None
    labelled: int | None = None
    skipped: list[SkippedRow] = []
    noted: list[SkippedRow] = []
    counts: dict[str, int] = {}
    absent: list[str] = []
    also_in: dict[str, int] = {}
    also_in_test: dict[str, int] = {}
    dev_pairs_seen: int = 0
    transductive: bool = False
    weights_transductive: bool = False

    @property
    def rows(self) -> int | None:
        """The number of rows that are kept: of triplets, if the set holds these."""
        return self.counts.get("triplets") if self.kept is None else self.kept

    @property
    def scored(self) -> int:
        """The number of rows with a label."""
        return (self.rows or 0) if self.labelled is None else self.labelled


def data_sets(data: Any, name: str = "") -> Iterator[tuple[str, RecordedData]]:
    """The sets of data under a manifest's `data` by the path of their keys: `train sst`, or `sts_dev`."""
    if not isinstance(data, dict):
        return
    if {"file", "files", "kept"} & data.keys():
        yield name, RecordedData.model_validate(data)
    for key, value in data.items():
        if key not in RecordedData.model_fields:
            yield from data_sets(value, f"{name} {key}".strip())


def manifest_behind(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The manifest of the run that an encoder's folder comes from, as (its path, its content), or None.

    It is searched for in `folder` and its parent. Another program's `manifest.json` is ignored.
    """
    for path in (folder / "manifest.json", folder.parent / "manifest.json"):
        if path.is_file():
            content = read_json(path)
            return (path, content) if isinstance(content, dict) and {"data", "settings"} <= content.keys() else None
    return None


def manifests_behind(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The manifests behind an encoder, as `manifest_behind`: that of its run, then those of the encoders before it."""
    manifests: dict[Path, tuple[Path, dict[str, Any]]] = {}
    before: str | Path | None = folder
    while before and (behind := manifest_behind(Path(before))) and behind[0].resolve() not in manifests:
        manifests[behind[0].resolve()] = behind
        before = (behind[1].get("weights") or {}).get("folder")
    return [*manifests.values()]


def data_files(data: Any) -> Iterator[tuple[str, str, str]]:
    """(file, SHA-256, `train` or `dev`) of the files under a manifest's `data`, without those for testing."""
    for name, one in data_sets(data):
        use = next((kind for kind in ("train", "dev", "test") if kind in name), "train")
        for file in (one, *one.files) if use != "test" else ():
            if file.file:
                yield file.file, file.sha256, use
