"""A data set is brought together: what lies there and verifies stays, the rest is fetched part by part."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from data.fetch import archives, verify
from data.fetch.disk import room
from data.fetch.download import Check, Downloader
from data.fetch.manifest import Ledger
from data.fetch.sources import DataSet, File, Part, Way
from minbert.errors import UserError
from minbert.files import sha256_of

_HTTP = ("http://", "https://")
_ARCHIVES, _UNPACKED = ".archives", ".unpacked"


@dataclass
class Fetcher:
    """One command's ways and means. `mirror`: a URL or folder in the layout of the data folder, or ""."""

    to: Path
    downloads: Downloader
    mirror: str = ""
    accept_changed: bool = False
    year: int = 2024
    _spoilt: dict[str, str] = field(default_factory=dict)  # archives that could not be had in this run, and why
    _doubtful: set[Path] = field(default_factory=set)  # archives that did not hold what they should

    def collect(self, dataset: DataSet) -> bool:
        """Fetch what a set lacks and say what happened to each part; True where the set is whole then.

        A part that cannot be had does not keep the others away. Raises `UserError` where the disk refuses.
        """
        folder = self.to / dataset.folder
        ledger, failed, notes, touched = Ledger.open(folder), [], [], False
        print(f"{dataset.name} -> {folder}")
        for part in dataset.parts:
            way, said = self._present(part, folder, ledger), "already there"
            if way is None and not touched:
                ledger.reopen()
                touched = True
            try:
                if way is None:
                    way, said = self._part(dataset, part, folder, ledger)
            except UserError as error:
                kind = "left out" if part.optional else "MISSING"
                print(f"  {part.name}: {kind}: {error}")
                notes.append(f"{part.name}: {kind}: {error}")
                failed += [] if part.optional else [part.name]
                continue
            self._note(part, way, {}, folder, ledger)
            notes += [f"{part.name}: {said}"] if way.lesser else []
            print(f"  {part.name}: {said}\n    licence: {part.licence}\n    cite: {part.citation}")
        for archive in self._doubtful:
            archive.unlink(missing_ok=True)  # fetched anew by the next run
        whole = not failed
        if whole:
            facts = {"year": self.year} if dataset.name == "course" else {}
            ledger.close(notes, set=dataset.name, **facts)
            shutil.rmtree(folder / _ARCHIVES, ignore_errors=True)
        else:
            ledger.save()
            print(f"  incomplete: {', '.join(failed)}; what is complete is kept: run the same command again to go on")
        return whole

    def _present(self, part: Part, folder: Path, ledger: Ledger) -> Way | None:
        for way in part.ways:
            if not way.lesser and self._all_there(way, folder, ledger):
                return way
        return None

    def _all_there(self, way: Way, folder: Path, ledger: Ledger) -> bool:
        return all(self._there(file, way, folder, ledger) for file in way.files)

    def _there(self, file: File, way: Way, folder: Path, ledger: Ledger) -> bool:
        path, recorded = folder / file.path, ledger.sha256(file.path)
        if not path.is_file():
            return False
        if recorded and self.accept_changed and not verify.fault(path, File(file.path), exact=False, sha256=recorded):
            return True
        if not recorded and not file.rows and not (way.exact and file.blob):
            return False  # nothing says what it is
        return not verify.fault(path, file, exact=way.exact, sha256=recorded)

    def _note(self, part: Part, way: Way, sources: dict[str, str], folder: Path, ledger: Ledger) -> None:
        """Into the ledger: fresh files by their sources; of files that lay there, those it does not know."""
        files = {file.path: file for one in reversed(part.ways) for file in one.files}
        for path in sources or [file.path for file in way.files]:
            file, place = files[path], folder / path
            if not sources and ledger.sha256(path) == sha256_of(place):
                continue
            pinned = bool(file.blob) and not verify.fault(place, file, exact=True)
            rows = file.rows if pinned else verify.rows(place, file.form)
            ledger.add(path, source=sources.get(path, "lay there"), rows=rows, part=part, pinned=pinned)
        ledger.save()

    def _part(self, dataset: DataSet, part: Part, folder: Path, ledger: Ledger) -> tuple[Way, str]:
        """By the first way that works: the way, and what to say of it."""
        failures: list[str] = []
        for way in part.ways:
            files = ", ".join(Path(file.path).name for file in way.files)
            names = f" as {files}" if way.lesser else f" from {way.archive or way.base}" if failures else ""
            why_not = "".join(f" (not: {why})" for why in failures)
            if self._all_there(way, folder, ledger):
                return way, f"already there{names}{why_not}"
            if not self.mirror and not way.base and not way.archive:
                failures.append(f"{way.files[0].path} has no public address known (a mirror may hold it)")
                continue
            try:
                self._way(dataset, part, way, folder, ledger)
                return way, f"fetched{names}{why_not}"
            except UserError as error:
                failures.append(str(error))
        raise UserError("; ".join(dict.fromkeys(failures)))

    def _way(self, dataset: DataSet, part: Part, way: Way, folder: Path, ledger: Ledger) -> None:
        if way.archive and not self.mirror:
            self._archive(part, way, folder, ledger)
            return
        for file in way.files:
            public = f"{way.base}/{quote(file.member or file.path)}"
            source = self.mirrored(f"{dataset.folder}/{file.path}") if self.mirror else public
            if not self._there(file, way, folder, ledger):
                self.bring(source, folder / file.path, file, way, ledger)
                self._note(part, way, {file.path: source}, folder, ledger)

    def mirrored(self, path: str) -> str:
        """Where the mirror has a path of the data folder."""
        return f"{self.mirror}/{quote(path) if self.mirror.startswith(_HTTP) else path}"

    def bring(self, source: str, target: Path, file: File, way: Way, ledger: Ledger) -> None:
        """One file from a URL or a mirror's folder, verified, to its place. Raises `UserError`."""

        def check(path: Path) -> str:
            return self._fault(path, file, way, ledger.sha256(file.path, source))

        if source.startswith(_HTTP):
            most = way.unpacked if way.archive else way.cap  # a mirror holds what an archive unpacks to
            cap = most if self.accept_changed or not (way.exact and file.size) else file.size
            self.downloads.fetch(source, target, cap=cap, check=check)
        else:
            _copy(Path(source), target, check)

    def _fault(self, path: Path, file: File, way: Way, recorded: str) -> str:
        if self.accept_changed:
            return verify.fault(path, File(file.path), exact=False)
        why = verify.fault(path, file, exact=way.exact, sha256=recorded)
        return f"{why} (--accept-changed keeps it all the same)" if why and self.mirror else why

    def _archive(self, part: Part, way: Way, folder: Path, ledger: Ledger) -> None:
        path, beside = self._whole_archive(way, folder), folder / _UNPACKED
        places = {file.path: beside / file.path for file in way.files}
        try:
            archives.unpack(path, {f.member or f.path: places[f.path] for f in way.files}, cap=way.unpacked)
            for file in way.files:
                why = self._fault(places[file.path], file, way, ledger.sha256(file.path, way.archive))
                if why:
                    raise UserError(f"{way.archive}: {file.path} is not the file: {why}")
            for name, place in places.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(place, folder / name)
        except UserError:
            self._doubtful.add(path)
            raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        self._note(part, way, {file.path: way.archive for file in way.files}, folder, ledger)

    def _whole_archive(self, way: Way, folder: Path) -> Path:
        """The archive on disk: several parts may need it, and it goes when the set is whole."""
        name = way.archive.rpartition("/")[2]
        path, whole = folder / _ARCHIVES / name, File(name, sha256=way.sha256, size=way.size)
        if way.archive in self._spoilt:
            raise UserError(self._spoilt[way.archive])
        if path.is_file() and not verify.fault(path, whole, exact=True):
            return path
        try:
            check: Check = lambda part: verify.fault(part, whole, exact=True)  # noqa: E731
            self.downloads.fetch(way.archive, path, cap=way.cap, check=check)
        except UserError as error:
            self._spoilt[way.archive] = str(error)
            raise
        return path


def _copy(source: Path, target: Path, check: Check) -> None:
    if not source.is_file():
        raise UserError(f"{source}: not in the mirror")
    target.parent.mkdir(parents=True, exist_ok=True)
    room(target.parent, source.stat().st_size, str(source))
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, part)
    why = check(part)
    if why:
        part.unlink()
        raise UserError(f"{source}: not the file: {why}")
    os.replace(part, target)
