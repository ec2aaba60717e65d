"""Archives of strangers: every member's name is looked at, only the wanted files are unpacked, and never too much."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from data.fetch.disk import room
from minbert.errors import UserError

_MEMBERS = 20_000
_BLOCK = 1 << 20


def unpack(archive: Path, wanted: Mapping[str, Path], *, cap: int) -> None:
    """Write members of a zip or tar archive to the given paths: `wanted` maps the end of a member's name to its place.

    Raises `UserError` where the archive is broken, a member's name or link leads out of it, a wanted member is absent
    or not a plain file, the disk has no room, or more than `cap` bytes would be written.
    Files written before that are removed.
    """
    written: list[Path] = []
    try:
        with _opened(archive) as members:
            left = cap
            names = {_find(suffix, members.names, archive): target for suffix, target in wanted.items()}
            room(archive.parent, min(cap, sum(members.declared[name] for name in names)), archive.name)
            for name, target in names.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                written.append(target)
                left -= members.copy(name, target, left, archive)
    except BaseException as error:
        for target in written:
            target.unlink(missing_ok=True)
        if isinstance(error, zipfile.BadZipFile | tarfile.TarError | zlib.error | EOFError | NotImplementedError):
            raise UserError(f"{archive.name}: not a whole archive: {error}") from error
        raise


class _Members:
    """The plain files of an archive, after every name in it was found harmless."""

    def __init__(self, archive: zipfile.ZipFile | tarfile.TarFile, path: Path) -> None:
        self._archive = archive
        if isinstance(archive, zipfile.ZipFile):
            infos = archive.infolist()
            listed = [(info.filename, "") for info in infos]
            self.declared = {info.filename: info.file_size for info in infos if not info.is_dir()}
            if any(info.flag_bits & 1 for info in infos):
                raise UserError(f"{path.name}: the archive is encrypted")
        else:
            entries = archive.getmembers()
            listed = [(entry.name, entry.linkname if entry.issym() or entry.islnk() else "") for entry in entries]
            self.declared = {entry.name: entry.size for entry in entries if entry.isreg()}
        self.names = list(self.declared)
        if len(listed) > _MEMBERS:
            raise UserError(f"{path.name}: {len(listed)} members, more than {_MEMBERS}")
        for name, link in listed:
            if _leaves(name) or (link and (_leaves(link) or _leaves_from(name, link))):
                raise UserError(f"{path.name}: member {name!r} leads out of the archive; nothing was unpacked")

    def copy(self, name: str, target: Path, cap: int, path: Path) -> int:
        """Write one member; its size in bytes, counted as it comes and not as it is declared."""
        size = 0
        with self._open(name) as source, open(target, "wb") as file:
            while block := source.read(_BLOCK):
                size += len(block)
                if size > cap:
                    raise UserError(f"{path.name}: {name} unpacks to more bytes than it may have")
                file.write(block)
        return size

    def _open(self, name: str) -> IO[bytes]:
        if isinstance(self._archive, zipfile.ZipFile):
            return self._archive.open(name)
        source = self._archive.extractfile(name)
        assert source is not None  # `names` holds plain files only
        return source


@contextmanager
def _opened(path: Path) -> Iterator[_Members]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield _Members(archive, path)
    else:
        with tarfile.open(path) as bundle:
            yield _Members(bundle, path)


def _leaves(name: str) -> bool:
    plain = name.replace("\\", "/")
    drive = plain[1:2] == ":"
    return plain.startswith("/") or drive or ".." in plain.split("/") or "\0" in plain


def _leaves_from(name: str, link: str) -> bool:
    return ".." in PurePosixPath(name).parent.joinpath(link).parts


def _find(suffix: str, names: list[str], archive: Path) -> str:
    fits = [name for name in names if f"/{name}".endswith(f"/{suffix}")]
    if not fits:
        raise UserError(f"{archive.name}: no file {suffix} in it")
    return min(fits, key=len)
