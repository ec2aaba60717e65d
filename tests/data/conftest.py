"""A server on this machine that can truncate, lie, stall and refuse, and pauses short enough for tests."""

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tasks.data.fetch.download import Downloader


@dataclass
class Asked:
    path: str
    range: str | None
    condition: str | None


class Server(ThreadingHTTPServer):
    """`files` are served with ETag and Range; `script[path]` holds what goes wrong at the first, second ... request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.script: dict[str, list[str]] = defaultdict(list)
        self.asked: list[Asked] = []
        self.tagged = True

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that go away are the point here


class Answer(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        self.server.asked.append(Asked(path, self.headers["Range"], self.headers["If-Range"]))
        trouble = self.server.script[path].pop(0) if self.server.script[path] else ""
        body = self.server.files.get(path)
        if trouble.isdigit() or body is None:
            return self.refuse(int(trouble or 404))
        if trouble.startswith("leads to "):
            return self.refuse(302, trouble.split()[2], "Location")
        if trouble.startswith("429 "):
            return self.refuse(429, trouble.split()[1])
        tag = f'"{hash(body) & 0xFFFFFFFF:x}"'
        start = 0
        if self.headers["Range"] and self.headers["If-Range"] == tag and trouble != "ignores-range":
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        rest = body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.server.tagged:
            self.send_header("ETag", tag)
        if trouble == "no-length":
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(rest) + {"claims-more": 99, "claims-less": -9}.get(trouble, 0)))
        self.end_headers()
        if trouble == "silent":
            time.sleep(0.5)
        half = len(rest) // 2 if trouble != "silent" else 0
        self.wfile.write(rest[:half])
        self.wfile.flush()
        if trouble == "stalls":
            time.sleep(1.0)
        if trouble not in ("truncates", "stalls", "silent"):
            self.wfile.write(rest[half:])
        self.close_connection = bool(trouble)

    def refuse(self, status: int, after: str = "", header: str = "Retry-After") -> None:
        self.send_response(status)
        if after:
            self.send_header(header, after)
        self.send_header("Content-Length", "0")
        self.end_headers()

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
def downloads() -> Downloader:
    return Downloader(tries=3, timeout=0.3, wait=0.01)
