"""Guards: unpacking writes the wanted files only, whatever an archive's members are called; a damaged one is an error.

python -m pytest --import-mode=importlib tests/data/test_archives.py
"""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from minbert.errors import UserError
from tasks.data.fetch import archives

TEXT = b"a line of text\n" * 100


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("prefix", ["", "./", "downstream/", "a/b/"])
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_wanted_members_are_found_by_the_end_of_their_name(tmp_path: Path, kind: str, prefix: str) -> None:
    members = {f"{prefix}MR/one": TEXT, f"{prefix}XMR/one": b"no", f"__MACOSX/{prefix}MR/one": b"no", "../evil": b"no"}
    make = zipped if kind == "zip" else tarred
    path = make(tmp_path / f"a.{kind}", members, **({"mode": "w:gz"} if kind == "tar.gz" else {}))
    archives.unpack(path, {"MR/one": tmp_path / "out" / "one"})
    assert (tmp_path / "out" / "one").read_bytes() == TEXT
    assert {one for one in tmp_path.rglob("*") if one.is_file()} == {path, tmp_path / "out" / "one"}
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "text"])
def test_a_broken_archive_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "zip":
        content = bytearray(zipped(path, {"one": bytes(range(256)) * 40}).read_bytes())
        content[60] ^= 0xFF
        path.write_bytes(content)
    elif kind == "tar.gz":
        whole = tarred(path, {"one": bytes(range(256)) * 400}, mode="w:gz").read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    else:
        path.write_text("<html>404 but polite</html>")
    with pytest.raises(UserError, match="a: damaged archive"):
        archives.unpack(path, {"one": tmp_path / "one"})
