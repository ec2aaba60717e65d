"""Fetching a data set: verified files are kept, missing ones are fetched part by part; the manifest is written last."""

import csv
import os
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from minbert.errors import UserError
from minbert.files import sha256_of, write_json
from tasks.data.fetch import archives
from tasks.data.fetch.download import Check, Downloader
from tasks.data.fetch.sources import DataSet, File, Part, Source, git_blob, read_manifest

_ARCHIVES = ".archives"
_HTTP = ("http://", "https://")
csv.field_size_limit(1 << 30)


def rows(path: Path, form: str) -> int:
    """Number of rows: lines, including blank ones, or the records of a tsv or csv table without its header."""
    if form == "lines":
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as text:
        return sum(1 for _ in csv.reader(text, delimiter="\t" if form == "tsv" else ",")) - 1


def fault(path: Path, file: File, *, exact: bool = True, sha256: str = "") -> str:
    """Why `path` is not the expected `file`, or "" if it is.

    Checks the git blob id if it is known and `exact`; else the recorded `sha256`, if any, and the number of rows.
    """
    if exact and file.blob:
        found = git_blob(path)
        return "" if found == file.blob else f"its git blob id is {found}, not {file.blob}"
    if sha256 and (found := sha256_of(path)) != sha256:
        return f"its sha256 is {found}, not {sha256}"
    if not path.stat().st_size:
        return "it is empty"
    count = rows(path, file.form) if file.rows else 0
    return "" if count == file.rows else f"it has {count} rows, not {file.rows}"


@dataclass
class Manifest:
    """Records of a set's files, by path; stored as `.fetched.json` until the set is complete, then `manifest.json`."""

    folder: Path
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> "Manifest":
        """The manifest written by an earlier run, or an empty one."""
        for name in ("manifest.json", ".fetched.json"):
            if (folder / name).exists():
                return cls(folder, {entry["path"]: entry for entry in read_manifest(folder / name)["files"]})
        return cls(folder)

    def sha256(self, path: str, origin: str = "") -> str:
        """The recorded SHA-256 of a file, or ""; if `origin` is given, only if the file came from there."""
        entry = self.files.get(path, {})
        return entry.get("sha256", "") if origin in ("", entry.get("source")) else ""

    def add(self, file: File, part: Part, origin: str) -> None:
        """Record a file that is at its final path."""
        path = self.folder / file.path
        known = {"path": file.path, "part": part.name, "source": origin, "bytes": path.stat().st_size}
        known |= {"sha256": sha256_of(path), "rows": rows(path, file.form)}
        known |= {"pinned": bool(file.blob) and git_blob(path) == file.blob}
        self.files[file.path] = known | {"licence": part.licence, "citation": part.citation}
        self.save(complete=False)

    def save(self, *, complete: bool, **facts: Any) -> None:
        """Write `manifest.json` if complete, else `.fetched.json`; then remove the other one."""
        names = ["manifest.json", ".fetched.json"] if complete else [".fetched.json", "manifest.json"]
        when = datetime.now(UTC).isoformat(timespec="seconds")
        files = [self.files[path] for path in sorted(self.files) if (self.folder / path).is_file()]
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / names[0], {"complete": complete, "written": when, **facts, "files": files})
        (self.folder / names[1]).unlink(missing_ok=True)


@dataclass
class Fetcher:
    """Fetches data sets into the folder `to`.

    `mirror` is a URL or a folder with the same layout as `to`, or "" for the public sources.
    """

    to: Path
    downloads: Downloader
    mirror: str = ""
    accept_changed: bool = False
    _failed: dict[str, str] = field(default_factory=dict)  # archives that could not be downloaded, and why

    def collect(self, dataset: DataSet, **facts: Any) -> bool:
        """Fetch the missing files of a set and print the result for each part; True if the set is complete.

        If a part is not available, the other parts are still fetched. `facts` are added to the manifest.
        """
        folder = self.to / dataset.folder
        manifest, missing, notes = Manifest.open(folder), [], []
        print(f"{dataset.name} -> {folder}")
        for part in dataset.parts:
            try:
                source, how = self._part(dataset, part, manifest)
            except UserError as error:
                state = "left out" if part.optional else "MISSING"
                notes.append(f"{part.name}: {state}: {error}{f' ({part.without})' if part.without else ''}")
                missing += [] if part.optional else [part.name]
                print(f"  {notes[-1]}")
                continue
            notes += [f"{part.name}: {how}"] if source.partial else []
            print(f"  {part.name}: {how}\n    licence: {part.licence}\n    cite: {part.citation}")
        for archive in (folder / _ARCHIVES).glob("[!.]*"):
            archive.unlink()
        if missing:
            manifest.save(complete=False)
            print(f"  incomplete: {', '.join(missing)}; the other parts are kept, run the same command again to go on")
        else:
            manifest.save(complete=True, set=dataset.name, notes=notes, **facts)
            shutil.rmtree(folder / _ARCHIVES, ignore_errors=True)
        return not missing

    def _part(self, dataset: DataSet, part: Part, manifest: Manifest) -> tuple[Source, str]:
        """Complete a part from the first source that works; returns the source and a message.

        Raises `UserError` with the failures if no source works.
        """
        for source in part.sources:
            if not source.partial and not self._lacking(source, manifest):
                return self._kept(source, part, manifest), "already there"
        manifest.save(complete=False)
        failures: dict[str, None] = {}
        for source in part.sources:
            names = f" as {', '.join(Path(file.path).name for file in source.files)}" if source.partial else ""
            why = "".join(f" (not: {failure})" for failure in failures)
            if not self._lacking(source, manifest):
                return self._kept(source, part, manifest), f"already there{names}{why}"
            try:
                self._fetch(dataset, part, source, manifest)
                return self._kept(source, part, manifest), f"fetched from {self.mirror or source}{names}{why}"
            except UserError as error:
                failures[str(error)] = None
        raise UserError("; ".join(failures))

    def _lacking(self, source: Source, manifest: Manifest) -> list[File]:
        """Files of a source that are missing or not as expected."""

        def present(file: File) -> bool:
            path, recorded = manifest.folder / file.path, manifest.sha256(file.path)
            if not path.is_file():
                return False
            accepted = self.accept_changed and recorded == sha256_of(path)
            return accepted or not fault(path, file, exact=source.exact, sha256=recorded)

        return [file for file in source.files if not present(file)]

    def _kept(self, source: Source, part: Part, manifest: Manifest) -> Source:
        """Record the files of a complete part that this command did not fetch."""
        for file in source.files:
            if manifest.sha256(file.path) != sha256_of(manifest.folder / file.path):
                manifest.add(file, part, "found in place")
        return source

    def _fetch(self, dataset: DataSet, part: Part, source: Source, manifest: Manifest) -> None:
        if not self.mirror and source.archive:
            self._unpack(part, source, manifest)
            return
        if not self.mirror and not source.url:
            raise UserError(f"{source.files[0].path} has no public address (a mirror may have it)")
        base = f"{self.mirror}/{dataset.folder}" if self.mirror else source.url
        for file in self._lacking(source, manifest):
            name = file.path if self.mirror else file.path.removeprefix(source.drop)
            origin = f"{base}/{quote(name) if base.startswith(_HTTP) else name}"
            check = self._check(file, source, manifest.sha256(file.path, origin))
            if base.startswith(_HTTP):
                self.downloads.fetch(origin, manifest.folder / file.path, check)
            else:
                _copy(Path(origin), manifest.folder / file.path, check)
            manifest.add(file, part, origin)

    def _check(self, file: File, source: Source, recorded: str) -> Check:
        def check(path: Path) -> str:
            if self.accept_changed:
                return "" if path.stat().st_size else "it is empty"
            why = fault(path, file, exact=source.exact, sha256=recorded)
            return f"{why} (--accept-changed keeps it anyway)" if why and self.mirror else why

        return check

    def _unpack(self, part: Part, source: Source, manifest: Manifest) -> None:
        scratch = manifest.folder / ".unpacked"
        shutil.rmtree(scratch, ignore_errors=True)
        places = {file: scratch / "files" / file.path for file in source.files}
        wanted = {file.path.removeprefix(source.drop): place for file, place in places.items()}
        try:
            archives.unpack(self._archive(source, manifest.folder), wanted)
            for file, place in places.items():
                if why := self._check(file, source, manifest.sha256(file.path, str(source)))(place):
                    raise UserError(f"{source}: {file.path} is not the expected file: {why}")
            for file, place in places.items():
                (manifest.folder / file.path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(place, manifest.folder / file.path)
                manifest.add(file, part, str(source))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _archive(self, source: Source, folder: Path) -> Path:
        """The downloaded archive, which several parts may need; `collect` removes it after all parts."""
        path = folder / _ARCHIVES / source.archive.rpartition("/")[2]
        if source.archive in self._failed:
            raise UserError(self._failed[source.archive])
        expected = File(path.name)
        try:
            if not path.is_file():
                self.downloads.fetch(source.archive, path, lambda part: fault(part, expected, sha256=source.sha256))
        except UserError as error:
            self._failed[source.archive] = str(error)
            raise
        return path


def _copy(source: Path, target: Path, check: Check) -> None:
    if not source.is_file():
        raise UserError(f"{source}: not in the mirror")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, part)
    if why := check(part):
        part.unlink()
        raise UserError(f"{source}: not the expected file: {why}")
    os.replace(part, target)
