"""The table of public data sets, `sets.toml`, as dataclasses."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("sets.toml")


@dataclass(frozen=True)
class File:
    """A file and its expected content; `rows` 0 or an empty `sha256` means unknown."""

    path: str
    rows: int = 0
    sha256: str = ""
    form: str = "lines"  # what a row is: lines, or the records below the header of a tsv or csv table


@dataclass(frozen=True)
class Source:
    """An origin of files: a base URL or an archive; without either, no public address is known."""

    files: tuple[File, ...]
    url: str = ""
    archive: str = ""
    drop: str = ""  # prefix of the files' paths that is not part of the source's paths
    sha256: str = ""  # expected SHA-256 of the archive
    exact: bool = True  # False: another edition, verified by row counts and not by hashes
    partial: bool = False  # fewer rows or splits: used only if every source before it fails

    def __str__(self) -> str:
        return self.url or self.archive


@dataclass(frozen=True)
class Part:
    """Files that belong together under one licence, and their sources in order of preference."""

    name: str
    sources: tuple[Source, ...]
    licence: str
    citation: str
    optional: bool = False
    without: str = ""  # what is missing without it, for the message


@dataclass(frozen=True)
class DataSet:
    """A data set and its folder below the data folder."""

    name: str
    folder: str
    parts: tuple[Part, ...]


def load(name: str, year: int = 2024) -> DataSet:
    """The set called `name` in `sets.toml`; `year` chooses between the course's handouts."""
    hub = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    entry = tomllib.loads(_TABLE.read_text(encoding="utf-8").replace("{hub}", hub))[name]
    parts = tuple(_part(part, entry) for part in entry["part"] if part.get("year", year) == year)
    return DataSet(name, entry["folder"], parts)


def _part(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> Part:
    def source(settings: Mapping[str, Any]) -> Source:
        rows = (line.split(maxsplit=2) for line in settings.get("files", entry["files"]).strip().splitlines())
        files = (
            File(path, int(count.strip("-") or 0), sha256.strip("-"), entry.get("form", "lines"))
            for count, sha256, path in rows
        )
        return Source(**{**settings, "files": tuple(files)})

    options = {name: entry[name] for name in ("optional", "without") if name in entry}
    sources = tuple(source(table) for table in entry.get("sources") or shared["sources"])
    return Part(entry["name"], sources, entry["licence"], entry["citation"], **options)
