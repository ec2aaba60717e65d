"""Fetching a data set: verified files are kept, missing ones are fetched part by part; the manifest is written last."""

import csv
import gzip
import os
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pooch
import requests
from urllib3.exceptions import NewConnectionError

from minbert.errors import UserError
from minbert.files import sha256_of, write_json
from tasks.data.sets import DataSet, File, Part, Source

csv.field_size_limit(1 << 30)
pooch.get_logger().setLevel("WARNING")
_TRIES = 2
_TIMEOUT = (5.0, 30.0)  # seconds for a connection, and without data


def rows(path: Path, form: str) -> int:
    """Number of rows: lines, including blank ones, or the records of a tsv or csv table without its header."""
    if form == "lines":
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as text:
        return sum(1 for _ in csv.reader(text, delimiter="\t" if form == "tsv" else ",")) - 1


def fault(path: Path, file: File, *, exact: bool = True) -> str:
    """Why `path` is not the expected `file`, or "" if it is.

    Checks the SHA-256 if it is known and `exact`; else the number of rows.
    """
    if exact and file.sha256:
        digest = sha256_of(path)
        return "" if digest == file.sha256 else f"its sha256 is {digest}, not {file.sha256}"
    if not path.stat().st_size:
        return "it is empty"
    count = rows(path, file.form) if file.rows else 0
    return "" if count == file.rows else f"it has {count} rows, not {file.rows}"


class _SilentHostError(Exception):
    """No connection to the host of this name. Not one of the errors after which pooch tries again."""


def _load(url: str, path: str, _: object) -> None:
    """Download `url` to `path`, as pooch asks for it. Raises `_SilentHostError`, or any other error of requests."""
    try:
        pooch.HTTPDownloader(sys.stderr.isatty(), chunk_size=1 << 20, timeout=_TIMEOUT)(url, path, None)
    except requests.ConnectionError as error:  # also raised when a connection breaks, or for its certificate
        reason = getattr(error.args[0], "reason", None)
        if isinstance(error, requests.ConnectTimeout) or isinstance(reason, NewConnectionError):
            assert error.request is not None, "requests names it in these errors"
            raise _SilentHostError(urlsplit(error.request.url).netloc) from error  # `url` may redirect there
        raise


def download(url: str, target: Path, silent: set[str]) -> None:
    """Download `url` to `target`, which must not exist.

    Raises `UserError` if that fails. A host that does not accept a connection is added to `silent` and not asked again;
    after another failure, the download is tried again.
    """
    host = urlsplit(url).netloc
    if host in silent:
        raise UserError(f"{host} does not answer")
    store = pooch.Pooch(target.parent, "", {target.name: None}, {target.name: url}, retry_if_failed=_TRIES - 1)
    try:
        store.fetch(target.name, downloader=_load)
    except _SilentHostError as error:
        silent.add(str(error))
        raise UserError(f"{error} does not answer") from error
    except requests.RequestException as error:
        raise UserError(f"{url}: {error}") from error


def unpack(archive: Path, targets: Mapping[str, Path]) -> None:
    """Write members of a zip or tar archive; `targets` maps the end of a member's name to the target path.

    Of several members with that end, the one of the shortest name is written. No other path is written, whatever the
    archive's members are called. Raises `UserError` if the archive is damaged, or if a wanted member is missing or not
    a regular file.
    """
    open_member: Any  # the type for tar allows None, which it returns for no regular file
    try:
        with zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else tarfile.open(archive) as bundle:
            if isinstance(bundle, zipfile.ZipFile):
                names, open_member = bundle.namelist(), bundle.open
            else:
                names, open_member = [info.name for info in bundle if info.isreg()], bundle.extractfile
            for end, target in targets.items():
                wanted = [name for name in names if f"/{name}".endswith(f"/{end}")]
                if not wanted:
                    raise UserError(f"{archive.name}: no file {end} in it")
                target.parent.mkdir(parents=True, exist_ok=True)
                with open_member(min(wanted, key=len)) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive.name}: damaged archive: {error}") from error


def collect(dataset: DataSet, to: Path, silent: set[str], **fields: Any) -> bool:
    """Fetch the missing files of a set into the folder `to`; True if it is complete.

    Prints the result for each part. If a part is not available, the other parts are still fetched. The manifest, with
    `fields`, is written last. For `silent` see `download`.
    """
    folder = to / dataset.folder
    print(f"{dataset.name} -> {folder}")
    attempt = _Attempt(folder, silent)
    entries, notes, missing = [], [], []
    for part in dataset.parts:
        try:
            source, note = attempt.complete(part)
        except UserError as error:
            state = "left out" if part.optional else "MISSING"
            notes.append(f"{part.name}: {state}: {error}{f' ({part.without})' if part.without else ''}")
            missing += [] if part.optional else [part.name]
            print(f"  {notes[-1]}")
            continue
        notes += [f"{part.name}: {note}"] if note else []
        print(f"  {part.name}: {note or 'complete'}\n    licence: {part.licence}\n    cite: {part.citation}")
        entries += [_entry(folder / file.path, file, part, source) for file in source.files]
    shutil.rmtree(attempt.scratch)
    written = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = {"complete": not missing, "written": written, "set": dataset.name, "notes": notes, **fields}
    write_json(folder / "manifest.json", {**manifest, "files": sorted(entries, key=lambda entry: entry["path"])})
    if missing:
        print(f"  incomplete: {', '.join(missing)}; the other parts are kept, run the same command again to go on")
    return not missing


class _Attempt:
    """One attempt to complete a set. Its folder `scratch` holds the archives and what is unpacked but not verified."""

    def __init__(self, folder: Path, silent: set[str]) -> None:
        self.folder, self.silent, self.scratch = folder, silent, folder / ".download"
        self.failed: dict[str, str] = {}  # the message for each archive that cannot be had
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)

    def complete(self, part: Part) -> tuple[Source, str]:
        """Complete a part from the first source that works; returns it, and a note if it is `partial`.

        Raises `UserError` with the failures if no source works.
        """
        for source in part.sources:
            if not source.partial and not self.lacking(source):
                return source, ""
        failures: dict[str, None] = {}
        for source in part.sources:
            try:
                if self.lacking(source):
                    self.fetch(source)
            except UserError as error:
                failures[str(error)] = None
                continue
            names = ", ".join(Path(file.path).name for file in source.files)
            return source, f"only {names} ({'; '.join(failures)})" if source.partial else ""
        raise UserError("; ".join(failures))

    def lacking(self, source: Source) -> list[File]:
        """Files of a source that are missing or not as expected."""

        paths = {file: self.folder / file.path for file in source.files}
        return [file for file, path in paths.items() if not path.is_file() or fault(path, file, exact=source.exact)]

    def fetch(self, source: Source) -> None:
        """Fetch the missing files of a source, or all of them from an archive; each is verified before it is kept."""
        unverified = {file: self.scratch / "files" / file.path for file in source.files}
        if source.archive:
            members = {file.path.removeprefix(source.drop): path for file, path in unverified.items()}
            unpack(self.archive(source), members)
            for file, path in unverified.items():
                self.keep(path, file, source)
            return
        if not source.url:
            raise UserError(f"{source.files[0].path} has no public address")
        for file in self.lacking(source):
            unverified[file].unlink(missing_ok=True)
            download(f"{source.url}/{quote(file.path.removeprefix(source.drop))}", unverified[file], self.silent)
            self.keep(unverified[file], file, source)

    def archive(self, source: Source) -> Path:
        """The archive of a source, downloaded once for all parts. A failure is raised again for each of them."""
        path = self.scratch / source.archive.rpartition("/")[2]
        if source.archive in self.failed:
            raise UserError(self.failed[source.archive])
        if not path.exists():
            try:
                download(source.archive, path, self.silent)
                if problem := fault(path, File(path.name, sha256=source.sha256)):
                    raise UserError(f"{source}: not the expected archive: {problem}")
            except UserError as error:
                self.failed[source.archive] = str(error)
                raise
        return path

    def keep(self, path: Path, file: File, source: Source) -> None:
        """Move a fetched file to its path; replaces a link. Raises `UserError` if it is not as expected."""
        if problem := fault(path, file, exact=source.exact):
            raise UserError(f"{source}: {file.path} is not the expected file: {problem}")
        target = self.folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)


def _entry(path: Path, file: File, part: Part, source: Source) -> dict[str, Any]:
    """The manifest's entry of a file that is as its source describes it."""
    digest = sha256_of(path)
    return {
        "path": file.path,
        "part": part.name,
        "source": str(source),
        "bytes": path.stat().st_size,
        "sha256": digest,
        "rows": rows(path, file.form),
        "pinned": digest == file.sha256,
        "licence": part.licence,
        "citation": part.citation,
    }
