"""Fetching a data set of `sources.toml`: files that are as expected are kept, the others fetched and verified."""

import csv
import hashlib
import os
import shutil
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pooch

from minbert.errors import UserError
from minbert.files import read_optional_json, sha256_of, write_json

SOURCES = Path(__file__).with_name("sources.toml")
SHA256_LENGTH = 64  # hexadecimal digits
pooch.get_logger().setLevel("WARNING")
if hasattr(tarfile, "data_filter"):
    # pooch asks for it from Python 3.12 on: no member of an archive is unpacked outside its folder
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)


@dataclass(frozen=True)
class Source:
    """Where the files of a part can be had: below `url`, or as members of `archive`; else they are copied by hand.

    `files` maps a path below the set's folder to what the file must be, as `is_expected` takes it.
    """

    files: Mapping[str, str]
    url: str = ""
    archive: str = ""
    drop: str = ""  # prefix of the files' paths that is not part of the source's paths
    expected: str = "-"  # what the archive must be


@dataclass(frozen=True)
class Part:
    """Files that belong together under one licence, and their sources in order of preference."""

    name: str
    sources: tuple[Source, ...]
    licence: str
    citation: str


def read_parts(name: str, year: int) -> tuple[str, list[Part]]:
    """The folder and the parts of a set; `year` chooses between the course's handouts."""
    hub = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    table = tomllib.loads(SOURCES.read_text(encoding="utf-8").replace("{hub}", hub))[name]
    parts = []
    for entry in table["part"]:
        if entry.get("year", year) != year:
            continue
        sources = []
        for source in entry.get("sources") or table["sources"]:
            files = _parse_files(source.get("files", entry["files"]))
            sources.append(Source(**{**source, "files": files}))
        parts.append(Part(entry["name"], tuple(sources), entry["licence"], entry["citation"]))
    return table["folder"], parts


def _parse_files(text: str) -> dict[str, str]:
    files = {}
    for line in text.strip().splitlines():
        expected, path = line.split(maxsplit=1)
        files[path] = expected
    return files


def is_expected(path: Path, expected: str) -> bool:
    """Whether a file is what `sources.toml` says: a SHA-256, `git:` and a blob id, `rows:` and a number, or "-"."""
    if not path.is_file():
        return False
    if expected.startswith("git:"):
        content = path.read_bytes()
        # git's id of a file is a hash over this header and the content
        header = f"blob {len(content)}\0".encode()
        return hashlib.sha1(header + content).hexdigest() == expected.removeprefix("git:")
    if expected.startswith("rows:"):
        return count_rows(path) == int(expected.removeprefix("rows:"))
    return expected == "-" or sha256_of(path) == expected


def count_rows(path: Path) -> int:
    """Number of lines, or of the records below the header of a .csv."""
    if path.suffix != ".csv":
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as text:
        return sum(1 for _ in csv.reader(text)) - 1


def retrieve(url: str, expected: str, target: Path, processor: Any = None) -> Any:
    """Download `url` to `target`; returns what pooch does: the path, or the members that `processor` unpacks.

    Raises `UserError` if the download fails or is not what is expected; it is not kept then.
    """
    sha256 = expected if len(expected) == SHA256_LENGTH else None
    try:
        result = pooch.retrieve(
            url,
            sha256,
            fname=target.name,
            path=target.parent,
            processor=processor,
            progressbar=sys.stderr.isatty(),
        )
    # no connection or page; another hash; a damaged archive
    except (OSError, ValueError, zipfile.BadZipFile, tarfile.TarError) as error:
        cause: BaseException = error
        if isinstance(error, OSError):
            # without a connection requests and urllib3 wrap what the system says, such as an unknown host
            while cause.__context__ is not None:
                cause = cause.__context__
        raise UserError(f"{url}: {cause}") from error
    if sha256 is None and not is_expected(target, expected):
        target.unlink()
        raise UserError(f"{url}: not the expected file ({expected})")
    return result


def fetch_source(source: Source, folder: Path, scratch: Path) -> None:
    """Fetch what `folder` lacks of a source's files. Raises `UserError` for the first that fails."""
    missing = {path: expected for path, expected in source.files.items() if not is_expected(folder / path, expected)}
    if not missing:
        return
    members = []
    if source.archive:
        processor = pooch.Unzip() if source.archive.endswith(".zip") else pooch.Untar()
        members = retrieve(source.archive, source.expected, scratch / Path(source.archive).name, processor)
    elif not source.url:
        raise UserError(f"{next(iter(missing))} has no public address")
    for path, expected in missing.items():
        wanted = path.removeprefix(source.drop)
        unverified = scratch / path
        if source.archive:
            # archives differ in the folders above a member, and some repeat it in __MACOSX
            matches = [name for name in members if name.endswith(f"/{wanted}")]
            unverified = Path(min(matches, key=len, default=""))
            if not is_expected(unverified, expected):
                raise UserError(f"{source.archive}: its {wanted} is missing, or not the expected file ({expected})")
        else:
            retrieve(f"{source.url}/{quote(wanted)}", expected, unverified)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            kept = target.with_name(f"{target.name}.old")
            os.replace(target, kept)
            print(f"  {target}: another file had this name; it is {kept.name} now")
        os.replace(unverified, target)


def fetch_part(part: Part, folder: Path, scratch: Path) -> tuple[Source, list[str]]:
    """Fetch a part from the first source that works; returns it, and why those before it failed.

    Raises `UserError` with all failures if none works.
    """
    failures = []
    for source in part.sources:
        try:
            fetch_source(source, folder, scratch)
        except UserError as error:
            failures.append(str(error))
        else:
            return source, failures
    raise UserError("; ".join(failures))


def fetch_set(name: str, data: Path, year: int) -> bool:
    """Fetch a set into a folder of `data`, and write its `manifest.json` last; returns whether no part is missing.

    If a part cannot be had, the others are still fetched. Where only a later source works, which may lack files, the
    part is listed as `partial`.
    """
    subfolder, parts = read_parts(name, year)
    folder = data / subfolder
    scratch = folder / ".download"
    print(f"{name} -> {folder}")
    shutil.rmtree(scratch, ignore_errors=True)  # of a command that was stopped
    # a file that is there already may have come from another source than the first of its part
    sources = {}
    for entry in read_optional_json(folder / "manifest.json").get("files", []):
        if (folder / entry["path"]).is_file():
            sources[entry["path"], entry["sha256"]] = entry["source"]
    files = []
    missing = []
    partial = []
    for part in parts:
        try:
            source, failures = fetch_part(part, folder, scratch)
        except UserError as error:
            print(f"  {part.name}: MISSING: {error}")
            missing.append(part.name)
            continue
        state = "complete"
        if source.files != part.sources[0].files:
            state = f"only {', '.join(source.files)}; the rest is missing: {'; '.join(failures)}"
            partial.append(part.name)
        print(f"  {part.name}: {state}\n    licence: {part.licence}\n    cite: {part.citation}")
        for path in source.files:
            sha256 = sha256_of(folder / path)
            address = sources.get((path, sha256), source.url or source.archive)
            entry = {"path": path, "sha256": sha256, "source": address}
            files.append(entry | {"part": part.name, "licence": part.licence, "citation": part.citation})
    shutil.rmtree(scratch, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"set": name, "complete": not missing, "missing": missing, "partial": partial, "files": files}
    write_json(folder / "manifest.json", manifest)
    return not missing
