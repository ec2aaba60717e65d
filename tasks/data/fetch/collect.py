"""Fetching a data set: verified files are kept, missing ones are fetched part by part; the manifest is written last."""

import csv
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from minbert.errors import UserError
from minbert.files import make_folder, read_json_object, sha256_of, sync, write_json
from tasks.data.fetch import archives
from tasks.data.fetch.download import Downloader
from tasks.data.fetch.sources import DataSet, File, Part, Source

csv.field_size_limit(1 << 30)


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


def collect(dataset: DataSet, to: Path, downloads: Downloader, **fields: Any) -> bool:
    """Fetch the missing files of a set into the folder `to`; True if it is complete.

    Prints the result for each part. If a part is not available, the other parts are still fetched. The manifest, with
    `fields`, is written last.
    """
    folder = to / dataset.folder
    print(f"{dataset.name} -> {folder}")
    attempt = _Attempt(folder, downloads)
    entries, notes, missing = [], [], []
    for part in dataset.parts:
        try:
            source, outcome = attempt.complete(part)
        except UserError as error:
            state = "left out" if part.optional else "MISSING"
            notes.append(f"{part.name}: {state}: {error}{f' ({part.without})' if part.without else ''}")
            missing += [] if part.optional else [part.name]
            print(f"  {notes[-1]}")
            continue
        notes += [f"{part.name}: {outcome}"] if source.partial else []
        print(f"  {part.name}: {outcome}\n    licence: {part.licence}\n    cite: {part.citation}")
        entries += [attempt.entry(file, part) for file in source.files]
    shutil.rmtree(attempt.scratch)
    written = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = {"complete": not missing, "written": written, "set": dataset.name, "notes": notes, **fields}
    write_json(folder / "manifest.json", {**manifest, "files": sorted(entries, key=lambda entry: entry["path"])})
    if missing:
        print(f"  incomplete: {', '.join(missing)}; the other parts are kept, run the same command again to go on")
    return not missing


class _Attempt:
    """One attempt to complete a set. Its folder `scratch` holds what is not yet verified, and each archive once."""

    def __init__(self, folder: Path, downloads: Downloader) -> None:
        self.folder, self.scratch, self.downloads = folder, folder / ".download", downloads
        self.archives: dict[str, Path | UserError] = {}
        self.origins: dict[str, str] = {}  # where each fetched file came from
        manifest = folder / "manifest.json"
        files = read_json_object(manifest).get("files", []) if manifest.exists() else []
        self.recorded = {entry["path"]: entry for entry in files}  # the entries of an earlier manifest
        shutil.rmtree(self.scratch, ignore_errors=True)
        make_folder(self.scratch)

    def complete(self, part: Part) -> tuple[Source, str]:
        """Complete a part from the first source that works; returns the source and a message.

        Raises `UserError` with the failures if no source works.
        """
        for source in part.sources:
            if not source.partial and not self.lacking(source):
                return source, "already there"
        failures: dict[str, None] = {}
        for source in part.sources:
            names = f" as {', '.join(Path(file.path).name for file in source.files)}" if source.partial else ""
            notes = "".join(f" (not: {failure})" for failure in failures)
            if not self.lacking(source):
                return source, f"already there{names}{notes}"
            try:
                self.fetch(source)
            except UserError as error:
                failures[str(error)] = None
            else:
                return source, f"fetched from {source}{names}{notes}"
        raise UserError("; ".join(failures))

    def lacking(self, source: Source) -> list[File]:
        """Files of a source that are missing or not as expected."""

        def present(file: File) -> bool:
            path = self.folder / file.path
            return path.is_file() and not fault(path, file, exact=source.exact)

        return [file for file in source.files if not present(file)]

    def fetch(self, source: Source) -> None:
        """Fetch the missing files of a source, each verified before it is at its path."""
        if source.archive:
            self.unpack(source)
            return
        if not source.url:
            raise UserError(f"{source.files[0].path} has no public address")
        fetched = self.scratch / "file"
        for file in self.lacking(source):
            origin = f"{source.url}/{quote(file.path.removeprefix(source.drop))}"
            fetched.unlink(missing_ok=True)
            self.downloads.fetch(origin, fetched)
            if problem := fault(fetched, file, exact=source.exact):
                raise UserError(f"{origin}: not the expected file: {problem}")
            self.keep(fetched, file, origin)

    def unpack(self, source: Source) -> None:
        """Extract a source's files from its archive; none is kept unless all are as expected."""
        unpacked = {file: self.scratch / "files" / file.path for file in source.files}
        targets = {file.path.removeprefix(source.drop): path for file, path in unpacked.items()}
        archives.unpack(self.archive(source), targets)
        for file, path in unpacked.items():
            if problem := fault(path, file, exact=source.exact):
                raise UserError(f"{source}: {file.path} is not the expected file: {problem}")
        for file, path in unpacked.items():
            self.keep(path, file, str(source))

    def keep(self, path: Path, file: File, origin: str) -> None:
        """Move a verified file to its path."""
        target = self.folder / file.path
        make_folder(target.parent)
        sync(path)
        os.replace(path, target)
        sync(target.parent)
        self.origins[file.path] = origin

    def archive(self, source: Source) -> Path:
        """The downloaded archive; after a failed download, raises the same `UserError` again."""
        if source.archive not in self.archives:
            path = self.scratch / source.archive.rpartition("/")[2]
            expected = File(path.name, sha256=source.sha256)
            try:
                self.downloads.fetch(source.archive, path)
                if problem := fault(path, expected):
                    raise UserError(f"{source}: not the expected archive: {problem}")
                self.archives[source.archive] = path
            except UserError as error:
                self.archives[source.archive] = error
        outcome = self.archives[source.archive]
        if isinstance(outcome, UserError):
            raise outcome
        return outcome

    def entry(self, file: File, part: Part) -> dict[str, Any]:
        """The manifest's entry of a file; a file that was there before keeps its recorded source."""
        path, old = self.folder / file.path, self.recorded.get(file.path, {})
        digest = sha256_of(path)
        recorded = old.get("source", "found in place") if old.get("sha256") == digest else "found in place"
        return {
            "path": file.path,
            "part": part.name,
            "source": self.origins.get(file.path, recorded),
            "bytes": path.stat().st_size,
            "sha256": digest,
            "rows": rows(path, file.form),
            "pinned": digest == file.sha256,
            "licence": part.licence,
            "citation": part.citation,
        }
