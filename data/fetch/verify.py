"""Is this the file? By git blob id or SHA-256 where they are known, else by its rows."""

import csv
import hashlib
from pathlib import Path

from data.fetch.sources import File
from minbert.files import sha256_of

csv.field_size_limit(1 << 30)


def git_blob(path: Path) -> str:
    """The id that git gives a file: sha1("blob " + size + NUL + content), hex."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def rows(path: Path, form: str) -> int:
    """Rows of a file. `lines`: lines, blank ones too; `tsv` and `csv`: records below the header."""
    if form == "lines":
        count, last = 0, b"\n"
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                count, last = count + block.count(b"\n"), block[-1:]
        return count + (last != b"\n")
    with open(path, encoding="utf-8-sig", newline="") as text:
        return sum(1 for _ in csv.reader(text, delimiter="\t" if form == "tsv" else ",")) - 1


def fault(path: Path, file: File, *, exact: bool, sha256: str = "") -> str:
    """Why `path` is not `file`, or "". `exact`: the pinned ids count, else the rows; `sha256`: as once recorded."""
    if exact and file.size and path.stat().st_size != file.size:
        return f"{path.stat().st_size} bytes, not {file.size}"
    if exact and file.blob:
        found = git_blob(path)
        return "" if found == file.blob else f"its git blob id is {found}, not {file.blob}"
    wanted = file.sha256 if exact and file.sha256 else sha256
    if wanted and (found := sha256_of(path)) != wanted:
        return f"its sha256 is {found}, not {wanted}"
    if not path.stat().st_size:
        return "it is empty"
    try:
        count = rows(path, file.form) if file.rows else 0
    except (csv.Error, UnicodeDecodeError) as error:
        return f"it is not a table: {error}"
    return "" if count == file.rows else f"{count} rows, not {file.rows}"
