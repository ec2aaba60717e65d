"""Unpacking of downloaded archives: the requested files, each to the path that the caller names."""

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from minbert.errors import UserError


def unpack(archive: Path, targets: Mapping[str, Path]) -> None:
    """Extract members of a zip or tar archive; `targets` maps the end of a member's name to the target path.

    Of several members with that end it is the one of the shortest name. Raises `UserError` if the archive is damaged or
    has a member outside it, or if a wanted one is missing.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        folder = Path(name)
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as zipped:
                    zipped.extractall(folder)
            else:
                with tarfile.open(archive) as bundle:
                    bundle.extractall(folder, filter="data")
        except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise UserError(f"{archive.name}: damaged archive: {error}") from error
        files = {f"/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
        for end, target in targets.items():
            names = [name for name in files if name.endswith(f"/{end}")]
            if not names:
                raise UserError(f"{archive.name}: no file {end} in it")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(files[min(names, key=len)], target)
