"""Guards: a set with a manifest is complete, else it says what is missing; pinned files are verified.

python -m pytest --import-mode=importlib tests/data/test_fetch.py
"""

import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from minbert import UserError
from tasks.data import sets
from tasks.data.__main__ import SETS, main
from tasks.data.fetch import collect, download, unpack
from tasks.data.sets import DataSet, File, Part, Source

Fetch = Callable[[DataSet], bool]
ONE, TWO, MANY = b"first\nsecond\n", b"a\tb\nc\td\n", b"x\n" * 50


class Server(ThreadingHTTPServer):
    """Serves `files`, and knows what it was asked for.

    `faults` are paths that are answered by a "stall" or a "cut" after half the file, by a "reset" before any answer, or
    by a redirection to another address.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, str] = {}
        self.asked: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Answer(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        self.server.asked.append(path)
        body, fault = self.server.files.get(path), self.server.faults.get(path, "")
        self.close_connection = bool(fault)
        if fault == "reset":
            return
        self.send_response(302 if "://" in fault else 404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("Location", fault)
        self.end_headers()
        self.wfile.write((body or b"")[: len(body or b"") // 2 if fault else None])
        if fault == "stall":
            self.rfile.read(1)  # until the client gives up

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which are not waited for."""
    made: list[float] = []
    monkeypatch.setattr("pooch.core.time.sleep", made.append)
    return made


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred(members: dict[str, bytes], mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def small_set(server: Any) -> DataSet:
    """Two parts: one file pinned by its hash, two files known by their rows."""
    base = server.url("public")
    pinned = Source((File("one.txt", 2, hashlib.sha256(ONE).hexdigest()),), url=base)
    counted = Source((File("sub/two.tsv", 1, form="tsv"), File("sub/many.txt", 50)), url=base)
    server.files |= {"public/one.txt": ONE, "public/sub/two.tsv": TWO, "public/sub/many.txt": MANY}
    return DataSet(
        "small", "small", (Part("pinned", (pinned,), "CC0", "A 2001"), Part("counted", (counted,), "MIT", "B 2002"))
    )


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    return lambda dataset: collect(dataset, tmp_path / "to", set())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that `fetch` completes."""
    return tmp_path / "to" / "small"


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_set_is_whole_with_its_manifest(
    server: Any, fetch: Fetch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(small_set(server))
    assert names(folder) == ["manifest.json", "one.txt", "sub/many.txt", "sub/two.tsv"]
    content = manifest(folder)
    assert content["complete"] and content["set"] == "small"
    by_path = {entry["path"]: entry for entry in content["files"]}
    assert (
        by_path["sub/many.txt"] | {"bytes": 100, "rows": 50, "licence": "MIT", "citation": "B 2002"}
        == (by_path["sub/many.txt"])
    )
    assert by_path["one.txt"]["source"] == server.url("public") and by_path["one.txt"]["pinned"]
    assert by_path["one.txt"]["sha256"] == hashlib.sha256(ONE).hexdigest()
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("CC0", "A 2001", "MIT", "B 2002"))


def test_what_is_there_is_not_fetched_again(server: Any, fetch: Fetch, folder: Path) -> None:
    assert fetch(small_set(server)) and len(server.asked) == 3
    assert fetch(small_set(server)) and len(server.asked) == 3
    (folder / "manifest.json").write_text("{}")  # files put there by hand count by what they are
    assert fetch(small_set(server)) and len(server.asked) == 3
    (folder / "sub" / "many.txt").write_bytes(MANY[:-2])
    assert fetch(small_set(server)) and len(server.asked) == 4, "it has not its number of rows any more"


def test_a_set_that_is_missing_a_part_says_so_and_goes_on(
    server: Any, fetch: Fetch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = small_set(server)
    server.files["public/one.txt"] = b"another\nfile\n"
    assert not fetch(small)
    assert names(folder) == ["manifest.json", "sub/many.txt", "sub/two.tsv"]
    assert not manifest(folder)["complete"]
    shown = capsys.readouterr().out
    assert re.search(r"pinned: MISSING: http\S+/public: one.txt is not the expected file: its sha256 is ", shown)
    assert "incomplete: pinned; the other parts are kept, run the same command again to go on" in shown
    server.files["public/one.txt"] = ONE
    before = len(server.asked)
    assert fetch(small) and server.asked[before:] == ["public/one.txt"]
    assert manifest(folder)["complete"]


def test_an_archive_is_fetched_once_for_all_its_parts(server: Any, fetch: Fetch, folder: Path) -> None:
    server.files["set.zip"] = zipped({"top/a/one": ONE, "top/b/many": MANY})
    url = server.url("set.zip")
    left = folder / ".download" / "set.zip"  # by a run that was killed
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of another address")
    parts = tuple(
        Part(name, (Source((File(f"kept/{name}/{file}", count),), archive=url, drop="kept/"),), "MIT", "B")
        for name, file, count in (("a", "one", 2), ("b", "many", 50))
    )
    assert fetch(DataSet("small", "small", parts))
    assert len(server.asked) == 1
    assert names(folder) == ["kept/a/one", "kept/b/many", "manifest.json"]
    assert manifest(folder)["files"][0]["source"] == url


@pytest.mark.parametrize(("content", "tries"), [(None, 2), (b"not the archive", 1)])
def test_an_archive_that_failed_is_not_fetched_again_for_the_next_part(
    server: Any, fetch: Fetch, folder: Path, content: bytes | None, tries: int
) -> None:
    server.files |= {"set.zip": content} if content else {}
    parts = tuple(
        Part(name, (Source((File(name, 2),), archive=server.url("set.zip"), sha256="0" * 64),), "MIT", "B")
        for name in "abc"
    )
    assert not fetch(DataSet("small", "small", parts))
    assert len(server.asked) == tries
    messages = [note.partition(": ")[2] for note in manifest(folder)["notes"]]
    assert len(messages) == 3 and len(set(messages)) == 1 and "set.zip" in messages[0]


def test_a_link_is_replaced_and_what_it_points_to_is_untouched(server: Any, fetch: Fetch, folder: Path) -> None:
    original = folder.parent.parent / "original.txt"
    original.write_bytes(b"edited\n")
    folder.mkdir(parents=True)
    (folder / "one.txt").symlink_to(original)
    assert fetch(small_set(server))
    assert not (folder / "one.txt").is_symlink() and (folder / "one.txt").read_bytes() == ONE
    assert original.read_bytes() == b"edited\n"


@pytest.mark.parametrize("case", ["rows", "hash", "404"])
def test_an_archive_that_is_not_right_gives_way_to_the_next_source(
    server: Any, fetch: Fetch, folder: Path, case: str
) -> None:
    content = MANY if case == "rows" else ONE
    server.files |= {"set.zip": zipped({"one.txt": content}), "plain/one.txt": ONE}
    if case == "404":
        del server.files["set.zip"]
    digest = "0" * 64 if case == "hash" else ""
    bad = Source((File("one.txt", 2),), archive=server.url("set.zip"), sha256=digest)
    good = Source(bad.files, url=server.url("plain"))
    assert fetch(DataSet("small", "small", (Part("p", (bad, good), "MIT", "B"),)))
    assert names(folder) == ["manifest.json", "one.txt"]
    assert (folder / "one.txt").read_bytes() == ONE


def test_a_sample_stands_in_only_while_the_whole_cannot_be_had(server: Any, fetch: Fetch, folder: Path) -> None:
    whole = Source((File("whole.txt", 50),), url=server.url("public"))
    sample = Source((File("sample.txt", 2),), url=server.url("public"), partial=True)
    small = DataSet("small", "small", (Part("p", (whole, sample), "MIT", "B"),))
    server.files["public/sample.txt"] = ONE
    for _ in range(2):
        assert fetch(small)
        assert "sample.txt" in manifest(folder)["notes"][0]
    server.files["public/whole.txt"] = MANY
    assert fetch(small) and manifest(folder)["notes"] == []
    assert "whole.txt" in names(folder)


def test_an_optional_part_is_left_out_with_a_note(server: Any, fetch: Fetch, folder: Path) -> None:
    gone = Part("gone", (Source((File("gone.txt", 1),), url=server.url("nowhere")),), "MIT", "B", optional=True)
    private = Part("private", (Source((File("own.txt", 1),)),), "MIT", "B", optional=True)
    assert fetch(DataSet("small", "small", (*small_set(server).parts, gone, private)))
    notes = manifest(folder)["notes"]
    assert "gone: left out" in notes[0] and "404" in notes[0] and "no public address" in notes[1]


@pytest.mark.parametrize(("year", "count"), [(2023, 141506), (2024, 283010)])
def test_every_set_is_in_the_table_and_the_year_chooses_the_course_files(year: int, count: int) -> None:
    assert all(sets.load(name, year).parts for name in SETS)
    questions = {file.path: file.rows for part in sets.load("course", year).parts for file in part.sources[0].files}
    assert questions["quora-train.csv"] == count


def test_the_hub_is_where_hf_endpoint_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    assert sets.load("nli").parts[0].sources[0].url.startswith("https://hub.example/datasets/princeton-nlp/")
    monkeypatch.delenv("HF_ENDPOINT")
    assert sets.load("nli").parts[0].sources[0].url.startswith("https://huggingface.co/datasets/princeton-nlp/")


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["senteval", "wordnet"])
def test_real_files_verify_against_the_table(name: str, real_data: Path, tmp_path: Path) -> None:
    dataset = sets.load(name)
    if not (real_data / dataset.folder).is_dir():
        pytest.skip(f"DATA_DIR holds no {dataset.folder}")
    folder = shutil.copytree(real_data / dataset.folder, tmp_path / dataset.folder)
    assert collect(dataset, tmp_path, set())
    assert name != "senteval" or all(entry["pinned"] for entry in manifest(folder)["files"])


def test_a_host_that_does_not_answer_is_asked_once(
    server: Any, tmp_path: Path, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    small, silent = small_set(server), set[str]()
    gone = Source((File("gone.txt", 1),), url="http://127.0.0.1:1/public")
    other = Part("other", (Source((File("one.txt", 2),), archive="http://127.0.0.1:1/a.zip"), gone), "MIT", "B")
    parts = (Part("gone", (gone,), "MIT", "B"), other, small.parts[1])
    for name in ("first", "second"):
        assert not collect(DataSet(name, name, parts), tmp_path, silent)
        assert names(tmp_path / name) == ["manifest.json", "sub/many.txt", "sub/two.tsv"], "other hosts go on"
    assert not pauses and silent == {"127.0.0.1:1"}
    assert capsys.readouterr().out.count("other: MISSING: 127.0.0.1:1 does not answer\n") == 2


@pytest.mark.parametrize("fault", ["stall", "cut", "reset"])
def test_a_host_that_breaks_off_is_tried_again_and_asked_for_the_next_file(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], fault: str
) -> None:
    monkeypatch.setattr("tasks.data.fetch._TIMEOUT", (5.0, 0.1))
    server.files |= {"bad": MANY, "good": ONE}
    server.faults["bad"] = fault
    silent = set[str]()
    with pytest.raises(UserError, match=f"^{server.url('bad')}: "):
        download(server.url("bad"), tmp_path / "bad", silent)
    assert server.asked == ["bad", "bad"] and len(pauses) == 1 and not silent
    download(server.url("good"), tmp_path / "good", silent)
    assert [path.name for path in tmp_path.iterdir()] == ["good"] and (tmp_path / "good").read_bytes() == ONE


def test_a_host_that_redirects_to_a_silent_one_is_not_silent(server: Any, tmp_path: Path) -> None:
    server.faults["moved"] = "http://127.0.0.1:1/moved"
    silent = set[str]()
    with pytest.raises(UserError, match=r"^127.0.0.1:1 does not answer$"):
        download(server.url("moved"), tmp_path / "moved", silent)
    assert silent == {"127.0.0.1:1"}


@pytest.mark.parametrize("error", [TimeoutError, socket.gaierror])
def test_a_host_without_a_connection_or_an_address_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], error: type[OSError]
) -> None:
    def connect(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("urllib3.util.connection.create_connection", connect)
    silent = set[str]()
    with pytest.raises(UserError, match=r"^host.example does not answer$"):
        download("http://host.example/file", tmp_path / "file", silent)
    assert silent == {"host.example"} and not pauses


TEXT = b"a line of text\n" * 100


@pytest.mark.parametrize("prefix", ["", "./", "downstream/", "a/b/"])
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_wanted_members_are_found_by_the_end_of_their_name(tmp_path: Path, kind: str, prefix: str) -> None:
    members = {f"{prefix}MR/one": TEXT, f"{prefix}XMR/one": b"no", f"__MACOSX/{prefix}MR/one": b"no", "../evil": b"no"}
    path = tmp_path / f"a.{kind}"
    path.write_bytes(zipped(members) if kind == "zip" else tarred(members, "w:gz" if kind == "tar.gz" else "w"))
    unpack(path, {"MR/one": tmp_path / "out" / "one"})
    assert (tmp_path / "out" / "one").read_bytes() == TEXT
    assert {one for one in tmp_path.rglob("*") if one.is_file()} == {path, tmp_path / "out" / "one"}
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "text"])
def test_a_broken_archive_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "zip":
        content = bytearray(zipped({"one": bytes(range(256)) * 40}))
        content[60] ^= 0xFF
        path.write_bytes(content)
    elif kind == "tar.gz":
        whole = tarred({"one": bytes(range(256)) * 400}, "w:gz")
        path.write_bytes(whole[: len(whole) // 2])
    else:
        path.write_text("<html>404 but polite</html>")
    with pytest.raises(UserError, match="a: damaged archive"):
        unpack(path, {"one": tmp_path / "one"})


SCRIPT = Path(__file__).parent.parent.parent / "data" / "get_data.py"


def test_every_set_is_fetched_and_those_that_are_incomplete_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, dict[str, Any]] = {}

    def fetched(dataset: DataSet, to: Path, silent: set[str], **fields: Any) -> bool:
        seen[dataset.name] = fields
        return dataset.name != "nli" and to == tmp_path

    monkeypatch.setattr("tasks.data.fetch.collect", fetched)
    monkeypatch.setattr("sys.argv", ["get_data.py", "all", "--data", str(tmp_path), "--year", "2023"])
    with pytest.raises(UserError, match="incomplete: nli "):
        main()
    assert seen == {name: {"year": 2023} if name == "course" else {} for name in SETS}


def test_from_any_folder_an_error_is_one_sentence_and_code_2(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, SCRIPT, "check", "--data", "nowhere"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and re.fullmatch("error: --data: nowhere .*\n", done.stderr)
