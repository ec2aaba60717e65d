"""A server on this machine that can truncate, stall and refuse, and downloads without pauses."""

import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tasks.data.fetch.download import Downloader


class Server(ThreadingHTTPServer):
    """Serves `files`; `script[path]` holds what goes wrong at the first, second ... request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.script: dict[str, list[str]] = defaultdict(list)
        self.asked: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that go away are the point here


class Answer(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        self.server.asked.append(path)
        trouble = self.server.script[path].pop(0) if self.server.script[path] else ""
        body = self.server.files.get(path)
        if trouble.isdigit() or body is None:
            self.send_response(int(trouble or 404))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        if trouble == "stalls":
            time.sleep(1.0)
        if not trouble:
            self.wfile.write(body[len(body) // 2 :])
        self.close_connection = bool(trouble)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    made = Server()
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> Downloader:
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    return Downloader(tries=3, timeout=0.3)
