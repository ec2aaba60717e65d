"""Unpacking of untrusted archives: only the requested regular files, only to the given paths, up to a size limit."""

import errno
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from minbert.errors import UserError, quoted

LARGEST = 4 << 30
"""Default limit for the total size of the unpacked files, in bytes."""


def unpack(archive: Path, targets: Mapping[str, Path], largest: int = LARGEST) -> None:
    """Extract members of a zip or tar archive; `targets` maps the end of a member's name to the target path.

    Raises `UserError` if the archive is damaged, if any member's name leads outside the archive, if a wanted member is
    missing or not a regular file, or if the wanted members exceed `largest` bytes in total.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                sizes = {info.filename: info.file_size for info in opened.infolist() if not info.is_dir()}
                for name, target in _chosen(archive, opened.namelist(), sizes, targets, largest):
                    with opened.open(name) as source:
                        _write(source, target)
        else:
            with tarfile.open(archive) as bundle:
                members = {info.name: info for info in bundle}  # of two with one name the last counts, as in tar
                sizes = {name: info.size for name, info in members.items() if info.isreg()}
                for name, target in _chosen(archive, bundle.getnames(), sizes, targets, largest):
                    member = bundle.extractfile(members[name])
                    assert member is not None  # `sizes` has only regular files
                    _write(member, target)
    except UserError:
        raise
    except Exception as error:  # for damaged archives zipfile and tarfile raise many types of exceptions
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # an error of the file system, not of the archive
        raise UserError(f"{archive.name}: damaged archive: {error or type(error).__name__}") from error


def _chosen(
    archive: Path, names: Iterable[str], sizes: Mapping[str, int], targets: Mapping[str, Path], largest: int
) -> list[tuple[str, Path]]:
    """The members to write and their targets. Their declared sizes are a safe limit: no more bytes are ever read."""
    for name in names:
        path = name.replace("\\", "/")
        if path.startswith("/") or path[1:2] == ":" or ".." in path.split("/"):
            raise UserError(f"{archive.name}: refused, its member {quoted(name)} leads out of the archive")
    members = []
    for end, target in targets.items():
        fits = [name for name in sizes if f"/{name}".endswith(f"/{end}")]
        if not fits:
            raise UserError(f"{archive.name}: no file {end} in it")
        members.append((min(fits, key=len), target))
    total = sum(sizes[name] for name, _ in members)
    if total > largest:
        raise UserError(f"{archive.name}: unpacks to {total} bytes, more than the {largest} allowed")
    return members


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        shutil.copyfileobj(source, file)
