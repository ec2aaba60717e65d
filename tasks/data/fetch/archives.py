"""Unpacking of untrusted archives: only the requested regular files, only to the given paths, up to a size limit."""

import errno
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from minbert.errors import UserError, quoted
from minbert.files import write_atomic

LARGEST = 4 << 30
"""Default limit for the total size of the unpacked files, in bytes."""
_POS = {"noun": 1, "verb": 2, "adj": 3, "adv": 4}
_LEXNAMES = """adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body
noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive noun.object
noun.person noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation noun.shape noun.state
noun.substance noun.time verb.body verb.change verb.cognition verb.communication verb.competition verb.consumption
verb.contact verb.creation verb.emotion verb.motion verb.perception verb.possession verb.social verb.stative
verb.weather adj.ppl"""


def unpack(archive: Path, wanted: Mapping[str, Path], largest: int = LARGEST) -> None:
    """Extract members of a zip or tar archive; `wanted` maps the end of a member's name to the target path.

    Raises `UserError` if the archive is damaged, if any member's name leads outside the archive, if a wanted member is
    missing or not a regular file, or if the wanted members exceed `largest` bytes in total.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                sizes = {info.filename: info.file_size for info in opened.infolist() if not info.is_dir()}
                for name, target in _chosen(archive, opened.namelist(), sizes, wanted, largest):
                    with opened.open(name) as source:
                        _write(source, target)
        else:
            with tarfile.open(archive) as bundle:
                members = {info.name: info for info in bundle}  # of two with one name the last counts, as in tar
                sizes = {name: info.size for name, info in members.items() if info.isreg()}
                for name, target in _chosen(archive, bundle.getnames(), sizes, wanted, largest):
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
    archive: Path, every: Iterable[str], sizes: Mapping[str, int], wanted: Mapping[str, Path], largest: int
) -> list[tuple[str, Path]]:
    """The members to write and their targets. Their declared sizes are a safe limit: no more bytes are ever read."""
    for name in every:
        path = name.replace("\\", "/")
        if path.startswith("/") or path[1:2] == ":" or ".." in path.split("/"):
            raise UserError(f"{archive.name}: refused, its member {quoted(name)} leads out of the archive")
    found = []
    for end, target in wanted.items():
        fits = [name for name in sizes if f"/{name}".endswith(f"/{end}")]
        if not fits:
            raise UserError(f"{archive.name}: no file {end} in it")
        found.append((min(fits, key=len), target))
    total = sum(sizes[name] for name, _ in found)
    if total > largest:
        raise UserError(f"{archive.name}: unpacks to {total} bytes, more than the {largest} allowed")
    return found


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        shutil.copyfileobj(source, file)


def unpack_debian(packages: Sequence[str], wanted: Mapping[str, Path], scratch: Path, seconds: float = 600) -> None:
    """Download Debian packages and write some of their files to the paths of `wanted`; nothing is installed.

    WordNet's `lexnames`, which Debian's package lacks, is generated. Raises `UserError` if apt-get or dpkg-deb is
    missing, fails or takes longer than `seconds`, or if the packages lack a file.
    """
    scratch.mkdir(parents=True)
    _run(["apt-get", "download", *packages], scratch, seconds)
    for package in sorted(scratch.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), "unpacked"], scratch, seconds)
    for end, target in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(end).name == "lexnames":
            write_atomic(target, lexnames())
            continue
        fits = [path for path in sorted(scratch.glob(f"unpacked/**/{end}")) if path.is_file() and not path.is_symlink()]
        if not fits:
            raise UserError(f"Debian's {' and '.join(packages)}: no file {end} in them")
        os.replace(fits[0], target)


def lexnames() -> str:
    """WordNet's table of 45 lexicographer files: number, name, part of speech (lexnames(5WN))."""
    names = enumerate(_LEXNAMES.split())
    return "".join(f"{number:02d}\t{name}\t{_POS[name.split('.')[0]]}\n" for number, name in names)


def _run(command: list[str], folder: Path, seconds: float) -> None:
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=True)
    except FileNotFoundError as error:
        raise UserError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{command[0]} took more than {seconds:g} s") from error
    except subprocess.CalledProcessError as error:
        said = " ".join((error.stderr + error.stdout).split())[-300:]
        raise UserError(f"{command[0]}: {said or f'exit code {error.returncode}'}") from error
