"""Unpacking of downloaded archives: only the requested regular files, each to the path that the caller names."""

import errno
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from minbert.errors import UserError


def unpack(archive: Path, targets: Mapping[str, Path]) -> None:
    """Extract members of a zip or tar archive; `targets` maps the end of a member's name to the target path.

    No other path is written, whatever the archive's members are called. Raises `UserError` if the archive is damaged,
    or if a wanted member is missing or not a regular file.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                for name, target in _members(archive, opened.namelist(), targets):
                    with opened.open(name) as source:
                        _write(source, target)
        else:
            with tarfile.open(archive) as bundle:
                regular = {info.name: info for info in bundle if info.isreg()}
                for name, target in _members(archive, regular, targets):
                    member = bundle.extractfile(regular[name])
                    assert member is not None  # it is a regular file
                    _write(member, target)
    except UserError:
        raise
    except Exception as error:  # for damaged archives zipfile and tarfile raise many types of exceptions
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # an error of the file system, not of the archive
        raise UserError(f"{archive.name}: damaged archive: {error or type(error).__name__}") from error


def _members(archive: Path, names: Iterable[str], targets: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """The member to write to each target: of several with the wanted end, the one of the shortest name."""
    for end, target in targets.items():
        fits = [name for name in names if f"/{name}".endswith(f"/{end}")]
        if not fits:
            raise UserError(f"{archive.name}: no file {end} in it")
        yield min(fits, key=len), target


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        shutil.copyfileobj(source, file)
