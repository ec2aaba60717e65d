"""Guards: a fetched file is the expected one or is not kept, members of archives land, incomplete sets are named.

python -m pytest --import-mode=importlib tests/data/test_fetch.py
"""

import hashlib
import io
import itertools
import json
import shutil
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from data import fetch, get_data
from data.fetch import Part, Source
from minbert.errors import UserError

CONTENT = b"first\nsecond\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
GIT = "git:66a52ee7a1d803dc57859c3e95ac9dcdc87c0164"  # by `git hash-object`


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a server of `one.txt` and of `set.zip`, which holds it as `top/a/one.txt`."""
    public = tmp_path / "public"
    public.mkdir()
    (public / "one.txt").write_bytes(CONTENT)
    with zipfile.ZipFile(public / "set.zip", "w") as archive:
        archive.writestr("top/a/one.txt", CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(public)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def sets(monkeypatch: pytest.MonkeyPatch, *sources: Source) -> None:
    """Make every set one part with these sources, in the folder `set`."""
    monkeypatch.setattr(fetch, "read_parts", lambda name, year: ("set", [Part("part", sources, "MIT", "A 2001")]))


@pytest.mark.parametrize("expected", [SHA256, GIT, "rows:2"])
def test_file_lands(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: str) -> None:
    sets(monkeypatch, Source({"sub/one.txt": expected}, url=url, drop="sub/"))
    assert fetch.fetch_set("any", tmp_path, 2024)
    folder = tmp_path / "set"
    assert (folder / "sub" / "one.txt").read_bytes() == CONTENT
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["complete"]
    assert manifest["files"][0]["sha256"] == SHA256
    # a file that is as expected is not fetched again
    shutil.rmtree(tmp_path / "public")
    assert fetch.fetch_set("any", tmp_path, 2024)


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ("0" * 64, f"expected {'0' * 64} but got {SHA256}"),
        (f"git:{'0' * 40}", f"not the expected file (git:{'0' * 40})"),
        ("rows:3", "not the expected file (rows:3)"),
    ],
)
def test_unexpected_file_is_not_kept(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    expected: str,
    problem: str,
) -> None:
    sets(monkeypatch, Source({"one.txt": expected}, url=url))
    with pytest.raises(UserError, match="incomplete: nli"):
        get_data.main(["nli", "--data", str(tmp_path)])
    printed = capsys.readouterr().out
    assert f"part: MISSING: {url}/one.txt: " in printed and problem in printed
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["manifest.json"]


def test_failure_of_better_source_is_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    better = Source({"one.txt": SHA256, "two.txt": "-"}, archive=f"{url}/none.zip")
    sets(monkeypatch, better, Source({"one.txt": SHA256}, url=url))
    assert fetch.fetch_set("any", tmp_path, 2024)
    assert f"part: only one.txt; the rest is missing: {url}/none.zip" in capsys.readouterr().out


def test_failed_connection_is_one_short_sentence(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/one.txt"
        with pytest.raises(UserError, match=r"^[^ ]*/one\.txt: \[Errno \d+\] Connection refused$"):
            fetch.retrieve(url, SHA256, tmp_path / "one.txt")


def test_member_stays_in_its_folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "public" / "set.tar", "w") as archive:
        member = tarfile.TarInfo("../../escaped.txt")
        member.size = len(CONTENT)
        archive.addfile(member, io.BytesIO(CONTENT))
    sets(monkeypatch, Source({"escaped.txt": SHA256}, archive=f"{url}/set.tar"))
    assert not fetch.fetch_set("any", tmp_path, 2024)
    assert not list(tmp_path.rglob("escaped.txt"))


def test_other_file_is_kept(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets(monkeypatch, Source({"one.txt": SHA256}, url=url))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "one.txt").write_text("of the user")
    assert fetch.fetch_set("any", tmp_path, 2024)
    assert (tmp_path / "set" / "one.txt").read_bytes() == CONTENT
    assert (tmp_path / "set" / "one.txt.old").read_text() == "of the user"


def test_member_after_failed_source(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets(
        monkeypatch,
        Source({"a/one.txt": SHA256}, url=f"{url}/nowhere"),
        Source({"a/one.txt": SHA256}, archive=f"{url}/set.zip"),
    )
    assert fetch.fetch_set("any", tmp_path, 2024)
    assert (tmp_path / "set" / "a" / "one.txt").read_bytes() == CONTENT
    # the file is there now, so the first source would do; it still comes from the second
    assert fetch.fetch_set("any", tmp_path, 2024)
    manifest = json.loads((tmp_path / "set" / "manifest.json").read_text())
    assert manifest["files"][0]["source"] == f"{url}/set.zip"


def test_files_without_hash_are_few() -> None:
    """A file is verified by its own hash or by that of its archive, from whatever source it comes."""
    unverified = set()
    for name, year in itertools.product(get_data.SETS, (2023, 2024)):
        _, parts = fetch.read_parts(name, year)
        for part in parts:
            if not all(is_verified(source) for source in part.sources):
                unverified.add(f"{name} {part.name}")
    chinese = {"chinese ATEC", "chinese BQ", "chinese LCQMC", "chinese PAWS-X", "chinese STS-B"}
    assert unverified == {"nli triplets"} | chinese


def is_verified(source: Source) -> bool:
    weak = [expected for expected in source.files.values() if expected == "-" or expected.startswith("rows:")]
    return source.expected != "-" or not weak


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["senteval", "wordnet"])
def test_real_files_are_as_expected(name: str, real_data: Path) -> None:
    folder, parts = fetch.read_parts(name, 2024)
    for part in parts:
        for path, expected in part.sources[0].files.items():
            assert fetch.is_expected(real_data / folder / path, expected), path
