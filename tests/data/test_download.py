"""Guards: a download arrives complete or not at all: retries, resumption, size limits, stalls, one-sentence errors.

python -m pytest --import-mode=importlib tests/data/test_download.py
"""

import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minbert.errors import UserError
from tasks.data.fetch.download import Downloader

BODY = hashlib.shake_256(b"a file").digest(40_000)
OTHER = hashlib.shake_256(b"its next version").digest(41_000)


def exactly(body: bytes) -> Callable[[Path], str]:
    return lambda path: "" if path.read_bytes() == body else "it has another content"


def fetch(server: Any, downloads: Downloader, target: Path) -> None:
    downloads.fetch(server.url("file"), target, exactly(BODY))


def left(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize(
    "troubles",
    [
        [],
        ["500"],
        ["503", "502"],
        ["429 0"],
        ["408"],
        ["truncates"],
        ["truncates", "truncates", "truncates", "truncates", "truncates"],  # each brings half of the rest: progress
        ["stalls"],
        ["claims-more"],
        ["no-length"],
        ["truncates", "ignores-range"],
        ["truncates", "500", "truncates"],
    ],
    ids=" ".join,
)
def test_what_can_be_mended_is_mended(server: Any, downloads: Downloader, tmp_path: Path, troubles: list[str]) -> None:
    server.files["file"], server.script["file"] = BODY, list(troubles)
    fetch(server, downloads, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    assert left(tmp_path / "file") == ["file"]


def test_a_broken_transfer_goes_on_where_it_broke(server: Any, downloads: Downloader, tmp_path: Path) -> None:
    server.files["file"], server.script["file"] = BODY, ["truncates"]
    fetch(server, downloads, tmp_path / "file")
    assert [asked.range for asked in server.asked] == [None, "bytes=20000-"]
    assert server.asked[1].condition


def test_a_redirected_transfer_goes_on_through_the_first_address(
    server: Any, downloads: Downloader, tmp_path: Path
) -> None:
    """Addresses that a hub leads to are signed and expire."""
    server.files |= {"file": b"moved", "there": BODY}
    server.script |= {"file": ["leads to /there", "leads to /there"], "there": ["truncates"]}
    fetch(server, downloads, tmp_path / "file")
    asked = [(one.path, one.range) for one in server.asked]
    assert asked == [("file", None), ("there", None), ("file", "bytes=20000-"), ("there", "bytes=20000-")]


def test_without_a_validator_it_begins_anew(server: Any, downloads: Downloader, tmp_path: Path) -> None:
    """Nothing says that the second half would be of the same file."""
    server.files["file"], server.script["file"], server.tagged = BODY, ["truncates"], False
    fetch(server, downloads, tmp_path / "file")
    assert [asked.range for asked in server.asked] == [None, None]


def test_a_file_that_changes_between_attempts_is_not_a_mixture(
    server: Any, downloads: Downloader, tmp_path: Path
) -> None:
    server.files["file"], server.script["file"] = OTHER, ["truncates"]
    with pytest.raises(UserError, match="attempts"):
        fetch(server, Downloader(tries=1), tmp_path / "file")
    assert left(tmp_path / "file") == [".file.part", ".file.part.json"]
    server.files["file"], server.script["file"] = BODY, []
    fetch(server, downloads, tmp_path / "file")
    assert server.asked[-1].range == "bytes=20500-"
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_part_of_another_address_is_not_continued(server: Any, downloads: Downloader, tmp_path: Path) -> None:
    server.files |= {"file": BODY, "other": OTHER}
    server.script["other"] = ["truncates"]
    with pytest.raises(UserError):
        Downloader(tries=1).fetch(server.url("other"), tmp_path / "file", exactly(OTHER))
    fetch(server, downloads, tmp_path / "file")
    assert server.asked[-1].range is None


@pytest.mark.parametrize(
    ("troubles", "words", "requests"),
    [
        (["404"], "the server answers 404 Not Found", 1),
        (["403"], "the server answers 403 Forbidden", 1),
        (["500"] * 9, r"the server answers 500 Internal Server Error \(attempts: 3\)", 3),
        (["429 3600"], "429 Too Many Requests; the server asks to retry after 3600 s", 1),
        (["silent"] * 9, r"timed out \(attempts: 3\)", 3),
        (["claims-less"], "not the expected file: it has another content", 1),
        (["truncates", "claims-less", "claims-less"], "not the expected file", 3),
    ],
    ids=["404", "403", "500", "come-back-later", "stall", "lies", "lies-when-resumed"],
)
def test_what_cannot_is_one_sentence(
    server: Any, downloads: Downloader, tmp_path: Path, troubles: list[str], words: str, requests: int
) -> None:
    server.files["file"], server.script["file"] = BODY, list(troubles)
    with pytest.raises(UserError, match=words) as error:
        fetch(server, downloads, tmp_path / "file")
    assert "\n" not in str(error.value) and str(error.value).startswith(server.url("file"))
    assert not (tmp_path / "file").exists()
    assert len(server.asked) == requests


def test_an_empty_answer_is_refused(server: Any, downloads: Downloader, tmp_path: Path) -> None:
    server.files["file"] = b""
    with pytest.raises(UserError, match="file: the answer is empty"):
        fetch(server, downloads, tmp_path / "file")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("trouble", ["", "no-length"])
def test_more_than_the_largest_size_is_refused(server: Any, tmp_path: Path, trouble: str) -> None:
    server.files["file"], server.script["file"] = BODY, [trouble]
    with pytest.raises(UserError, match="larger than the 39999 bytes allowed"):
        fetch(server, Downloader(largest=39_999), tmp_path / "file")
    assert left(tmp_path / "file") == []


def test_a_wrong_content_leaves_nothing(server: Any, downloads: Downloader, tmp_path: Path) -> None:
    server.files["file"] = OTHER
    with pytest.raises(UserError, match="not the expected file"):
        fetch(server, downloads, tmp_path / "file")
    assert left(tmp_path / "file") == []


def test_a_host_without_connection_is_asked_only_once_more(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: every connection is refused
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
        downloads = Downloader(tries=3, wait=0.01)
        for attempts in (3, 1):
            with pytest.raises(UserError, match=rf"Connection refused \(attempts: {attempts}\)"):
                downloads.fetch(url, tmp_path / "file", exactly(BODY))


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "nonsense"])
def test_other_schemes_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="not an http or https address"):
        Downloader().fetch(url, tmp_path / "file", exactly(BODY))


def test_two_runs_do_not_write_one_part(server: Any, downloads: Downloader, tmp_path: Path) -> None:
    import fcntl

    server.files["file"] = BODY
    with open(tmp_path / ".file.part", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is downloading"):
            fetch(server, downloads, tmp_path / "file")
