"""Guards: an encoder is uploaded file by file with its card, and without a login or a hub one sentence says so.

A server on this machine plays the hub.

    python -m pytest --import-mode=importlib tests/minbert/test_push.py
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest


class Hub(ThreadingHTTPServer):
    """The hub's answers to an upload; `files` are those of the repositories' commits."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.created: list[dict] = []
        self.tokens: set[str | None] = set()
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.tokens.add(self.headers["Authorization"])
        if self.path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            self.say({"url": f"http://127.0.0.1:{self.server.server_port}/some/name", "name": "some/name"})
        elif self.path == "/api/validate-yaml":
            self.say({"errors": [], "warnings": []})
        elif self.path == "/api/models/some/name/preupload/main":
            names = [one["path"] for one in json.loads(body)["files"]]
            self.say({"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]})
        elif self.path.startswith("/api/models/some/name/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"http://127.0.0.1:{self.server.server_port}/some/name/commit/0"
            self.say({"success": True, "commitOid": "0" * 40, "commitUrl": url})
        else:
            self.send_error(404)

    def do_GET(self) -> None:
        self.say({"id": "some/name", "sha": "0" * 40, "siblings": []})

    def say(self, answer: dict) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def run(tiny: Path, tmp_path: Path) -> Path:
    """A run's folder with an encoder and its card."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "encoder").symlink_to(tiny)
    return tmp_path / "run"


def push(run: Path, home: Path, endpoint: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, **settings}
    command = [sys.executable, "-m", "minbert.weights", "push", str(run), "--repo", "some/name", "--private"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_every_file_of_the_encoder_is_uploaded(hub: Hub, run: Path, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{hub.server_port}"
    done = push(run, tmp_path / "home", address, HF_TOKEN="hf_of_a_test")
    assert done.returncode == 0 and done.stdout == f"{address}/some/name\n", done.stderr
    files = {str(path.relative_to(run / "encoder")): path for path in (run / "encoder").rglob("*") if path.is_file()}
    assert hub.files == {name: path.read_bytes() for name, path in files.items()}
    assert [one["name"] for one in hub.created] == ["name"] and "private" in str(hub.created)
    assert hub.tokens == {"Bearer hf_of_a_test"}


def test_without_a_login_it_says_how_and_asks_nothing(hub: Hub, run: Path, tmp_path: Path) -> None:
    done = push(run, tmp_path / "home", f"http://127.0.0.1:{hub.server_port}")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "not logged in to the hub; run `hf auth login` or set HF_TOKEN" in done.stderr
    assert not hub.tokens


def test_a_hub_out_of_reach_or_no_encoder_is_one_sentence(run: Path, tmp_path: Path) -> None:
    for folder, words in ((run, "--repo some/name: not uploaded: "), (tmp_path, "neither an encoder's folder nor")):
        done = push(folder, tmp_path / "home", "http://127.0.0.1:9", HF_TOKEN="hf_of_a_test")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and words in done.stderr, done.stderr
