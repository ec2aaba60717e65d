"""Guards: archives of strangers: nothing outside the folder, no links, no bombs, nothing half unpacked.

python -m pytest --import-mode=importlib tests/data/test_archives.py
"""

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from data.fetch import archives
from minbert.errors import UserError

TEXT = b"a line of text\n" * 100


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return path


@pytest.mark.parametrize("prefix", ["", "./", "downstream/", "a/b/"])
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_wanted_members_are_found_by_the_end_of_their_name(tmp_path: Path, kind: str, prefix: str) -> None:
    members = {f"{prefix}MR/one": TEXT, f"{prefix}XMR/one": b"no", f"__MACOSX/{prefix}MR/one": b"no"}
    make = zipped if kind == "zip" else tarred
    path = make(tmp_path / f"a.{kind}", members, **({"mode": "w:gz"} if kind == "tar.gz" else {}))
    archives.unpack(path, {"MR/one": tmp_path / "out" / "one"}, cap=10_000)
    assert (tmp_path / "out" / "one").read_bytes() == TEXT
    assert len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil", "a/b/../evil"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_that_lead_out_spoil_the_archive(tmp_path: Path, kind: str, name: str) -> None:
    path = (zipped if kind == "zip" else tarred)(tmp_path / f"a.{kind}", {"good": TEXT, name: TEXT})
    with pytest.raises(UserError, match="leads out of the archive; nothing was unpacked"):
        archives.unpack(path, {"good": tmp_path / "out" / "good"}, cap=10_000)
    assert not (tmp_path / "out").exists() and not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("link", ["/etc/passwd", "../../etc/passwd"])
def test_links_out_spoil_the_archive(tmp_path: Path, link: str) -> None:
    path = tarred(tmp_path / "a.tar", {"good": TEXT}, {"bad": link})
    with pytest.raises(UserError, match="leads out"):
        archives.unpack(path, {"good": tmp_path / "good"}, cap=10_000)


def test_a_link_is_never_a_wanted_file(tmp_path: Path) -> None:
    path = tarred(tmp_path / "a.tar", {"good": TEXT}, {"wanted": "good"})
    with pytest.raises(UserError, match="no file wanted in it"):
        archives.unpack(path, {"wanted": tmp_path / "wanted"}, cap=10_000)
    assert not (tmp_path / "wanted").is_symlink()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_bomb_stops_at_the_cap_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    members = {"small": TEXT, "bomb": b"\0" * 5_000_000}
    path = zipped(tmp_path / "a.zip", members) if kind == "zip" else tarred(tmp_path / "a.tgz", members, mode="w:gz")
    assert path.stat().st_size < 50_000
    with pytest.raises(UserError, match="bomb unpacks to more bytes"):
        archives.unpack(path, {"small": tmp_path / "s", "bomb": tmp_path / "b"}, cap=4_000_000)
    assert not (tmp_path / "s").exists() and not (tmp_path / "b").exists()


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MEMBERS", 5)
    path = zipped(tmp_path / "a.zip", {f"f{i}": b"" for i in range(6)})
    with pytest.raises(UserError, match="6 members, more than 5"):
        archives.unpack(path, {"f1": tmp_path / "f1"}, cap=10)


def test_a_full_disk_is_said_before_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "a.zip", {"one": b"\0" * 1_000_000})
    usage = shutil.disk_usage(tmp_path)._replace(free=17 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    archives.unpack(path, {"one": tmp_path / "one"}, cap=2_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=16 << 20))
    with pytest.raises(UserError, match="are needed in"):
        archives.unpack(path, {"one": tmp_path / "two"}, cap=2_000_000)
    assert not (tmp_path / "two").exists()


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
    with pytest.raises(UserError, match="a: not a whole archive"):
        archives.unpack(path, {"one": tmp_path / "one"}, cap=1 << 20)
    assert not (tmp_path / "one").exists()
