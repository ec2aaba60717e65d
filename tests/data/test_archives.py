"""Guards: unpacking writes the wanted files only, whatever an archive's members are called; a damaged one is an error.

python -m pytest --import-mode=importlib tests/data/test_archives.py
"""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minbert.errors import UserError
from tasks.data.fetch import archives

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
    archives.unpack(path, {"MR/one": tmp_path / "out" / "one"})
    assert (tmp_path / "out" / "one").read_bytes() == TEXT
    assert len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil", "a/b/../evil"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_member_whose_name_leads_out_is_not_written(tmp_path: Path, kind: str, name: str) -> None:
    path = (zipped if kind == "zip" else tarred)(tmp_path / f"a.{kind}", {"good": TEXT, name: TEXT})
    before = {path}
    archives.unpack(path, {"good": tmp_path / "out" / "good"})
    assert {one for one in tmp_path.rglob("*") if one.is_file()} - before == {tmp_path / "out" / "good"}
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("link", ["/etc/passwd", "../../etc/passwd", "good"])
def test_a_link_is_never_a_wanted_file(tmp_path: Path, link: str) -> None:
    path = tarred(tmp_path / "a.tar", {"good": TEXT}, {"wanted": link})
    archives.unpack(path, {"good": tmp_path / "out" / "good"})
    with pytest.raises(UserError, match="no file wanted in it"):
        archives.unpack(path, {"wanted": tmp_path / "out" / "wanted"})
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["good"]


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["zip", "tar", "tar.gz"]), places=st.lists(st.integers(0, 1 << 20), max_size=8), data=st.data()
)
def test_an_archive_with_random_bytes_changed_is_unpacked_or_refused(
    tmp_path: Path, kind: str, places: list[int], data: st.DataObject
) -> None:
    path, out = tmp_path / "fuzzed", tmp_path / "out" / "one"
    make, mode = (zipped, {}) if kind == "zip" else (tarred, {"mode": "w:gz" if kind == "tar.gz" else "w"})
    content = bytearray(make(path, {"one": TEXT, "two": TEXT}, **mode).read_bytes())
    for place in places:
        content[place % len(content)] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    try:
        archives.unpack(path, {"one": out})
    except UserError as error:
        assert "fuzzed: " in str(error)
    assert {found.name for found in tmp_path.iterdir()} <= {"fuzzed", "out"}
