"""Guards: a download arrives complete or not at all, and one that fails is one sentence.

python -m pytest --import-mode=importlib tests/data/test_download.py
"""

import hashlib
import socket
from pathlib import Path
from typing import Any

import pytest

from minbert.errors import UserError
from tasks.data.fetch.download import Downloader

BODY = hashlib.shake_256(b"a file").digest(40_000)


@pytest.mark.parametrize("troubles", [[], ["500"], ["truncates", "503"], ["stalls"]], ids=" ".join)
def test_a_failed_attempt_is_repeated(server: Any, downloads: Downloader, tmp_path: Path, troubles: list[str]) -> None:
    server.files["file"], server.script["file"] = BODY, list(troubles)
    downloads.fetch(server.url("file"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("trouble", ["404", "500", "truncates", "stalls"])
def test_the_last_attempt_fails_in_one_sentence(
    server: Any, downloads: Downloader, tmp_path: Path, trouble: str
) -> None:
    server.files["file"], server.script["file"] = BODY, [trouble] * 9
    with pytest.raises(UserError) as error:
        downloads.fetch(server.url("file"), tmp_path / "file")
    assert "\n" not in str(error.value) and str(error.value).startswith(server.url("file"))
    assert len(server.asked) == 3 and not list(tmp_path.iterdir())


def test_a_host_without_connection_is_asked_only_once_more(
    downloads: Downloader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("pooch.core.time.sleep", pauses.append)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: every connection is refused
        for attempts in (3, 1):
            pauses.clear()
            with pytest.raises(UserError, match="Connection refused"):
                downloads.fetch(f"http://127.0.0.1:{closed.getsockname()[1]}/file", tmp_path / "file")
            assert len(pauses) == attempts - 1
