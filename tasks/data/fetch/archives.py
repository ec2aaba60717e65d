"""Unpacking of downloaded archives: the requested files, each to the path that the caller names."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from minbert.errors import UserError


def unpack(archive: Path, targets: Mapping[str, Path]) -> None:
    """Write members of a zip or tar archive; `targets` maps the end of a member's name to the target path.

    No other path is written, whatever the archive's members are called. Raises `UserError` if the archive is damaged,
    or if a wanted member is missing or not a regular file.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _write(archive, zipped.namelist(), zipped.open, targets)
        else:
            with tarfile.open(archive) as bundle:
                _write(archive, [info.name for info in bundle if info.isreg()], bundle.extractfile, targets)
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive.name}: damaged archive: {error}") from error


def _write(
    archive: Path, names: Sequence[str], open_member: Callable[[str], IO[bytes] | Any], targets: Mapping[str, Path]
) -> None:
    """Write each target: of several members with the wanted end, the one of the shortest name."""
    for end, target in targets.items():
        wanted = [name for name in names if f"/{name}".endswith(f"/{end}")]
        if not wanted:
            raise UserError(f"{archive.name}: no file {end} in it")
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_member(min(wanted, key=len)) as source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
